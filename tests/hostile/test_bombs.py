"""What expands is measured before it is expanded, and refused in one sentence."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import time
import zipfile
from pathlib import Path

import polars as pl
import pytest

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.files import MAX_DEPTH, parse_yaml
from opsassay.core.schema.plan import FaultPlan
from opsassay.core.untrusted import bound_stream
from opsassay.solvers.proxy.formats.finding import read_traces
from opsassay.telemetry.datapack import Datapack, require_expandable
from telemetry.packs import make_pack

CLASS = "10 bombs"
PLAIN = "a: 1"


def merges(count: int) -> str:
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(9)) + "}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, count)]
    return "\n".join(lines)


def aliases(count: int) -> str:
    return "\n".join(
        ["a0: &a0 [x, x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, count))]
    )


YAML = {
    **{f"{n} lines of merges": merges(n) for n in (7, 9, 20, 60)},
    **{f"{n} lines of aliases": aliases(n) for n in (7, 9, 20, 60)},
    **{f"{n} nested lists": "a: " + "[" * n + "]" * n for n in (100, 1000, 5000, 100000)},
    **{f"{n} nested mappings": "a: " + "{a: " * n + "1" + "}" * n for n in (100, 5000)},
    "a circle": "a: &a [*a]", "many values": "a: [" + "1, " * 900_000 + "1]", "many characters": "a: " + "x" * 3_000_000,
}  # fmt: skip


@pytest.mark.parametrize("what", YAML)
def test_yaml_is_measured_first(what: str) -> None:
    begun = time.monotonic()
    with pytest.raises(OpsAssayError) as refused:
        parse_yaml(YAML[what], FaultPlan, "given.yaml")
    assert time.monotonic() - begun < 30
    assert "there is no such key" not in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(OpsAssayError, match="there is no such key"):  # the control is read, and understood
        parse_yaml(PLAIN, FaultPlan, "given.yaml")
    assert MAX_DEPTH > 20


@pytest.fixture(scope="module", params=[10**7, pytest.param(10**8, marks=pytest.mark.slow)])
def wide(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small file of many rows; the larger one takes seconds to write."""
    path = tmp_path_factory.mktemp("wide") / "wide.parquet"
    rows = pl.LazyFrame({"time": [1]}).select(pl.repeat(1, request.param).alias("time"))
    rows.with_columns(pl.lit("x" * 50).alias(f"c{i}") for i in range(4)).sink_parquet(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["abnormal_traces", "normal_metrics"])
def test_parquet_is_measured_first(tmp_path: Path, wide: Path, name: str) -> None:
    pack = make_pack(tmp_path / "p").path
    require_expandable(pack / f"{name}.parquet")
    Datapack.open(pack)
    shutil.copyfile(wide, pack / f"{name}.parquet")
    assert (pack / f"{name}.parquet").stat().st_size < 2**23
    with pytest.raises(OpsAssayError, match="expands to more than"):
        Datapack.open(pack)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.slow
@pytest.mark.parametrize("files", [5, 1])
def test_a_log_of_inspect_is_measured_first(tmp_path: Path, method: int, files: int) -> None:
    path = tmp_path / "x.eval"
    event = {"event": "model", "model": "m", "input": [], "output": {"choices": [{"message": {"content": "yes"}}]}}
    for size, most in ((100, None), (130 * 2**20 // files, "expands to more than")):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("header.json", "{}")
            for number in range(files):
                sample = json.dumps({"id": number, "events": [event], "x": ""})
                archive.writestr(f"samples/{number}.json", sample[:-2] + "0" * size + '"}')
        if most:
            with pytest.raises(OpsAssayError, match=most):
                read_traces(path)
        else:
            assert len(read_traces(path)) == files


@pytest.mark.slow
@pytest.mark.parametrize("size", [2**20, 2**24, 2**27])
def test_a_stream_ends_at_its_bound(size: int) -> None:
    packed = io.BytesIO(gzip.compress(bytes(size)))
    with pytest.raises(UserError, match="expands to more than"):
        bound_stream(gzip.GzipFile(fileobj=packed), size - 1, "x.gz").read()
    packed.seek(0)
    assert len(bound_stream(gzip.GzipFile(fileobj=packed), size, "x.gz").read()) == size
