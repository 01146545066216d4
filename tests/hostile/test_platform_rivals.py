"""Owners of the platform who would take away what others have: ranks, names, attempts, reasons, and what lies on its disk."""

from __future__ import annotations

import json
import urllib.request

import pytest

from opsassay.server.client import PlatformError
from server.conftest import Running, bundle

CLASS = "24 rivals on the platform"
pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
AGENT = """
agent: {name}
command: ["{{python}}", "{{agent}}/a.py", "{{answer}}"]
files: [a.py]
"""
NOTHING = "import json, sys; json.dump({'rows': []}, open(sys.argv[1], 'w'))"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    found = Running(tmp_path_factory.mktemp("rivals") / "state")
    (found.state / "task_sets" / "secret").write_text("of-the-platform-88213-and-nobody-else")
    part = {"tasks": ["category-cost"], "published": False, "held_out": {"secret": "secret", "count": 1}}
    given = {"domain": "finops", "baselines": [], "attempts": 2, "part": part}
    (found.state / "task_sets" / "held.yaml").write_text(json.dumps(given))
    yield found
    found.end()


def uploaded(owner, name, inside):
    files = {"agent.yaml": AGENT.format(name=inside), "a.py": NOTHING}
    return owner.upload(bundle(files), name=name, domains="finops")


def board(running, task_set="bill"):
    return json.loads(urllib.request.urlopen(f"{running.url}/api/boards/{task_set}").read())


def refused(work, *words):
    with pytest.raises(PlatformError) as caught:
        work(*words)
    assert str(caught.value)
    return str(caught.value)


def registered(owner, name, source="gap"):
    form = {"name": name, "kind": "built_in", "domains": ["finops"], "source": source}
    return owner.ask("POST", "/api/agents", form)["id"]


ALIKE = {
    "another case": ("Northwind", "NORTHWIND", "Southwind"),
    "a letter of another script": ("compass", "c\u043empass", "encompass"),
    "figures for letters": ("loophole", "l00ph0le", "loopholes"),
    "two letters for one": ("lantern m", "lantern rn", "lantern n"),
    "spaces": ("grey owl", "grey-owl", "grey owls"),
    "letters of full width": ("plover", "\uff50lover", "plovers"),
}


@pytest.mark.parametrize("how", ALIKE)
def test_a_name_that_looks_like_another_is_taken(running, how):
    first, alike, other = ALIKE[how]
    rival = running.user(f"rival by {how}")
    registered(running.user(f"first of {how}"), first, "chance")
    assert "looks like" in refused(registered, rival, alike, "chance")
    registered(rival, other, "chance")  # the control


@pytest.mark.parametrize(
    "name", ["constant", "Chance", "c0nstant", "constant (baseline of finops)", "allow-all", "no baseline of mine"]
)
def test_a_name_of_a_baseline_is_the_platforms(running, name):
    rival = running.user(f"rival of {name}"[:70].replace("(", "").replace(")", ""))
    assert "baseline" in refused(registered, rival, name, "chance")
    registered(rival, f"apart {len(name)} {name[:3]}", "chance")  # the control
