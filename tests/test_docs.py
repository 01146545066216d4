"""README, docs and examples hold what they promise: they are run, and nothing that can be set is left out."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest
import yaml

from live import run_opsassay, state_folder
from opsassay.cli import COMMANDS
from opsassay.cli.groups import load
from opsassay.cli.tree import children
from opsassay.core.schema.files import load_yaml, parse_yaml
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.system import ACTIONS, Step, System
from opsassay.evals.remediation.authoring.checks import findings
from opsassay.evals.remediation.plan import TrialPlan, load_trial_plan
from opsassay.testbed.campaign import load_plan
from opsassay.testbed.injection.preconditions import require
from opsassay.testbed.operations.tools import operator_tools
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
ORDER = (
    "new",
    "new schema",
    "system up",
    "system logs",
    "system faults",
    "system inject",
    "incident record",
    "system down",
    "incident campaign",
    "incident annotate",
    "incident curate",
    "incident audit-labels",
    "agent methods",
    "run diagnose",
    "agent list",
    "agent check",
    "incident serve-apis",
    "run",
    "score run",
    "score table",
    "leaderboard",
    "score what-if",
    "report",
    "view",
    "audit",
    "compare",
    "incident export",
    "trace export",
    "incident fetch",
    "incident import",
    "system status",
    "system check",
    "system attach",
    "system render",
    "demo",
    "server start",
    "server worker",
    "server register",
    "server benchmark",
    "server token renew",
    "server verify",
    "trace proxy",
    "trace convert",
    "trace redact",
    "trace blame",
    "score import",
    "task scenarios",
    "task show",
    "task generate",
    "task check",
    "task list",
    "run trials",
    "score trials",
    "score timeline",
    "task calibrate",
    "task discover",
)
"""The sections of the command pages, in an order in which each finds what it needs."""


def blocks(page, language):
    return blocks_in(page.read_text(), language)


def blocks_in(text, language):
    return [textwrap.dedent(b) for b in re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)]


def commands_in(text):
    return [
        line[2:].strip()
        for block in blocks_in(text, "console")
        for line in block.splitlines()
        if line.startswith("$ opsassay")
    ]


def sections():
    """Return the parts of the command pages by the words after `opsassay` in their headings."""
    found = {}
    for page in sorted((ROOT / "docs" / "commands").glob("*.md")):
        parts = re.split(r"^#{1,2} opsassay (.+)$", page.read_text(), flags=re.MULTILINE)
        assert not parts[0], f"{page.name} begins with another heading"
        assert parts[1] == page.stem
        found |= dict(zip(parts[1::2], parts[2::2], strict=True))
    return found


SECTIONS = sections()


def section_of(name):
    """Return the heading under which the command *name* is documented: its own, or one that it goes on from."""
    words = name.split()
    return next(one for n in range(len(words), 0, -1) if (one := " ".join(words[:n])) in SECTIONS)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_command_and_option_is_documented_and_nothing_else(section):
    parts = [load(name) for name in COMMANDS if section_of(name) == section]
    each = [{o for p in part.params if isinstance(p, click.Option) for o in p.opts} for part in parts]
    options = set().union(*each)
    documented = set(re.findall(r"`(--?[a-z][a-z-]*)", SECTIONS[section].split("```")[-1]))
    assert options <= documented, f"not documented: {options - documented}"
    assert {o for o in documented if o.startswith("--")} <= options, (
        f"documented, but not there: {documented - options}"
    )
    assert all(len({o for o in own if o.startswith("--")}) <= 10 for own in each), "at most ten options a command"
    assert all(part.help for part in parts)


def test_there_is_a_page_for_every_group_and_command_of_the_first_level():
    assert {page.stem for page in (ROOT / "docs" / "commands").glob("*.md")} == set(children(""))


def test_every_action_and_modifier_of_a_system_is_documented():
    page = (ROOT / "docs" / "systems.md").read_text()
    assert [name for name in (*ACTIONS, *Step.model_fields) if f"`{name}`" not in page] == []


def test_every_environment_variable_is_documented():
    used = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in re.findall(r"environ(?:\.get\(|\[)\"((?:OPSASSAY|XDG)_[A-Z_]+)\"", path.read_text())
    }
    text = "".join(page.read_text() for page in PAGES)
    assert used
    assert [name for name in used if name not in text] == []


def test_the_site_names_every_page():
    site = (ROOT / "mkdocs.yml").read_text()
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page.name not in site] == []


def test_the_index_for_language_models_has_a_sentence_for_every_page():
    hooks = runpy.run_path(str(ROOT / "docs" / "site_links.py"))
    site = (ROOT / "mkdocs.yml").read_text()
    nav = yaml.safe_load(site[site.index("\nnav:") :])["nav"]
    lines = [line for line in hooks["llms_text"]("OpsAssay", ROOT / "docs", nav).splitlines() if line.startswith("- ")]
    assert len(lines) == len(list((ROOT / "docs").glob("*.md")))
    assert [line for line in lines if len(line.partition("): ")[2]) < 20] == []


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def slugs_of(page):
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    words = [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", word).strip().replace(" ", "-") for word in words}


def test_links_into_pages_lead_to_a_heading():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text()):
            where = page.parent / target if target else page
            if not target.startswith("http") and where.suffix == ".md":
                assert anchor in slugs_of(where), f"{page.name}: {target}#{anchor}"


def scenarios_in(page):
    return [parse_yaml(text, Scenario, page.name) for text in blocks(page, "yaml") if "\nverification:" in text]


def test_the_scenarios_in_the_docs_can_be_performed(tmp_path, monkeypatch):
    own = next(text for text in blocks(ROOT / "docs" / "own-system.md", "yaml") if "program:" in text)
    (tmp_path / "system.yaml").write_text(own)  # what the scenario of that page happens on
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    found = [scenario for page in PAGES for scenario in scenarios_in(page)]
    assert [scenario.id for scenario in found] == ["orders-hang", "proxy-wrong-port"]
    for one in found:
        tools = operator_tools(system := system_of(one))
        verbs = {tool.verb or name.replace("_", " "): tool.arguments for name, tool in tools.items()}
        assert findings(one, system, verbs) == []


def test_the_plan_in_the_docs_is_the_example():
    (plan,) = blocks_in(SECTIONS["run trials"], "yaml")
    assert parse_yaml(plan, TrialPlan, "trials.md") == load_trial_plan(ROOT / "examples" / "trials" / "plan.yaml")[0]


def test_yaml_in_the_docs_and_all_examples_are_valid():
    (system,) = blocks(ROOT / "docs" / "systems.md", "yaml")
    assert parse_yaml(system, System, "systems.md").system == "corner"
    examples = sorted(set((ROOT / "examples").glob("*.yaml")) - {ROOT / "examples" / "campaign.yaml"})
    assert len(load_plan(ROOT / "examples" / "campaign.yaml")) == 3
    assert len(examples) >= 7
    shop = load_yaml(ROOT / "src" / "opsassay" / "testbed" / "apps" / "shop.yaml", System)
    for path in examples:
        plan = load_yaml(path, FaultPlan)
        require(shop, plan, REPERTOIRES["plain"].refusal, source=path)


@pytest.mark.live
@pytest.mark.alone
@pytest.mark.timeout(400)
def test_the_readme_is_run_word_for_word(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns(".venv", "node_modules"))
    with state_folder():
        for line in commands_in((ROOT / "README.md").read_text()):
            done = run_opsassay(*shlex.split(line)[1:], cwd=tmp_path)
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    (script,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "p99_ms" in done.stdout
    assert (tmp_path / "incidents" / "report.html").stat().st_size > 100_000


def test_every_section_has_its_turn_and_an_example():
    empty = {name for name, text in SECTIONS.items() if not commands_in(text)}
    assert sorted(ORDER) == sorted(set(SECTIONS) - empty)
    assert {name for name in empty if not any(one.startswith(f"{name} ") for one in SECTIONS)} == set()


@pytest.mark.long
@pytest.mark.live
@pytest.mark.timeout(500)
def test_the_command_pages_are_run_word_for_word(tmp_path):
    for example in (ROOT / "examples").glob("*.yaml"):
        shutil.copy(example, tmp_path)
    shutil.copytree(ROOT / "examples" / "multi_agent", tmp_path / "multi_agent")
    shutil.copytree(ROOT / "examples" / "trials", tmp_path / "trials")
    shutil.copytree(ROOT / "examples" / "foreign", tmp_path / "foreign")
    shutil.copytree(ROOT / "examples" / "compliance", tmp_path / "compliance")
    shutil.copytree(ROOT / "examples" / "agents", tmp_path / "agents")
    shutil.copytree(ROOT / "examples" / "extending", tmp_path / "extending")
    with state_folder():
        for name in ORDER:
            for line in commands_in(SECTIONS[name]):
                done = run_opsassay(*shlex.split(line)[1:], cwd=tmp_path)
                gate = name == "compare" and "too few" in done.stdout  # this test has one incident
                assert done.returncode == int(gate), f"{line}\n{done.stdout}\n{done.stderr}"
    assert list((tmp_path / "imported" / "incidents").iterdir())
    assert (tmp_path / "demo" / "report.html").exists()
