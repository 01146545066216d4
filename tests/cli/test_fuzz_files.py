"""Every kind of file that commands read, with odd changes: it is read, or one sentence names the file and what is wrong."""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.fuzzing import DRAWN, FOREIGN, TIMES, Place, mutated
from cli.test_fuzz_options import EXAMPLES, ROOT, fill
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.cli.new.schema import KINDS
from opsassay.core.errors import ConfigError
from opsassay.core.schema.files import load_yaml

pytestmark = [  # of what has begun, also in a thread
    pytest.mark.filterwarnings(f"ignore::pytest.Pytest{kind}ExceptionWarning")
    for kind in ("Unraisable", "UnhandledThread")
]
SLOW = ("agent", "audit", "report", "run", "view")
"""Commands that take half a second and more."""
APPS = ROOT / "src" / "opsassay" / "testbed" / "apps"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("fuzz"))


def make_place(folder: Path) -> Place:
    """Return a folder with an example of every kind of file."""
    made = folder / "made"
    made.mkdir()
    fill(made)
    for name in ("agents", "own_system", "compose", "compliance", "cost", "extending"):
        shutil.copytree(
            EXAMPLES / name, made / name, ignore=shutil.ignore_patterns("node_modules", ".venv", "__pycache__")
        )
    for name, source in {
        "delay.yaml": EXAMPLES / "network-delay.yaml", "hybrid.yaml": EXAMPLES / "hybrid.yaml",
        "shop.yaml": APPS / "shop.yaml", "answers.yaml": EXAMPLES / "multi_agent" / "answers.yaml",
        "resolved.yaml": EXAMPLES / "multi_agent" / "annotations" / "resolved.yaml",
        "eve.json": EXAMPLES / "multi_agent" / "annotations" / "eve.json",
    }.items():  # fmt: skip
        shutil.copy(source, made / name)
    quick = {"resamples": 100, "permutations": 100, "simulations": 100}
    for name, model in {
        "audit.yaml": AuditSettings(**quick),
        "blame.yaml": BlameSettings(),
        "annotate.yaml": AnnotateSettings(),
    }.items():
        (made / name).write_text(yaml.safe_dump(model.model_dump(mode="json"), sort_keys=False))
    (made / "diagnosis.yaml").write_text(
        "domain: diagnosis\nincidents: [tree]\nrepeats: 2\nmask: {drop: [logs]}\n"
        "agents: [constant, {name: baro, parameters: {window: [5, 20]}}]\n"
    )
    (made / "cluster.yaml").write_text("context: here\n")
    (made / "redaction.yaml").write_text("patterns: {key: secret}\n")
    return Place(made, folder / "p")


READERS: list[tuple[str, str]] = [
    ("agents/by_mcp/agent.yaml", "agent check {}"),
    ("agents/by_model/agent.yaml", "agent check {}"),
    ("diagnosis.yaml", "run {} -o out"),
    ("compliance/plan.yaml", "run {} -o out"),
    ("cost/plan.yaml", "run {} -o out"),
    ("cost/live.yaml", "run {} -o out"),
    ("trials.yaml", "run trials {} -o out --dry-run"),
    ("delay.yaml", "incident record shop {} -o out"),
    ("hybrid.yaml", "incident record shop {} -o out"),
    ("fault.yaml", "system inject {} --on ghost"),
    ("campaign.yaml", "incident campaign {} -o out"),
    ("own_system/system.yaml", "system up {}"),
    ("shop.yaml", "system render {}"),
    ("shop.yaml", "system up {}"),
    ("compose/compose.yaml", "system up {}"),
    ("scenario.yaml", "task check {}"),
    ("compose/scenario.yaml", "task check {}"),
    ("cluster.yaml", "task discover bad-config-map -o out --cluster {}"),
    ("incident.yaml", "incident import backends {} -o out"),
    ("annotate.yaml", "incident annotate tree --settings {}"),
    ("audit.yaml", "audit scores.csv -o out --settings {}"),
    ("blame.yaml", "trace blame trace.json --config {}"),
    ("resolved.yaml", "trace blame agree ada.json ben.json eve.json --resolve {}"),
    ("ada.json", "trace blame agree {} ben.json"),
    ("answers.yaml", "run tree -a rca --model scripted:{} -o out"),
    ("redaction.yaml", "trace redact trace.json -o out.json --config {}"),
    ("trace.json", "trace convert {}"),
    ("trace.json", "trace blame {}"),
    ("trace.json", "trace export atif {} -o out.json"),
    ("records.jsonl", "score timeline unreachable-service --records {}"),
    ("answers/*.json", "score import answers --cases tree -o out"),
    ("public/one/injection.json", "incident import rcabench public -o out"),
    ("public/one/env.json", "incident import rcabench public -o out"),
    ("tree/incidents/*/incident.json", "incident annotate tree"),
    ("tree/incidents/*/env.json", "incident annotate tree"),
    ("tree/truth/*/truth.json", "incident annotate tree"),
    ("tree/truth/*/annotation.json", "incident curate tree -o out"),
    ("tree/truth/*/causal_graph.json", "incident export tree -o out"),
    ("suite/suite.json", "incident export dataset suite -o out"),
    ("suite/suite.json", "task list suite"),
    ("graded/runs/*/1/run.json", "score table graded"),
    ("graded/runs/*/1/run.json", "leaderboard graded"),
    ("graded/runs/*/1/run.json", "report graded -o out"),
    ("graded/runs/*/1/run.json", "view graded --export out"),
    ("graded/runs/*/1/verdicts/default.json", "leaderboard graded"),
    ("graded/runs/*/1/verdicts/default.json", "compare graded graded"),
    ("graded/runs/*/1/verdicts/default.json", "view graded --export out"),
    ("graded/runs/*/1/diagnosis.json", "score run graded"),
    ("graded/runs/*/1/diagnosis.json", "view graded --export out"),
    ("graded/runs/*/1/trace.jsonl", "trace export otel graded -o out.json"),
    ("graded/runs/*/1/trace.jsonl", "trace export rewards graded -o out.json"),
    ("graded/attempts.jsonl", "score table graded"),
    ("graded/truth/*/truth.json", "score run graded"),
    ("graded/truth/*/annotation.json", "score run graded"),
    ("graded/truth/*/annotation.json", "view graded --export out"),
    ("graded/incidents/*/incident.json", "score run graded"),
    ("sre/attempts.jsonl", "score table sre"),
    ("sre/scenarios/*.json", "score trials sre"),
    ("sre/runs/*/1/run.json", "score trials sre"),
    ("sre/runs/*/1/run.json", "score table sre"),
    ("sre/runs/*/1/verdicts/*.json", "leaderboard sre"),
    ("sre/runs/*/1/actions.jsonl", "score trials sre"),
    ("sre/runs/*/1/timeline.jsonl", "score trials sre"),
]
"""A file of the folder, and a command that reads it; {} is the file."""

MODELS = {
    "task-set": yaml.safe_load((EXAMPLES / "platform" / "task_sets" / "bill.yaml").read_text()),
    "intervention": {"step": 2, "replace": {"a": "b"}, "add": "Look again.", "role": "user"},
}
"""Kinds of files that are read where a server or a recorded session is, with an example."""


def read_example(path: Path):
    text = path.read_text()
    if path.suffix == ".yaml":
        return yaml.safe_load(text)
    return json.loads(text) if path.suffix == ".json" else [json.loads(line) for line in text.splitlines()]


def written(path: str, value) -> bytes:
    if path.endswith(".yaml"):
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True).encode("utf-8", "surrogatepass")
    if path.endswith(".json") or not isinstance(value, list):
        return json.dumps(value).encode()
    return b"".join(json.dumps(line).encode() + b"\n" for line in value)


@settings(max_examples=16 * TIMES, phases=DRAWN)
@given(st.data())
def test_an_odd_file_is_read_or_refused_in_one_sentence(place, data):
    check(place, data.draw(st.sampled_from([one for one in READERS if one[1].split()[0] not in SLOW]), "reader"), data)


@pytest.mark.slow
@settings(max_examples=20 * TIMES, phases=DRAWN)
@given(st.data())
@pytest.mark.parametrize("reader", READERS, ids=" < ".join)
def test_an_odd_file_of_each_kind(place, reader, data):
    check(place, reader, data)


@settings(max_examples=60 * TIMES, phases=DRAWN)
@given(st.data())
def test_an_odd_file_that_no_command_here_reads_alone_is_refused_by_its_model(tmp_path_factory, data):
    kind, example = data.draw(st.sampled_from(sorted(MODELS.items())), "kind")
    file = tmp_path_factory.getbasetemp() / f"{kind}.yaml"
    odd = mutated(copy.deepcopy(example), lambda several: data.draw(st.sampled_from(several)))
    file.write_bytes(written(file.name, odd))
    module, _, name = KINDS[kind][0].partition(":")
    with contextlib.suppress(ConfigError):
        load_yaml(file, getattr(importlib.import_module(module), name))
        return
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(file))}") as raised:
        load_yaml(file, getattr(importlib.import_module(module), name))
    assert not FOREIGN.search(str(raised.value))


def check(place: Place, reader: tuple[str, str], data: st.DataObject) -> None:
    pattern, typed = reader
    file = data.draw(st.sampled_from(sorted(place.origin.glob(pattern))), "file").relative_to(place.origin)
    odd = mutated(read_example(place.origin / file), lambda several: data.draw(st.sampled_from(several)))
    assert place.problems_with(str(file), written(str(file), odd), typed.format(file).split())[1] == []
