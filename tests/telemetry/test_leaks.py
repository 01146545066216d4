import json

import polars as pl
import pytest

from opsassay.telemetry.datapack import write_datapack
from opsassay.telemetry.leaks import leaks
from telemetry.packs import make_frames, make_incident, make_truth

INCIDENT = make_incident()
TRUTH = make_truth(INCIDENT)
START_NS = TRUTH.faults[0].start_ns  # 03:05:06.623456790 UTC on 2 January 2026


def written(tmp_path, *, message=None, incident=INCIDENT, env=None):
    frames = make_frames(traces=5, error_in="store")
    if message is not None:
        logs = frames["abnormal", "logs"]
        frames["abnormal", "logs"] = logs.with_columns(
            message=pl.when(pl.int_range(pl.len()) == 3).then(pl.lit(message)).otherwise("message")
        )
    write_datapack(tmp_path / "0a", frames, incident, env or {})
    return tmp_path / "0a"


def test_a_clean_incident(tmp_path):
    assert leaks(written(tmp_path), TRUTH) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    [
        "HTTPResponseAbort applied",
        "httpresponseabort",
        "kind http_aborted",
        "Fault in here",
        "chaos-mesh daemon",
        "the injection began",
        "injected: yes",
        f"at {START_NS}",
        "since 2026-01-02T03:05:06.623456790Z",
        "since 2026-01-02 03:05:06.623456790.",
    ],
)
def test_what_a_log_must_not_say(tmp_path, message):
    (found,) = leaks(written(tmp_path, message=message), TRUTH)
    assert found.startswith("abnormal_logs.parquet: column message: ")


@pytest.mark.parametrize(
    "message",
    [
        "use the default cart",
        "faultless",
        "dejection",
        f"{START_NS}1",
        "2026-01-02T03:05:06.6234567901",
        "aborted by user",
    ],
)
def test_what_a_log_may_say(tmp_path, message):
    assert leaks(written(tmp_path, message=message), TRUTH) == []


def test_a_log_line_of_the_same_second_is_no_leak_but_the_instant_is(tmp_path):
    fault = TRUTH.faults[0].model_copy(update={"start_ns": START_NS // 10**9 * 10**9})
    truth = TRUTH.model_copy(update={"faults": (fault,)})
    assert leaks(written(tmp_path, message="2026-01-02T03:05:06.250 GET /"), truth) == []
    for number, message in enumerate(("2026-01-02T03:05:06.000Z x", f"epoch {fault.start_ns // 10**9}")):
        assert len(leaks(written(tmp_path / str(number), message=message), truth)) == 1


@pytest.mark.parametrize(
    ("incident", "env", "name"),
    [
        (INCIDENT.model_copy(update={"description": "a CPU fault"}), {}, "incident.json"),
        (INCIDENT.model_copy(update={"provenance": {"start": START_NS}}), {}, "incident.json"),
        (INCIDENT, {"injection": 1}, "env.json"),
        (INCIDENT, {"a": [{"b": "HTTPResponseAbort"}]}, "env.json"),
    ],
)
def test_what_json_must_not_say(tmp_path, incident, env, name):
    (found,) = leaks(written(tmp_path, incident=incident, env=env), TRUTH)
    assert found.startswith(f"{name}: ")


def test_names_of_files_folders_and_columns(tmp_path):
    folder = written(tmp_path)
    (folder / "injection.json").write_text(json.dumps({"x": 1}))
    assert [line for line in leaks(folder, TRUTH) if line.startswith("injection.json")]
    (folder / "injection.json").unlink()
    table = pl.read_parquet(folder / "normal_logs.parquet")
    table.with_columns(chaos=pl.lit(1)).write_parquet(folder / "normal_logs.parquet")
    assert leaks(folder, TRUTH) == ["normal_logs.parquet: column chaos: its name"]
    assert leaks(folder.rename(tmp_path / "chain-HTTPResponseAbort-store"), TRUTH)[0].startswith("the folder is called")
