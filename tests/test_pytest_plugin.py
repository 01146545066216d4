"""The pytest plugin in pytest runs of its own, found as an installed package is: by its entry point."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

from live import state_folder
from opsassay.core.extras import install_hint

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "pytest" / "test_runbook.py"
TINY = ROOT / "tests" / "testbed" / "tiny.yaml"


@pytest.fixture
def pytest_run(tmp_path):
    """Return a function that runs pytest on files in a folder of its own, with the entry points of pyproject.toml."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    info = tmp_path / "site" / "opsassay_points-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: opsassay-points\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()))
    folder = tmp_path / "project"
    folder.mkdir()

    def run(*arguments, **files):
        for name, text in files.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        path = os.pathsep.join([str(tmp_path / "site"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--strict-markers",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:schemathesis",
            *arguments,
        ]
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.slow
def test_a_run_that_does_not_ask_for_it_imports_nothing_but_its_one_file(pytest_run):
    conftest = """
        import sys
        def pytest_unconfigure():
            print("OURS", sorted(name for name in sys.modules if name.startswith("opsassay")))
            print("HEAVY", [n for n in ("pydantic", "numpy", "polars", "duckdb", "scipy", "psutil") if n in sys.modules])
    """
    code, out = pytest_run("-q", conftest=conftest, test_it="def test_it(): pass")
    assert code == 0, out
    assert "OURS ['opsassay', 'opsassay.pytest_plugin']" in out
    assert "HEAVY []" in out
    code, out = pytest_run("--fixtures", "--markers")
    assert "opsassay_system" in pytest_run("--fixtures")[1]
    assert "@pytest.mark.opsassay(system, rate_rps=None" in pytest_run("--markers")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ("", "say which system: @pytest.mark.opsassay(system="),
        ('@pytest.mark.opsassay("kiosc")', "the marker opsassay: There is no system 'kiosc'; did you mean 'kiosk'?"),
        ("@pytest.mark.opsassay()", "the marker opsassay: system_in_test() missing 1 required positional argument"),
        ('@pytest.mark.opsassay("kiosk", rate=3)', "the marker opsassay: system_in_test() got an unexpected keyword"),
    ],
)
def test_a_wrong_marker_is_one_sentence(pytest_run, marker, sentence):
    code, out = pytest_run("-q", test_it=f"import pytest\n{marker}\ndef test_it(opsassay_system): pass\n")
    assert code == 1
    assert sentence in out
    assert "Traceback" not in out
    assert "opsassay/testing.py" not in out


@pytest.mark.slow
def test_what_is_not_installed_is_one_sentence(pytest_run):
    conftest = """
        import sys
        sys.modules["polars"] = None
    """
    test = "import pytest\n@pytest.mark.opsassay('kiosk')\ndef test_it(opsassay_system): pass\n"
    code, out = pytest_run("-q", conftest=conftest, test_it=test)
    assert code == 1
    assert f"opsassay_system needs polars; {install_hint('testbed')}." in out


def test_the_example_of_the_page_is_the_example():
    page = (ROOT / "docs" / "formats.md").read_text()
    assert EXAMPLE.read_text().partition('"""\n\n')[2] in page
    assert sum(bool(line.strip()) for line in EXAMPLE.read_text().splitlines()) <= 10


@pytest.mark.live
@pytest.mark.timeout(200)
def test_the_example_passes_and_leaves_nothing_behind(pytest_run):
    with state_folder():
        code, out = pytest_run("-q", test_runbook=EXAMPLE.read_text())
    assert code == 0, out
    assert "1 passed" in out


@pytest.mark.live
@pytest.mark.timeout(200)
def test_what_went_wrong_on_the_way_fails_though_it_ended_well(pytest_run):
    test = f"""
        import pytest

        @pytest.mark.opsassay(system={str(TINY)!r}, warmup_s=2, cadence_s=0.25)
        def test_it(opsassay_system):
            system = opsassay_system
            system.assert_recovers(10)
            system.assert_kept("D2", at_least=1)
            with pytest.raises(Exception, match="There is no fault"):
                system.fault("PodKil", "front")
            with system.fault("PodFailure", "front"):
                with pytest.raises(AssertionError, match="did not recover within 3 s: .*D2 is 0.00"):
                    system.assert_recovers(3)
            system.assert_recovers(20)
            with pytest.raises(AssertionError, match="D2 is 0.00 .*and was to stay at 1 or above"):
                system.assert_kept("D2", at_least=1)
            system.assert_kept("D4", at_least=1)
            assert system.tools.call("ps", {{}}).status == "ok"
            system.assert_touched_only()
            assert system.tools.call("restart", {{"target": "middle"}}).status == "ok"
            system.assert_touched_only("middle")
            with pytest.raises(AssertionError, match="restart .* touched middle"):
                system.assert_touched_only("front")
            assert [action.tool for action in system.actions] == ["ps", "restart"]
            assert list(system.endpoints) == ["front"]
    """
    with state_folder():
        code, out = pytest_run("-q", test_it=test)
    assert code == 0, out
