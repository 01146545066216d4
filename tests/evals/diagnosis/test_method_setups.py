"""Methods with parameters, from files and as commands: what is run, what is refused, and what a bad one leaves behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opsassay.cli import run as command_line
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.diagnosis.setups.methods import method_setup
from opsassay.evals.diagnosis.setups.sweeps import AskedMethod, asked_method, with_changes
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.diagnosis.workers.sources import solver_of
from opsassay.evals.runner.plan import load_plan
from opsassay.evals.runner.store import LOG, RunStore, read_diagnosis, read_run
from opsassay.solvers.methods.base import METHODS, method_named
from opsassay.solvers.methods.matrix import readings
from opsassay.telemetry.datapack import Datapack
from telemetry.packs import make_pack, make_tree

DEFAULTS = {
    "baro": "ef2da72427f29d8390cc9a16196a4ba1602fe086c17e5e429ae0ea90d9ca11fc",
    "cd-1min": "08baf84cc410270d3d772f64e0e45cf39d364f121c3937db032a2958bd5a8782",
    "max-z": "3d180fdad9be7cb1380731eb6a700d417cd2a2eddf981558abbc1a5d4b9f4f65",
    "alert-count": "fb70f6d637328782ee82a67d01943b02eb301e8b3535266c837998b167f673d2",
    "circa": "09f84ba59a9f463ad4c12e1541adf0387aaa591d3d3846b82b4d359deb1f945a",
    "self-time": "e4889039fe93ad47f86eceae1addd85f1770a16c59d661461ceea0bf6f772448",
    "loudest": "667b57040235c358881069c3c129e41c927318535322efe4fc6a4717561d69de",
    "gap": "5c930e6688e1870bc8fa9ae29c126ffd42b762a6d5a822afb4cfb316cfdc570f",
    "constant": "b178d45004d4341960b3088f370700ab6e144da23ec426f756d7e98b0516668a",
    "chance": "1f9e0a19fb92b0d4ca54b519e08585c375b22f9db1f25a0af2d652b35ae60d70",
}
"""What the methods with their defaults were identified by before they took parameters."""

MINE = """
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim

class Mine:
    name, source, cost = "mine", "here", "none"
    def __init__(self, least: int = 1):
        self.least = least
    @property
    def configuration(self):
        return {"least": self.least}
    def diagnose(self, view):
        return Diagnosis(root_causes=(RootCauseClaim(service=view.services()[self.least]),))
"""


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Datapack:
    return make_pack(tmp_path_factory.mktemp("p") / "pack", error_in="store")


@pytest.fixture
def call(capsys):
    def call(*arguments, code=0):
        found = command_line([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return out, err

    return call


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return f"command:{path}"


# Parameters -------------------------------------------------------------------------------------------------------------


def test_methods_with_their_defaults_are_the_solvers_that_they_were() -> None:
    assert {name: solver_of(method_named(name)).digest() for name in METHODS.builtin_names()} == DEFAULTS
    plain, spelled = method_setup("alert-count"), method_setup("alert-count", {"z": 3})
    assert (spelled.solver_hash, spelled.solver.label) == (plain.solver_hash, "alert-count")
    assert "parameters" not in plain.solver.model_dump()


def test_a_parameter_moves_hash_configuration_protocol_and_name(tmp_path: Path, pack: Datapack) -> None:
    setup = method_setup("alert-count", {"z": 2.5})
    assert setup.solver.label == "alert-count:z=2.5"
    assert setup.solver.configuration["flag_at_z"] == 2.5
    assert setup.solver_hash != method_setup("alert-count").solver_hash
    run_dir = run_method(RunStore(tmp_path), pack, setup)
    answer = read_diagnosis(run_dir)
    assert answer is not None
    assert answer.protocol["parameters"] == {"z": 2.5}
    assert read_run(run_dir).solver.parameters == {"z": 2.5}


def test_the_window_of_the_baseline_is_what_is_read(pack: Datapack, tmp_path: Path) -> None:
    part = method_named("baro", {"window": 20}).diagnose(pack)
    assert part.protocol["baseline_window"] == "the last 20 s of the normal period"
    whole, last = readings(pack), readings(pack, window_s=20)
    assert last.normal.tolist() == whole.normal[-4:].tolist()  # of 5 s each
    assert len(readings(pack, window_s=1000).normal) == len(whole.normal)
    run = read_run(run_method(RunStore(tmp_path), pack, method_setup("baro", {"window": 1})))
    assert run.status is RunStatus.FAILED
    assert "shorter than a step" in str(run.error)


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("alert-count", {"zz": 1}, "did you mean 'z'"),
        ("alert-count", {"z": "three"}, "z=three: expected a number, found 'three'"),
        ("alert-count", {"z": True}, "expected a number, found true"),
        ("alert-count", {"z": -1}, "greater than 0"),
        ("max-z", {"window": float("nan")}, "finite"),
        ("cd-1min", {"window_steps": 2.5}, "expected a whole number"),
        ("constant", {"fault_kind": "gremlins"}, "fault_kind=gremlins"),
        ("evals.solvers:Honest", {"z": 1}, "There is no parameter of evals.solvers:Honest 'z'"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(name: str, given: dict[str, object], sentence: str) -> None:
    with pytest.raises((UserError, NotFoundError), match=sentence):
        method_setup(name, given)


# Sweeps -----------------------------------------------------------------------------------------------------------------


def variants(text: str, *changes: str, sweeps: tuple[str, ...] = ()) -> list[dict[str, object]]:
    ((method,), others) = with_changes([asked_method(text)], changes, sweeps)
    assert others == []
    return list(method.each())


def test_values_parted_by_commas_are_all_tried_in_all_combinations(tmp_path: Path) -> None:
    assert variants("baro") == [{}]
    assert variants("baro:window=60,120,claim_at_score=3") == [
        {"window": 60, "claim_at_score": 3}, {"window": 120, "claim_at_score": 3},
    ]  # fmt: skip
    assert variants("a.py:Mine", "Mine.least=1,2") == variants("a.py:Mine:least=1,2") == [{"least": 1}, {"least": 2}]
    crossed = variants("cd-1min", "cd-1min.z=2.5,3", sweeps=("cd-1min.change_percent=[5, 10]",))
    assert [tuple(one.values()) for one in crossed] == [(2.5, 5), (2.5, 10), (3, 5), (3, 10)]
    (tmp_path / "table.yaml").write_text("cd-1min:\n  - {}\n  - {z: 2.5, change_percent: 3}\n  - {z: [1, 2]}\n")
    assert variants("cd-1min", sweeps=(str(tmp_path / "table.yaml"),)) == [
        {}, {"z": 2.5, "change_percent": 3}, {"z": 1}, {"z": 2},
    ]  # fmt: skip


def test_settings_and_parameters_are_told_apart() -> None:
    methods, others = with_changes([AskedMethod("baro")], ["mask.drop=logs", "baro.window=60", "seed=3"], ())
    assert (others, methods[0].values) == (["mask.drop=logs", "seed=3"], {"window": [60]})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-m", "baro", "-c", "alert-count.z=2"], "alert-count is not among the methods that are run (baro); add -m"),
        (["-m", "baro", "-c", "foo.bar=2"], "it is neither a setting nor a method"),
        (["-m", "baro", "--sweep", "none.yaml"], "--sweep none.yaml: No such file"),
        (["-m", "baro:windo=2"], "did you mean 'window'?"),
        (["-m", "none.py:Mine"], "there is no file"),
        (["-m", "command:./none.sh"], "There is no command ./none.sh"),
        (["-m", "command:"], "names no command"),
        (["-m", "command:'"], "cannot be read as a command"),
    ],
)
def test_wrong_use_is_told_before_anything_runs(tmp_path: Path, call, arguments: list[str], sentence: str) -> None:
    tree = make_tree(tmp_path / "t", count=1)
    assert sentence in call("run", "diagnose", tree.root, *arguments, code=2)[1]
    assert not (tree.root / "runs").exists()


@pytest.mark.slow
def test_a_sweep_is_told_apart_in_answers_grades_and_the_audit(tmp_path: Path, call) -> None:
    tree = make_tree(tmp_path / "t", count=2)
    sweep = ("--sweep", "alert-count.z=2.5,3,3.5", "-m", "alert-count", "-m", "loudest")
    names = {"alert-count", "alert-count:z=2.5", "alert-count:z=3.5", "loudest"}
    told = json.loads(call("run", "diagnose", tree.root, *sweep, "--json")[0])["items"]
    assert (len(told), {item["method"] for item in told}) == (8, names)
    graded = json.loads(call("score", "run", tree.root, "--json")[0])
    assert {summary["solver"] for summary in graded["summary"]} == {item["solver"] for item in graded["items"]} == names
    call("run", tree.root, "-a", "alert-count", "-c", "alert-count.z=2.5,3,3.5", "-c", "limits.seconds=60")
    assert len(list(RunStore(tree.root).runs())) == 8  # the same cells
    call("report", tree.root, "-o", tmp_path)
    assert "alert-count:z=2.5" in (tmp_path / "report.html").read_text()


def test_a_plan_sweeps_and_finds_the_files_beside_it(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "t", count=1)
    (tmp_path / "mine.py").write_text(MINE)
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"domain: diagnosis\nincidents: [{tree.root}]\nagents:\n"
        "  - {name: alert-count, parameters: {z: [2.5, 3, 3.5]}}\n  - {name: 'mine.py:Mine', parameters: {least: 2}}\n"
        "  - 'command:./my.sh'\n"
    )
    script(tmp_path / "my.sh", "#!/bin/sh\n")
    named = [job.solver_name for job in load_plan(plan)]
    assert named == ["alert-count:z=2.5", "alert-count", "alert-count:z=3.5", "mine:least=2", "my.sh"]


# Code that is not ours --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_is_a_method_with_its_own_parameters_and_imports(tmp_path: Path, pack: Datapack) -> None:
    (tmp_path / "beside.py").write_text("FIRST = 1\n")
    file = tmp_path / "mine.py"
    file.write_text(MINE.replace("from opsassay", "import beside\nfrom opsassay", 1))
    name = f"{file}:Mine"
    one, two = method_setup(name), method_setup(name, {"least": 2})
    assert [setup.solver.label for setup in (one, two)] == ["mine", "mine:least=2"]
    run_dir = run_method(RunStore(tmp_path / "s"), pack, two)
    answer = read_diagnosis(run_dir)
    assert answer is not None
    assert answer.root_causes[0].service == pack.services()[2]
    (tmp_path / "beside.py").write_text("FIRST = 2\n")  # what it imports is part of what it is
    assert method_setup(name).solver_hash != one.solver_hash
    file.write_text(MINE.replace('{"least": self.least}', "{}"))  # one that does not say what it was given
    assert method_setup(name).solver_hash != method_setup(name, {"least": 2}).solver_hash


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("import os; os._exit(5)", "exit code 5"),
        ("class Other: pass", "has no attribute 'Mine'"),
        ("class Mine: pass", "is no method: it needs name"),
        ("class Mine:\n    def __init__(self): raise ValueError('no')", "cannot be made: ValueError: no"),
        (
            MINE.replace('{"least": self.least}', '{"least": object()}'),
            "TypeError|PydanticSerializationError|serialize",
        ),
    ],
)
def test_code_that_cannot_be_loaded_is_one_sentence_and_ends_no_command(
    tmp_path: Path, code: str, sentence: str
) -> None:
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(UserError, match=sentence):
        method_setup(f"{tmp_path / 'mine.py'}:Mine")


def test_code_that_is_not_ours_is_loaded_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        f"import os\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n{MINE}"
    )
    method_setup(f"{tmp_path / 'mine.py'}:Mine")
    assert int((tmp_path / "pid").read_text()) != os.getpid()


GOOD = '{"root_causes": [{"service": "store"}], "ranking": [{"service": "store", "score": 2}]}'


@pytest.mark.parametrize(
    "text", [f"#!/bin/sh\necho '{GOOD}'", f"#!/bin/sh\necho noise\necho '{GOOD}' > diagnosis.json"]
)
def test_a_command_gets_the_folder_and_answers_on_standard_output_or_in_a_file(
    tmp_path: Path, pack: Datapack, text: str
) -> None:
    name = script(tmp_path / "my.sh", f"{text}\nls $1 >&2\npwd >&2\nenv >&2")
    run_dir = run_method(RunStore(tmp_path / "s"), pack, name)
    answer, run = read_diagnosis(run_dir), read_run(run_dir)
    assert answer is not None
    assert (answer.root_causes[0].service, run.solver.name) == ("store", "my.sh")
    said = (run_dir / LOG).read_text()
    assert "abnormal_traces.parquet" in said
    assert str(pack.path) not in said
    assert "truth" not in said


def test_another_word_or_an_edited_script_is_another_solver(tmp_path: Path) -> None:
    name = script(tmp_path / "my.sh", "#!/bin/sh\n")
    first, other = method_setup(name), method_setup(f"{name} --fast")
    assert (first.solver.name, other.solver.name) == ("my.sh", "my.sh --fast")
    assert first.solver_hash != other.solver_hash
    script(tmp_path / "my.sh", "#!/bin/sh\n# edited\n")
    assert method_setup(name).solver_hash != first.solver_hash


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        ("#!/bin/sh\nexit 3", "failed", "the command ended with 3"),
        ("#!/bin/sh\nkill -9 $$", "failed", "the command was killed by signal 9"),
        ("#!/no/such/interpreter\n", "failed", "the command cannot be started: No such file or directory"),
        ("#!/bin/sh\n", "failed", "no JSON"),
        ("#!/bin/sh\necho cart", "failed", "no JSON"),
        ("#!/bin/sh\necho '[]'", "failed", "the answer is no object"),
        ("#!/bin/sh\necho '{}'", "failed", "no root_causes"),
        ("""#!/bin/sh\necho '{"root_cause": "cart"}'""", "failed", "no meaning for root_cause"),
        (
            """#!/bin/sh\necho '{"root_causes": [{"name": "cart"}]}'""",
            "failed",
            "root_causes.0.service: this key is required",
        ),
        ("""#!/bin/sh\necho '{"root_causes": [], "ranking": [{"service": "a", "score": NaN}]}'""", "failed", "NaN"),
        ("#!/bin/sh\nln -s /etc/hostname diagnosis.json", "failed", "without an answer"),
        ("#!/bin/sh\nsleep 600", "timeout", "no answer after 1 s"),
    ],
)
def test_a_bad_command_is_a_failed_run_with_its_reason(
    tmp_path: Path, pack: Datapack, text: str, status: str, error: str
) -> None:
    run_dir = run_method(RunStore(tmp_path / "s"), pack, script(tmp_path / "my.sh", text), timeout_s=1)
    run = read_run(run_dir)
    assert run.status.value == status
    assert error in str(run.error)
    assert read_diagnosis(run_dir) is None


def test_a_file_that_may_not_be_executed_says_how_it_may(tmp_path: Path) -> None:
    (tmp_path / "my.sh").write_text("#!/bin/sh\n")
    if os.access(tmp_path / "my.sh", os.X_OK):
        pytest.skip("everything may be executed here")
    with pytest.raises(UserError, match="chmod"):
        method_setup(f"command:{tmp_path / 'my.sh'}")
