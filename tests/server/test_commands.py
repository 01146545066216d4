"""The commands that ask a platform: agents are registered and run, and tokens renewed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from opsassay.server.client import PlatformError

from .conftest import Running

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


def command(platform, token, *words, server=True):
    """Return what `opsassay server` did with these words."""
    environment = {**os.environ, "OPSASSAY_TOKEN": token} | ({"OPSASSAY_SERVER": platform.url} if server else {})
    called = [sys.executable, "-m", "opsassay", "server", *words]
    return subprocess.run(called, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_an_own_agent_is_registered_run_and_stands_on_the_leaderboard(platform):
    owner = platform.user("has a bundle")
    bundle = ROOT / "examples" / "platform" / "bundle"
    done = command(platform, owner._token, "register", "boxed", "--domain", "finops", "--bundle", str(bundle), "--json")
    assert done.returncode == 0, done.stderr
    (agent,) = json.loads(done.stdout)["items"]
    assert [one["id"] for one in owner.ask("GET", "/api/agents")["items"]] == [agent["id"]]
    done = command(platform, owner._token, "benchmark", "boxed", "bill", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["state"], len(found["items"])) == ("Finished", 3)
    assert {(one["bundle"], one["passed"], one["error"]) for one in found["items"]} == {("Terminated", False, None)}
    assert owner._token not in done.stdout + done.stderr
    assert "boxed" in {row["solver"] for row in owner.ask("GET", "/api/leaderboards/bill")["items"]}
    done = command(platform, owner._token, "register", "far", "--domain", "finops")
    assert re.search(r"http://\S+/api/agents/[0-9a-f]{16}/manifest", done.stdout)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["register", "far", "--domain", "finop"], "no such domain"),
        (["benchmark", "nobody", "bill"], "'nobody'"),
        (["benchmark", "known", "bil"], "did you mean 'bill'"),
        (["token", "renew"], "role admin"),
    ],
)
def test_what_the_platform_refuses_is_one_sentence(platform, words, said):
    owner = platform.user(f"owner {words}".translate({ord(c): "" for c in "[]',"}))
    if "known" in words:
        owner.register("known", ["finops"])
    done = command(platform, owner._token, *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert said in done.stderr


def test_a_token_that_is_none_is_said_with_where_it_stands(platform):
    said = command(platform, "ops_none", "benchmark", "mine", "bill").stderr
    assert said == "Error: The token in OPSASSAY_TOKEN is not known or has ended; the admin can renew it.\n"


def renewed(running, *words):
    """Return the token that the command gives to a user of the folder, without one of its own."""
    done = command(running, "", "token", "renew", "--state", str(running.state), *words, server=False)
    assert done.returncode == 0, done.stderr
    (token,) = re.findall(r"ops_\S+", done.stdout)
    return token


def test_a_lost_token_of_the_admin_is_renewed_on_the_machine_of_the_folder(tmp_path):
    running = Running(tmp_path / "state", "--workers", "0")
    try:
        token = renewed(running)
        with pytest.raises(PlatformError, match="a token that is known"):
            running.client().ask("GET", "/api/users")
        users = running.client(token).ask("GET", "/api/users")["items"]
        assert [(one["name"], one["role"]) for one in users] == [("admin", "admin")]
        running.client(token).ask("POST", "/api/users", {"name": "ada"})
        assert command(running, token, "token", "renew", "ada").returncode == 0
        running.end()
        token = renewed(running)
        assert not (running.state / "postgresql" / "postmaster.pid").exists(), "what was started for it has ended"
        running.start()
        assert len(running.client(token).ask("GET", "/api/users")["items"]) == 2
        done = command(running, "", "token", "renew", "nobody", "--state", str(running.state), server=False)
        assert (done.returncode, done.stderr) == (2, "Error: There is no user 'nobody'.\n")
    finally:
        running.end()
