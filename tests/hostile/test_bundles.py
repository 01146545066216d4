"""Uploads of agents, and data sets that are fetched as a tar, are plain files below their folder, within bounds, or nothing is written."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import struct
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from opsassay.annotation.suites.fetch import fetch
from opsassay.core.errors import UserError
from opsassay.server.artefacts import MOST_FILES, unpack

CLASS = "22 uploads of agents"
BUNDLE = {"agent.yaml": b"agent: a", "code/agent.py": b"print()"}


def entry(name: str, content: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def tar(*entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=form) as archive:
        for name, content in BUNDLE.items():
            archive.addfile(entry(name, content)[0], io.BytesIO(content))
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return written.getvalue()


def of_type(kind: bytes, name: str = "there", target: str = "", size: int = 0) -> bytes:
    return tar(entry(name, b"", type=kind, linkname=target, size=size))


def with_size(size: int) -> bytes:
    """A last member whose header says *size* in base 256."""
    whole = bytearray(tar(entry("large", b"")))
    at = whole.index(b"large\0")
    whole[at + 124 : at + 136] = (b"\xff" if size < 0 else b"\x80") + struct.pack(">3xq", size)
    if size < 0:
        whole[at + 125 : at + 128] = b"\xff\xff\xff"
    whole[at + 148 : at + 156] = b" " * 8
    whole[at + 148 : at + 156] = b"%06o\0 " % sum(whole[at : at + 512])
    return bytes(whole)


def long_header(kind: bytes) -> bytes:
    """A member whose header of a long name, or of PAX, expands to 4 GB of zeros in a megabyte; nothing is built of it here."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = kind, 1 << 32
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 26))


ATTACKS: dict[str, Callable[[], bytes]] = {
    "a link out": lambda: of_type(tarfile.SYMTYPE, "out", "/etc/passwd"),
    "a link and a file through it": lambda: tar(
        entry("out", b"", type=tarfile.SYMTYPE, linkname="/tmp"), entry("out/planted")
    ),
    "a hard link": lambda: of_type(tarfile.LNKTYPE, "out", "/etc/passwd"),
    "a hard link to its own": lambda: of_type(tarfile.LNKTYPE, "out", "agent.yaml"),
    "a device": lambda: of_type(tarfile.CHRTYPE),
    "a block device": lambda: of_type(tarfile.BLKTYPE),
    "a pipe": lambda: of_type(tarfile.FIFOTYPE),
    "a type of tomorrow": lambda: of_type(b"Z"),
    "an absolute name": lambda: tar(entry("/planted")),
    "a name above": lambda: tar(entry("../planted")),
    "a name above, later": lambda: tar(entry("code/../../planted")),
    "an absolute name by PAX": lambda: tar(entry("x", pax_headers={"path": "/planted"})),
    "a name above by PAX": lambda: tar(entry("x", pax_headers={"path": "../planted"})),
    "a name with NUL by PAX": lambda: tar(entry("x", pax_headers={"path": "a\0b"})),
    "a file below a file": lambda: tar(entry("agent.yaml/x")),
    "a file in the place of a folder": lambda: tar(entry("code")),
    "a name too long": lambda: tar(entry("n" * 5000)),
    "a path too long": lambda: tar(entry("d/" * 3000 + "x")),
    "a size below zero": lambda: with_size(-512),
    "a size far below zero": lambda: with_size(-(1 << 40)),
    "a size that is not there": lambda: with_size(1 << 40),
    "a sparse file of a terabyte": lambda: tar(
        entry("x", b"1\n0\n1\n".ljust(512, b"\0"), pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
            "GNU.sparse.name": "x", "GNU.sparse.realsize": str(1 << 40)})
    ),
    "many files": lambda: tar(*(entry(f"f{n}", b"") for n in range(MOST_FILES))),
    "many folders": lambda: tar(*(entry(f"f{n}", b"", type=tarfile.DIRTYPE) for n in range(MOST_FILES))),
    "a long name of 4 GB": lambda: long_header(b"L"),
    "a header of PAX of 4 GB": lambda: long_header(b"x"),
    "a large file in gzip": lambda: gzip.compress(tar(entry("x", bytes(60 << 20)))),
    "a large file": lambda: tar(entry("x", bytes(60 << 20))),
    "cut off": lambda: tar(entry("x", bytes(4096)))[:3000],
    "no tar": lambda: b"no tar at all" * 100,
    "nothing": lambda: b"",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", ATTACKS)
def test_what_is_no_plain_file_is_refused_and_nothing_is_written(what: str, tmp_path: Path) -> None:
    content = ATTACKS[what]()
    with pytest.raises(UserError) as refused:
        unpack(content, tmp_path / "agents" / "one")
    assert "\n" not in str(refused.value)
    assert [path for path in tmp_path.rglob("*") if path.name != "agents"] == []
    unpack(tar(entry("more/deeply/below"), entry("empty", b"", type=tarfile.DIRTYPE)), tmp_path / "agents" / "one")
    found = {p.relative_to(tmp_path / "agents" / "one").as_posix() for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {*BUNDLE, "more/deeply/below"}


def large_header(kind: bytes, pack: Callable[..., bytes] = bytes, *level: int) -> bytes:
    """A data set whose first member has a header of 48 MB, which is there."""
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = kind, 48 << 20
    return pack(info.tobuf(tarfile.GNU_FORMAT) + bytes(48 << 20) + data_set(), *level)


def xz_of_much_memory(content: bytes) -> bytes:
    """*content* by xz, which is to take more than is lent to it to expand."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]
    return lzma.compress(content, lzma.FORMAT_XZ, filters=filters)


def data_set(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in BUNDLE.items())
    return tar(entry("SHA256SUMS", sums.encode()), *entries)


MOST_BYTES = 64 << 20
SETS: dict[str, Callable[[], bytes]] = {
    "a large header of PAX": lambda: large_header(b"x"),
    "a large header of PAX in gzip": lambda: large_header(b"x", gzip.compress, 1),
    "a large header of PAX for all, in gzip": lambda: large_header(b"g", gzip.compress, 1),
    "a large name in gzip": lambda: large_header(b"L", gzip.compress, 1),
    "a header of PAX of 4 GB": lambda: long_header(b"x"),
    "a header of 2 MB": lambda: data_set(entry("x", pax_headers={"comment": "c" * 2**21})),
    "a bomb in a bomb": lambda: bz2.compress(gzip.compress(bytes(8 << 20), 1), 1),
    "half a gigabyte to expand": lambda: xz_of_much_memory(data_set()),
    "xz that ends early": lambda: lzma.compress(data_set())[:-40],
    "gzip that ends early": lambda: gzip.compress(data_set())[:-40],
    "a sparse file": ATTACKS["a sparse file of a terabyte"],
    "cut off": lambda: data_set(entry("x", bytes(4096)))[:-9000],
    "a link out": ATTACKS["a link out"],
    "an absolute name": ATTACKS["an absolute name"],
}


@pytest.mark.slow
@pytest.mark.parametrize("what", SETS)
def test_a_data_set_that_is_no_tar_of_plain_files_is_refused_within_its_bounds(what: str, tmp_path: Path) -> None:
    (tmp_path / "given.tar").write_bytes(SETS[what]())
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as refused:
            fetch(str(tmp_path / "given.tar"), tmp_path / "out", MOST_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["given.tar"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_data_set_is_read_however_it_is_packed(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "given.tar").write_bytes(pack(data_set(entry("of no list", bytes(4096)))))
    assert fetch(str(tmp_path / "given.tar"), tmp_path / "out", MOST_BYTES) == (2, 2)
    assert {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*") if p.is_file()} == {
        *BUNDLE, "SHA256SUMS"
    }  # fmt: skip


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_form_of_tar_is_read(form: int, tmp_path: Path) -> None:
    unpack(tar(entry("d/" * 30 + "x"), form=form), tmp_path / "one")
    assert (tmp_path / "one" / ("d/" * 30) / "x").read_bytes() == b"x"
