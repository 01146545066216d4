"""Extras: what a command needs beyond the base is declared, and its absence is one sentence."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from opsassay import __version__
from opsassay.core.extras import PACKAGES, WHEEL, extra_for, install_hint

ROOT = Path(__file__).parents[2]
STORE = ROOT / "tests" / "evals" / "golden" / "diagnosis_store"
AGENT = ROOT / "examples" / "agents" / "by_mcp" / "agent.yaml"
FAULT = ROOT / "examples" / "cpu-stress.yaml"
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in {missing}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
from opsassay.cli import main
main({arguments!r})
"""


def requirements():
    """Return the distributions of the base (under "") and of every extra, its own alone."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    return {
        extra: {re.split(r"[\[<>=]", one)[0].lower() for one in listed} - {"opsassay"}
        for extra, listed in lists.items()
    }


def imported():
    """Return the packages of others that src imports, by the first file that does."""
    found = {}
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                found.update({n.partition(".")[0]: file for n in names if n})
    return {name: file for name, file in found.items() if name not in {*sys.stdlib_module_names, "opsassay"}}


def run_without(missing, *arguments, **variables):
    program = WITHOUT.format(missing=set(missing), arguments=list(arguments))
    environment = {**os.environ, **variables}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)


def told_to_install(folder, noted):
    """Return the command that a missing package is answered with where pip has *noted* that it installed OpsAssay from."""
    info = folder / f"opsassay-{__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: opsassay\nVersion: {__version__}\n")
    if noted is not None:
        (info / "direct_url.json").write_text(json.dumps(noted))
    path = os.pathsep.join([str(folder), str(ROOT / "src")])
    done = run_without(PACKAGES["apis"], "incident", "serve-apis", str(STORE), PYTHONPATH=path)
    assert done.returncode == 2, done.stderr
    return re.findall(r"`(pip install .*?)`", done.stderr)


@pytest.mark.slow
def test_every_package_that_is_imported_comes_with_the_base_or_with_its_extra():
    needed, of = requirements(), packages_distributions()
    through_the_base = {
        "pydantic_core",
        "multidict",
        "yarl",
        "markupsafe",
        "typing_extensions",
        "anyio",
        "backports",
        "compression",
        "pytest",  # of the plugin, which nothing but pytest imports
    }
    for package, file in imported().items():
        extra = extra_for(package, "")
        brought = {name.lower().replace("_", "-") for name in of.get(package, [package])}
        assert package in through_the_base or brought & needed[extra or ""], f"{file} imports {package}"


def test_time_zones_come_with_the_package_where_the_machine_has_none():
    program = "from zoneinfo import ZoneInfo; ZoneInfo('UTC'); import opsassay.telemetry.importers.openrca"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"PYTHONTZPATH": ""}
    )
    assert done.returncode == 0, done.stderr


def test_every_extra_is_in_all():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"[a-z0-9]+", project["all"][0].partition("[")[2])) >= set(PACKAGES) - {"data"}
    assert set(PACKAGES) < set(project)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("extra", "arguments"),
    [
        ("data", ["agent", "methods"]),
        ("data", ["incident", "annotate", "nowhere"]),
        ("testbed", ["system", "faults"]),
        ("testbed", ["incident", "record", "shop", str(FAULT), "-o", "nowhere"]),
        ("kubernetes", ["system", "up", "shop", "--substrate", "kubernetes"]),
        ("server", ["server", "start", "--state", "nowhere"]),
        ("server", ["server", "worker", "--database", "nowhere", "--state", "nowhere"]),
        ("apis", ["incident", "serve-apis", str(STORE)]),
        ("ciso", ["run", str(ROOT / "examples" / "compliance" / "plan.yaml"), "-o", "nowhere"]),
        ("agents", ["agent", "check", str(AGENT)]),
        ("agents", ["run", str(STORE), "-a", str(AGENT), "-o", "nowhere"]),
        ("agents", ["run", str(STORE), "-a", "rca", "--model", "some-model", "-o", "nowhere"]),
    ],
)
def test_what_is_missing_is_one_sentence(extra, arguments, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9")
    done = run_without(PACKAGES[extra], *arguments)
    assert done.returncode == 2, done.stderr
    assert f"; {install_hint(extra)}.\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("nowhere").exists()


def test_a_system_without_either_is_told_of_both_at_once():
    done = run_without([*PACKAGES["data"], *PACKAGES["testbed"]], "up", "shop")
    assert f"; {install_hint('testbed')}.\n" in done.stderr


@pytest.mark.slow
def test_what_is_missing_is_installed_from_where_opsassay_came(tmp_path):
    wheel, checkout = tmp_path / "a wheel" / WHEEL, tmp_path / "checkout"
    wheel.parent.mkdir()
    wheel.touch()
    checkout.mkdir()
    expected = [
        ({"url": checkout.as_uri(), "dir_info": {"editable": True}}, [f"pip install -e '{checkout}[apis]'"]),
        ({"url": checkout.as_uri(), "dir_info": {}}, [f"pip install '{checkout}[apis]'"]),
        ({"url": wheel.as_uri(), "archive_info": {}}, [f"pip install '{wheel}[apis]'"]),
    ]
    either = ["pip install '.[apis]'", f"pip install '{WHEEL}[apis]'"]
    gone = (tmp_path / "gone").as_uri()
    unknown = [{"url": gone, "dir_info": {}}, {"url": f"https://host/{WHEEL}", "archive_info": {}}, None]
    for number, (noted, commands) in enumerate([*expected, *((noted, either) for noted in unknown)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert told_to_install(folder, noted) == commands, noted


INDEX_FORM = re.compile(
    r"""(?<![\w./-])opsassay\[[a-z{][^]\n]*\](?!\s?@)   # extras without an address: in commands, YAML, defaults
    |\b(?:pip3?|pipx|uv|uvx)\s[^\n`;&]*?(?<![\w./'-])['"]?opsassay['"]?(?=[\s`=<>~]|$)""",
    re.VERBOSE,
)
"""How OpsAssay would be installed from a package index, which has none."""


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install 'opsassay[data]'", True),
        ("run `pip install opsassay`.", True),
        ("\"pip install 'opsassay[{extra}]'\"", True),
        ("    default: opsassay[audit]", True),
        ("install: opsassay[audit]", True),
        ("pip install -q 'opsassay' pytest", True),
        ("uvx opsassay demo", True),
        ("pip install './opsassay[testbed]' pytest", False),
        ("pip install 'opsassay[data] @ https://host/x.whl'", False),
        ("pip install 'dist/opsassay-0.1.0-py3-none-any.whl[data]'", False),
        ("pip install '.[data]'", False),
    ],
)
def test_the_form_of_an_index_is_known_when_it_is_seen(text, wrong):
    assert bool(INDEX_FORM.search(text)) is wrong


def written_below(folder):
    """Yield the files below *folder* without those that are installed there."""
    for at, inside, names in os.walk(folder):
        inside[:] = [name for name in inside if name not in (".venv", "node_modules", "__pycache__")]
        yield from (Path(at) / name for name in names)


def test_nothing_that_is_printed_says_that_an_index_has_opsassay():
    """Messages, docs, the action, images and what tests say; pyproject.toml alone names the extras of its own project."""
    top = [
        path for path in ROOT.iterdir() if path.is_file() and path.name not in ("pyproject.toml", "requirements.lock")
    ]
    folders = ("src", "docs", "examples", "action", "benchmarks", "tests", ".devcontainer", ".ci")
    kinds = {"", ".md", ".py", ".yaml", ".yml", ".json", ".toml", ".sh", ".txt", ".html", ".js"}
    below = [path for name in folders for path in written_below(ROOT / name) if path.suffix in kinds]
    assert len(below) > 500
    found = []
    for path in (*top, *below):
        if path != Path(__file__):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found += [
                f"{path.relative_to(ROOT)}:{n}: {line}" for n, line in enumerate(lines, 1) if INDEX_FORM.search(line)
            ]
    assert found == [], "print install_hint(EXTRA) of opsassay.core.extras, or the forms of docs/index.md"


def test_the_wheel_that_pages_name_is_the_one_that_is_built():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"opsassay-[\w.-]+\.whl", page.read_text())}
    assert named == {WHEEL}
    assert __version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.slow
def test_tasks_of_all_domains_are_listed_where_systems_run():
    others = [name for extra, names in PACKAGES.items() if extra not in ("data", "testbed") for name in names]
    done = run_without(others, "task", "list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Tasks of ciso" in done.stdout


@pytest.mark.parametrize("arguments", [["--help"], ["trace", "proxy", "--help"], ["trace", "convert", "--help"]])
def test_the_base_is_enough_for(arguments):
    done = run_without([name for names in PACKAGES.values() for name in names], *arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_that_no_extra_brings_is_not_explained_away():
    assert (
        "Traceback"
        in run_without(["aiohttp"], "trace", "proxy", "--upstream", "http://127.0.0.1:1", "-o", "nowhere").stderr
    )


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("extra", ["base", "data", "testbed", "agents", "demo"])
def test_a_bare_environment_runs_what_its_extra_is_for_and_is_no_larger_than_it_may_be(extra):
    """By the benchmark that prints the sizes: a real pip in an environment of its own, and a command in it."""
    script = ROOT / "benchmarks" / "packages.py"
    done = subprocess.run([sys.executable, script, extra], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", ["Dockerfile", "src/opsassay/testbed/substrates/kubernetes/manifests/Dockerfile"])
def test_an_image_is_given_every_folder_that_the_wheel_takes_in(path):
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = [line.split()[1:-1] for line in (ROOT / path).read_text().splitlines() if line.startswith("COPY")]
    assert {name.partition("/")[0] for name in wheel["only-include"]} <= {name for names in copied for name in names}
