"""Uploads, stored under their SHA-256 and immutable; also the digest of a run's folder."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from opsassay.core.errors import OperationError, UserError
from opsassay.core.untrusted import is_plain, one_sentence, open_plain
from opsassay.telemetry.content import whole_file, whole_folder
from opsassay.telemetry.tars import open_tar, plain_members

MOST_BYTES = 50 * 2**20
"""Most bytes of one upload, and of its expanded content."""
MOST_FILES = 500


class Artefacts:
    """The store of uploads: a folder of this machine, or a URL for fsspec, such as ``s3://BUCKET/PREFIX``.

    The extra ``artefacts`` installs fsspec and S3; the S3 client reads credentials and endpoint from ``AWS_ACCESS_KEY_ID``,
    ``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT_URL``. Raises UserError for a URL that cannot be used.
    """

    def __init__(self, place: Path | str) -> None:
        self._folder = place if isinstance(place, Path) else None
        if isinstance(place, str):
            from fsspec.core import url_to_fs

            try:
                self._files, self._root = url_to_fs(place)
            except (ValueError, ImportError) as error:
                raise UserError(f"Artefacts cannot be kept at {place}: {error}.") from error

    def keep(self, content: bytes) -> str:
        """Store *content* under its SHA-256 unless it is stored already; return the digest; raises OperationError."""
        digest = hashlib.sha256(content).hexdigest()
        if self.has(digest):
            return digest
        if self._folder is None:
            with _translate_store_errors(self._root):
                self._files.makedirs(self._path_of(digest).rpartition("/")[0], exist_ok=True)
                self._files.pipe_file(self._path_of(digest), content)
        else:
            path = self._folder / digest[:2] / digest
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with whole_file(path) as partial:
                partial.touch(mode=0o600)
                partial.write_bytes(content)
        return digest

    def has(self, digest: str) -> bool:
        """Return whether content with the SHA-256 *digest* is stored."""
        if self._folder is not None:
            return (self._folder / digest[:2] / digest).exists()
        with _translate_store_errors(self._root):
            return bool(self._files.exists(self._path_of(digest)))

    def read(self, digest: str) -> bytes:
        """Return the content with the SHA-256 *digest*; raises OperationError when it is missing or damaged."""
        if self._folder is not None:
            path = self._folder / digest[:2] / digest
            content = path.read_bytes() if path.exists() else None
        else:
            with _translate_store_errors(self._root):
                path_there = self._path_of(digest)
                content = self._files.cat_file(path_there) if self._files.exists(path_there) else None
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise OperationError(f"The artefact {digest} is not there, or is not what its name says; upload it again.")
        return content

    def _path_of(self, digest: str) -> str:
        """Return the path of the content with *digest* in the object store."""
        return f"{self._root}/{digest[:2]}/{digest}"


@contextmanager
def _translate_store_errors(root: str) -> Iterator[None]:
    """Raise errors of the object store in the block as OperationError naming its URL *root*."""
    try:
        yield
    except Exception as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise OperationError(f"The artefacts at {root} cannot be reached ({said[0][:200]}).") from error


def unpack(content: bytes, folder: Path) -> None:
    """Unpack the uncompressed tar *content* into the new *folder*; raises UserError and removes it again.

    Links, devices, absolute names, names with ``..`` and more than MOST_BYTES or MOST_FILES are refused. A compressed
    tar is refused too, so that an upload is as large as its content.
    """
    try:
        with open_tar(io.BytesIO(content)) as archive, whole_folder(folder) as partial:
            for member in list(plain_members(archive, MOST_FILES, MOST_BYTES)):
                target = partial / member.name
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                elif (stream := archive.extractfile(member)) is not None:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(stream.read())
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise UserError(
            f"The upload is no tar archive that can be read ({one_sentence(str(error))}); make one with `tar cf`."
        ) from error


def folder_digest(folder: Path, ignored_names: Iterable[str] = ()) -> str:
    """Return one SHA-256 over names and contents of all plain files in *folder*, except those in *ignored_names*."""
    skipped, whole = frozenset(ignored_names), hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.name in skipped or not is_plain(path):
            continue
        with open_plain(path) as stream:
            content = hashlib.sha256()
            while part := stream.read(2**20):
                content.update(part)
        whole.update(
            f"{path.relative_to(folder).as_posix()}\0{content.hexdigest()}\n".encode("utf-8", "surrogateescape")
        )
    return whole.hexdigest()
