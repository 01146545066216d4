"""Fetches a published suite: from a folder, a tar, the Hugging Face Hub or any other HTTP server.

SHA256SUMS names every file, so no server has to list any: each is fetched by its name and checked. An interrupted fetch
keeps the checked files in a hidden folder next to the target, and continues there the next time.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import quote, urlsplit

from opsassay.annotation.suites.curate import CHECKSUMS
from opsassay.core.errors import DatapackError, OperationError, UserError
from opsassay.core.untrusted import is_plain, open_plain, read_plain, safe_text
from opsassay.telemetry.content import file_digest
from opsassay.telemetry.tars import expanded, open_tar, plain_members

HUB = "https://huggingface.co"
MOST_FILES = 200_000
_MOST_SUMS_BYTES = 64 * 2**20
_CHUNK = 2**20
_TIMEOUT_S = 60
_TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
_HUB_PAGE = re.compile(r"/datasets/([^/]+/[^/]+?)(?:/tree/([^/]+))?/?")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")

Open = Callable[[str], BinaryIO]
"""A function that opens a file of the source by its name in SHA256SUMS."""


class Allowance:
    """The number of bytes that a fetch may still read; more raises DatapackError."""

    def __init__(self, most_bytes: int) -> None:
        self.most, self.left = most_bytes, most_bytes

    def take(self, size: int) -> None:
        """Subtract *size* bytes from the allowance; raises DatapackError when it is exceeded."""
        self.left -= size
        if self.left < 0:
            raise too_large(self.most)


def too_large(most_bytes: int) -> DatapackError:
    """Return the error for data larger than *most_bytes*."""
    return DatapackError(
        f"It is larger than {most_bytes / 2**30:.3g} GiB; allow more with --most-gib, or get a part of it."
    )


def fetch(source: str, out: Path, most_bytes: int) -> tuple[int, int]:
    """Copy the data set at *source* into the new folder *out*; return (number of files, number fetched by this call).

    *source* is a folder, a tar, a URL of either, a page of the Hub, or OWNER/NAME on it. A folder *out* with the same
    files is left unchanged. Raises UserError for a wrong source; DatapackError above *most_bytes*, for wrong checksums
    and for anything but plain files; OperationError when a server fails, after which checked files stay for the next
    call.
    """
    allowance = Allowance(most_bytes)
    with _open_source(source, allowance) as open_:
        sums = _parse_checksums(_read_checksums(open_, source), source)
        if out.exists():
            _require_same(out, sums)
            return len(sums), 0
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = out.parent / f".{out.name}.fetching"
        try:
            fetched = _fetch_all(open_, sums, partial, allowance)
            lines = "".join(f"{digest}  {name}\n" for name, digest in sums.items())
            (partial / CHECKSUMS).write_text(lines, encoding="utf-8")
            partial.rename(out)
        except OperationError:
            raise
        except BaseException as error:
            if not isinstance(error, KeyboardInterrupt):
                shutil.rmtree(partial, ignore_errors=True)
            raise
    return len(sums), fetched


@contextmanager
def _open_source(source: str, allowance: Allowance) -> Iterator[Open]:
    """Yield a function that opens a file of *source* (a folder, tar or URL) by name; a tar may unpack to *allowance*."""
    path = Path(source)
    if path.is_dir():
        yield lambda name: open_plain(_path_inside(path, name))
    elif path.exists():
        with _open_tar(path, allowance.most) as open_:
            yield open_
    elif source.endswith(_TARS) and "://" in source:
        with tempfile.TemporaryDirectory(prefix="opsassay-") as folder:
            packed = Path(folder) / "packed.tar"
            with _open_url(source) as stream, packed.open("wb") as file:
                _copy_stream(stream, file, Allowance(allowance.most))
            with _open_tar(packed, allowance.most) as open_:
                yield open_
    else:
        base = _base_url(source)
        yield lambda name: _open_url(f"{base}/{quote(name)}")


def _path_inside(folder: Path, name: str) -> Path:
    """Return the path of the file *name* in *folder*; raises DatapackError when a folder on the way is a symbolic link."""
    for parent in list(PurePosixPath(name).parents)[:-1]:
        if (folder / parent).is_symlink():
            raise DatapackError(
                f"{safe_text(str(folder / parent))} is a link, which is not followed; put the files there."
            )
    return folder / name


def _base_url(source: str) -> str:
    """Return the URL of the folder with the files of *source*, a URL or Hub name; raises UserError when invalid."""
    hub = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")
    if _HUB_NAME.fullmatch(source):
        return f"{hub}/datasets/{source}/resolve/main"
    try:
        parts = urlsplit(source)
    except ValueError:  # half of the brackets of an address
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UserError(
            f"There is no {safe_text(source)}; give a folder, a tar, a URL of either, "
            "or OWNER/NAME on the Hugging Face Hub."
        )
    page = _HUB_PAGE.fullmatch(parts.path)
    if page and source.startswith(hub):
        return f"{hub}/datasets/{page[1]}/resolve/{page[2] or 'main'}"
    return source.rstrip("/")


def _open_url(url: str) -> BinaryIO:
    """Open *url* for reading, with the Hub's token for the Hub only; raises OperationError."""
    request = urllib.request.Request(url, headers={"User-Agent": "opsassay"})  # noqa: S310 - http or https, as checked
    token = os.environ.get("HF_TOKEN")
    if token and url.startswith(os.environ.get("HF_ENDPOINT", HUB).rstrip("/") + "/"):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        answer: BinaryIO = urllib.request.urlopen(request, timeout=_TIMEOUT_S)  # noqa: S310
    except urllib.error.HTTPError as error:
        raise OperationError(
            f"{safe_text(url)} answered {error.code}; check the name, and HF_TOKEN where it needs one."
        ) from error
    except (OSError, ValueError) as error:
        raise OperationError(f"{safe_text(url)} cannot be had ({error}); check the address and try again.") from error
    return answer


def _read_checksums(open_: Open, source: str) -> str:
    """Return the text of SHA256SUMS of *source*; raises UserError without one, DatapackError when it is too large."""
    try:
        with open_(CHECKSUMS) as stream:
            content = stream.read(_MOST_SUMS_BYTES + 1)
    except FileNotFoundError as error:
        raise UserError(
            f"{safe_text(source)} holds no {CHECKSUMS}; give a suite, or what `opsassay incident export dataset` wrote."
        ) from error
    if len(content) > _MOST_SUMS_BYTES:
        raise DatapackError(f"{CHECKSUMS} of {safe_text(source)} is larger than {_MOST_SUMS_BYTES >> 20} MiB.")
    return content.decode("utf-8", "replace")


def _parse_checksums(text: str, source: str) -> Mapping[str, str]:
    """Return file name to SHA-256; DatapackError, naming *source*, for another line or a name outside the folder."""
    sums: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINE.fullmatch(line)
        if found is None or not _is_plain_relative_path(found[2]) or found[2] in sums:
            raise DatapackError(
                f"{CHECKSUMS} of {safe_text(source)}, line {number}: {safe_text(line[:120])!r} names no file of it."
            )
        sums[found[2]] = found[1]
    if not sums or len(sums) > MOST_FILES:
        raise DatapackError(
            f"{CHECKSUMS} of {safe_text(source)} names {len(sums)} files; 1 to {MOST_FILES} are fetched."
        )
    return sums


def _is_plain_relative_path(name: str) -> bool:
    """Return whether *name* is a plain relative path without ".." and is not the checksums file."""
    parts = name.split("/")
    return safe_text(name) == name and "\\" not in name and name != CHECKSUMS and not {"", ".", ".."} & set(parts)


def _fetch_all(open_: Open, sums: Mapping[str, str], partial: Path, allowance: Allowance) -> int:
    """Fetch *sums* (file to SHA-256) into *partial* within *allowance*, delete other files; return the number fetched."""
    fetched = 0
    for name, digest in sums.items():
        file = partial / name
        if is_plain(file) and file_digest(file) == digest:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        try:
            with open_(name) as stream, file.open("xb") as copy:
                found = _copy_stream(stream, copy, allowance)
        except (FileNotFoundError, UserError) as error:
            if isinstance(error, OperationError | DatapackError):
                raise
            raise DatapackError(f"{name}, which {CHECKSUMS} names, cannot be read: {error}") from error
        except (OSError, ValueError) as error:
            file.unlink(missing_ok=True)
            raise OperationError(f"{name} broke off ({error}); fetch again, what is here already is kept.") from error
        if found != digest:
            raise DatapackError(
                f"{name} is not what {CHECKSUMS} says of it; get the data set again from who published it."
            )
        fetched += 1
    for stale in [path for path in partial.rglob("*") if path.is_file() and str(path.relative_to(partial)) not in sums]:
        stale.unlink()
    return fetched


def _copy_stream(stream: BinaryIO, file: BinaryIO, allowance: Allowance) -> str:
    """Copy *stream* to *file* within *allowance*; return the SHA-256 of the content, in hexadecimal."""
    total = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        allowance.take(len(chunk))
        total.update(chunk)
        file.write(chunk)
    if getattr(stream, "length", None):  # what http.client still waits for: it says nothing when reading by chunks
        raise OSError("the connection ended early")
    return total.hexdigest()


def _require_same(out: Path, sums: Mapping[str, str]) -> None:
    """Raise DatapackError unless *out* holds exactly the files of *sums* with their checksums."""
    there = out / CHECKSUMS
    same = (
        is_plain(there)
        and _parse_checksums(read_plain(there, _MOST_SUMS_BYTES).decode("utf-8", "replace"), str(out)) == sums
    )
    if not same or not all(is_plain(out / name) and file_digest(out / name) == digest for name, digest in sums.items()):
        raise DatapackError(f"{out} exists already and is something else; remove it or choose another folder.")


@contextmanager
def _open_tar(path: Path, most_bytes: int) -> Iterator[Open]:
    """Yield a function that opens a file of the tar at *path* by name; DatapackError if unreadable or over *most_bytes*."""
    with tempfile.TemporaryFile(prefix="opsassay-") as made, open_plain(path) as given:
        try:
            pieces = expanded(given)
            for piece in pieces or ():
                made.write(piece)
                if made.tell() > most_bytes:
                    raise too_large(most_bytes)
            archive = open_tar(given if pieces is None else made)
            members = {str(PurePosixPath(one.name)): one for one in plain_members(archive, MOST_FILES)}
        except (tarfile.TarError, lzma.LZMAError, EOFError, OSError, ValueError) as error:
            raise DatapackError(f"{path} cannot be read as a tar: {error}.") from error
        tops = {PurePosixPath(name).parts[0] for name in members if name != "."}
        below = f"{tops.pop()}/" if len(tops) == 1 and CHECKSUMS not in members else ""

        def opened(name: str) -> BinaryIO:
            """Return the open member *name*; raises FileNotFoundError."""
            member = members.get(below + name)
            stream = archive.extractfile(member) if member is not None else None
            if stream is None:
                raise FileNotFoundError(name)
            return stream  # type: ignore[return-value]

        yield opened
