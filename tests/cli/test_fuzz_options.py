"""Every option and argument of every command, with odd values of its type: refused in one sentence, or taken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.fuzzing import DRAWN, TIMES, Place
from opsassay.cli import run
from opsassay.cli.groups import load
from opsassay.cli.tree import COMMANDS
from telemetry.packs import make_public, make_tree

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of what has begun
ROOT = Path(__file__).parents[2]
EXAMPLES, GOLDEN = ROOT / "examples", ROOT / "tests" / "evals" / "golden"

CALLS: dict[str, dict[str, object]] = {
    "demo": {"fault_name": "PodKill"},
    "new agent": {"name": "mine"},
    "new method": {"name": "mine"},
    "new scenario": {"name": "mine"},
    "new plan": {"name": "mine"},
    "new schema": {"kind": "agent"},
    "system up": {"system": "shop"},
    "system check": {"system": "shop"},
    "system attach": {"project": "ghost", "entries": ["http://127.0.0.1:1/"]},
    "system down": {"names": ["ghost"]},
    "system status": {},
    "system logs": {"system": "ghost"},
    "system render": {"system": "shop"},
    "system render worker": {"server": "http://127.0.0.1:1"},
    "system faults": {},
    "system inject": {"fault": "fault.yaml", "name": "ghost"},
    "incident record": {"system": "shop", "fault": "fault.yaml", "output": "out"},
    "incident campaign": {"plan": "campaign.yaml", "output": "out"},
    "incident import": {"format_": "rcabench", "path": "public", "output": "out"},
    "incident import backends": {"file": "incident.yaml", "output": "out"},
    "incident annotate": {"paths": ["tree"]},
    "incident curate": {"paths": ["tree"], "output": "out"},
    "incident audit-labels": {"suite": "graded", "annotator": "x"},
    "incident fetch": {"source": "suite", "output": "out"},
    "incident export": {"tree": "tree", "output": "out"},
    "incident export harbor": {"tree": "tree", "output": "out"},
    "incident export dataset": {"suite": "suite", "output": "out"},
    "incident serve-apis": {"source": "tree"},
    "task list": {"paths": ["tree"]},
    "task scenarios": {},
    "task show": {"name": "bad-release"},
    "task generate": {"files": ["export.csv"], "output": "out"},
    "task check": {"files": ["scenario.yaml"]},
    "task calibrate": {"scenarios": ["bad-release"], "output": "out"},
    "task discover": {"scenario_name": "bad-release", "output": "out"},
    "agent list": {},
    "agent check": {"agent": "agent.yaml"},
    "agent methods": {},
    "run": {"suite": "tree", "agents": "constant", "output": "out"},
    "run diagnose": {"path": "tree", "methods": "max-z", "output": "out"},
    "run trials": {"plan": "trials.yaml", "output": "out"},
    "run explain": {"run_folder": "sre/runs/064b1ebafa1721c1/1", "output": "out"},
    "score run": {"runs": ["graded"]},
    "score import": {"source": "answers", "cases": "tree", "output": "out"},
    "score what-if": {"store": "graded"},
    "score table": {"store": "graded"},
    "score trials": {"store": "sre"},
    "score timeline": {"scenario_name": "unreachable-service", "records": "records.jsonl"},
    "compare": {"before": "graded", "after": "graded"},
    "audit": {
        "path": "scores.csv",
        "output": "out",
        "overrides": ["resamples=100", "permutations=100", "simulations=100"],
    },
    "audit verify": {"printed": "scores.csv", "source": "scores.csv"},
    "leaderboard": {"stores": ["graded"]},
    "view": {"stores": ["graded"]},
    "report": {"store": "graded", "output": "out"},
    "trace proxy": {"upstream": "http://127.0.0.1:1", "directory": "out"},
    "trace proxy token": {"session": "one", "directory": "out"},
    "trace convert": {"path": "trace.json"},
    "trace redact": {"path": "trace.json", "output": "out.json"},
    "trace export rewards": {"store": "graded", "output": "out.json"},
    "trace export atif": {"path": "trace.json", "output": "out.json"},
    "trace export otel": {"store": "graded", "output": "out.json"},
    "trace export inspect": {"store": "graded", "output": "out"},
    "trace blame": {"traces": ["trace.json"]},
    "trace blame view": {"path": "trace.json", "output": "out.html"},
    "trace blame annotate": {"traces": ["trace.json"], "annotator": "me", "output": "out.html"},
    "trace blame agree": {"files": ["ada.json", "ben.json"]},
    "server start": {"state": "out"},
    "server worker": {"database": "sqlite:///nowhere/x.db", "state": "out"},
    "server register": {"name": "mine", "domains": "finops"},
    "server benchmark": {"agent": "mine", "task_set": "bill"},
    "server token renew": {"state": "out"},
    "server verify": {"events": "text.txt", "key": "text.txt"},
}
"""A right call of every command, by the names of its parameters: one of them is replaced by an odd value."""

NUMBERS = [
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "0.5",
    "1e400",
    "1e308",
    "1e-320",
    "9" * 40,
    "-0",
    "0x10",
    "1_0",
    " 1",
    "",
    "١",
    "true",
]
TEXTS = [
    "", " ", ".", "..", "/", "-", "--", "=", "a=b", ":", "a:b", "x" * 5000, "\x1b[31mred", "a\nb", "\udcff",
    "ä" * 300, "../../x", "{}", "{0}", "%s", "null", "[", "&a [*a]", "nan", "1e400", "9" * 5000, "*", "$(x)",
    "text.txt", "folder", "nowhere", "http://", "http://[", "http://x:99999", "scripted:", "scripted:text.txt",
    "sqlite://", "postgresql://", "a.py:B", "command:", ":", ",", "constant", "oracle:*", "local", "kubernetes",
    "shop", "x=1", "limits.seconds=nan", "mask.drop=[[]]", "2026-01-01/2025-01-01",
]  # fmt: skip
PATHS = [
    "nowhere", "folder", "text.txt", "empty.txt", "binary.yaml", "binary.json", "socket", "loop", "dangling", "", ".",
    "..", "x" * 300, "\udcff", "-", "text.txt/x", "nowhere/x/y", "empty.json", "list.yaml", "deep.yaml", "deep.json",
    "null.json", "number.json", "/dev/null", "tree", "graded", "trace.json", "scores.csv", "nan.csv", "x\ny",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("fuzz"))


def make_place(folder: Path) -> Place:
    """Return a folder of right files, for what is wrong beside them, and of odd ones."""
    made = folder / "made"
    made.mkdir()
    fill(made)
    return Place(made, folder / "p")


def fill(made: Path) -> None:
    """Write right files of every kind, and odd ones, to *made*."""
    make_tree(made / "tree", count=1)
    make_public(made / "public" / "one")
    shutil.copytree(GOLDEN / "diagnosis_store", made / "graded")
    shutil.copytree(GOLDEN / "sre_store", made / "sre")
    (made / "folder").mkdir()
    (made / "answers").mkdir()
    (made / "answers" / f"{next((made / 'tree' / 'incidents').iterdir()).name}.json").write_text(
        '{"root_causes": [{"service": "store", "fault_kind": "http_aborted"}]}'
    )
    (made / "loop").symlink_to("loop")
    (made / "dangling").symlink_to("nothing")
    for name in ("ada", "ben"):
        shutil.copy(EXAMPLES / "multi_agent" / "annotations" / f"{name}.json", made)
    shutil.copy(EXAMPLES / "extending" / "scenario.yaml", made / "scenario.yaml")
    shutil.copy(EXAMPLES / "cost" / "export.csv", made)
    shutil.copy(EXAMPLES / "foreign" / "records.jsonl", made)
    step = {"step_id": 1, "agent_id": "0", "agent_name": "A", "input_context": "", "output_content": "x"}
    trace = {"schema_version": 1, "task_id": "t", "task_instruction": "", "system_name": "s", "steps": [step]}
    rows = [f"f,{s},c{c},{m},{(c + i) % 3 > 0:d}" for s in "xyz" for c in range(9) for i, m in enumerate("ab")]
    scores = "family,system,case,method,score\n" + "\n".join(rows) + "\n"
    for name, text in {
        "text.txt": "this is text\n", "empty.txt": "", "empty.json": "{}", "null.json": "null", "number.json": "1e400",
        "list.yaml": "- one\n", "deep.yaml": "[" * 200 + "]" * 200, "deep.json": "[" * 100_000 + "]" * 100_000,
        "script.yaml": "rules: [{reply: x}]\n", "trace.json": json.dumps(trace), "scores.csv": scores,
        "nan.csv": scores.replace(",1\n", ",nan\n"), "fault.yaml": "fault: PodKill\ntarget: {service: cart}\n",
        "campaign.yaml": (EXAMPLES / "campaign.yaml").read_text(),
        "trials.yaml": (EXAMPLES / "trials" / "plan.yaml").read_text(),
        "agent.yaml": "agent: mine\ncommand: ['{python}', main.py]\nfiles: [main.py]\n", "main.py": "",
        "incident.yaml": "prometheus: {url: 'http://127.0.0.1:1'}\nnormal: 2026-03-01T10:00:00Z..2026-03-01T10:30:00Z\n"
        "abnormal: 2026-03-01T10:30:00Z..2026-03-01T11:00:00Z\n",
    }.items():  # fmt: skip
        (made / name).write_text(text)
    (made / "binary.yaml").write_bytes(b"\xff\xfe\x00\x80")
    (made / "binary.json").write_bytes(b"PK\x03\x04\x00\xff")
    assert run(["incident", "curate", str(made / "tree"), "-o", str(made / "suite")]) == 0


def odd_values(param: click.Parameter) -> list[str]:
    of = param.type
    if isinstance(of, click.types.IntParamType | click.types.FloatParamType):
        return NUMBERS
    if isinstance(of, click.Choice):
        first = str(next(iter(of.choices)))
        return ["", " ", first.upper(), first[:-1], f"{first} ", f"{first}x", "\0", "x" * 3000]
    if isinstance(of, click.Path):
        return PATHS
    return TEXTS


def words_of(name: str, given: dict[str, object]) -> list[str]:
    options, arguments = [], []
    for param in load(name).params:
        value = given.get(param.name)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        if isinstance(param, click.Argument):
            arguments += values
        else:
            for one in values:
                options += [f"{param.opts[-1]}={one}"] if param.opts[-1].startswith("--") else [param.opts[-1], one]
    return [*name.split(), *map(str, options), *(["--", *map(str, arguments)] if arguments else [])]


SLOW = {"agent check", "agent list", "audit", "incident export harbor", "run", "system render", "task list"}
"""Commands of which a call takes half a second and more; they are drawn where all are."""


def test_every_command_is_called_rightly():
    assert list(CALLS) == list(COMMANDS)
    for name, words in CALLS.items():
        assert words.keys() <= {param.name for param in load(name).params}, name


@settings(max_examples=40 * TIMES, phases=DRAWN)
@given(st.data())
def test_an_odd_value_is_taken_or_refused_in_one_sentence(place, data):
    check(place, data.draw(st.sampled_from(sorted(set(CALLS) - SLOW)), "command"), data)


@pytest.mark.slow
@settings(max_examples=40 * TIMES, phases=DRAWN)
@given(st.data())
@pytest.mark.parametrize("name", CALLS)
def test_an_odd_value_of_any_option_of_each_command(place, name, data):
    check(place, name, data)


def check(place: Place, name: str, data: st.DataObject) -> None:
    """Call *name* rightly but for one or two odd values: the contract of `fuzzing` is held."""
    given = dict(CALLS[name])
    params = [param for param in load(name).params if not getattr(param, "is_flag", False)]
    for param in (
        data.draw(st.lists(st.sampled_from(params), min_size=1, max_size=2, unique=True), "options") if params else []
    ):
        value = data.draw(st.sampled_from(odd_values(param)), param.name)
        given[param.name] = [value] if param.nargs != 1 else value
    assert place.problems(words_of(name, given))[1] == []
