"""Re-runs of an agent whose requests differ in every run: by times, by ids, and by what it really does otherwise."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from opsassay.analysis.blame.attribute import attribute
from opsassay.analysis.blame.rerun import ProxyRerun, command
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.cli import cli
from opsassay.core.schema.files import parse_yaml
from opsassay.solvers.agents.models.base import Reply, ToolRequest
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.models.server import running_server
from opsassay.solvers.proxy.exchanges import Exchange, read_session
from opsassay.solvers.proxy.matching import Volatile, compare_requests
from opsassay.solvers.proxy.policies import Intervene, Refuse, ReplayAlike, Serve, StepIntervention
from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from opsassay.solvers.proxy.trace import trace_of

AGENT = """
import datetime, json, os, random, string, sys, urllib.request, uuid

def ask(text, history):
    ticket = "".join(random.choices(string.ascii_lowercase, k=5))
    system = f"You are the Buyer. It is {datetime.datetime.now().isoformat()}, request {uuid.uuid4()}."
    user = f"ticket {ticket} {text}" if os.environ.get("TICKETS") else text
    messages = [{"role": "system", "content": system}, *history, {"role": "user", "content": user}]
    body = {"model": "m", "messages": messages, "metadata": {"run": ticket}, "seed": random.randrange(10**9)}
    if not os.environ.get("TICKETS"):
        del body["metadata"], body["seed"]
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    return [*history, {"role": "user", "content": user}, {"role": "assistant", "content": said}]

history = ask(os.environ.get("FIRST", "list all the lamps that are in the shop today please"), [])
history = ask("what does the cheapest of these lamps cost in euros with all taxes", history)
history = ask("multiply that price by three for the whole order of the customer", history)
"""


def team(messages, _):
    text = messages[-1].content
    careful = "Take care" in text
    if "multiply" in "\n".join(m.content for m in messages[-2:]):
        return Reply(text="The total is 36." if careful else "The total is 99.")
    return Reply(text="The cheapest costs 12." if "cost" in text else "A lamp for 12 and one for 30.")


def analyst(messages, tools):
    if tools:
        candidate = {
            "agent": "Buyer",
            "step": 3,
            "reason": "12 times 3 is not 99",
            "oracle": "36",
            "guidance": "Take care.",
        }
        return Reply(
            tool_requests=(ToolRequest(id="1", tool="submit_candidates", arguments={"candidates": [candidate]}),)
        )
    return Reply(
        text=json.dumps({"confirmed": "36" in messages[-1].content.rpartition("re-run")[2], "reason": "it is 36"})
    )


@pytest.fixture
def agent(tmp_path, monkeypatch):
    for name in ("TICKETS", "FIRST"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "agent.py"
    path.write_text(AGENT)
    return path


def recorded(agent, upstream, folder, **environment):
    token = issue_token(folder, "first")
    with running_proxy(ProxySettings(upstream, folder)) as url:
        os.environ.update(environment)
        command([sys.executable, str(agent)])(url, token)
    return read_session(folder / "sessions" / "first")


def blame(agent, exchanges, upstream, **how):
    again = ProxyRerun(command([sys.executable, str(agent)]), exchanges, upstream, **how)
    return attribute(trace_of(exchanges, "x"), "dynamic", model=ScriptedModel(analyst), rerun=again)


def test_times_and_ids_in_every_request_do_not_keep_a_run_from_being_repeated(agent, tmp_path):
    with running_server(team) as upstream:
        exchanges = recorded(agent, upstream, tmp_path)
        assert [exchange.answer().text[-4:] for exchange in exchanges] == [" 30.", " 12.", " 99."]
        blamed = blame(agent, exchanges, upstream)
    assert (blamed.attribution.agent_name, blamed.attribution.step_id, blamed.failed) == ("Buyer", 3, None)
    assert "confirmed by a re-run" in blamed.attribution.reason
    assert len(blamed.notes) == 3
    assert all("messages.0.content" in note and "is now" in note and "(volatile)" in note for note in blamed.notes)
    assert [note.split(", ")[0] for note in blamed.notes] == [f"re-run for step 3: request {n}" for n in (1, 2, 3)]


def test_what_no_shape_gives_away_is_declared_in_the_settings_file(agent, tmp_path, monkeypatch):
    monkeypatch.setenv("TICKETS", "1")
    (tmp_path / "team.py").write_text(
        f"from opsassay.solvers.agents.models.base import Reply\n\n{inspected(team)}\nrespond = team\n"
    )
    (tmp_path / "analyst.py").write_text(
        "import json\nfrom opsassay.solvers.agents.models.base import Reply, ToolRequest\n"
        f"{inspected(analyst)}\nrespond = analyst"
    )
    with running_server(team) as upstream:
        recorded(agent, upstream, tmp_path)
    arguments = ["blame", str(tmp_path / "sessions" / "first"), "--technique", "dynamic", "--json"]
    arguments += ["--model", f"scripted:{tmp_path / 'analyst.py'}", "--upstream", f"scripted:{tmp_path / 'team.py'}"]
    arguments += ["--rerun", f"{sys.executable} {agent}"]
    refused = CliRunner().invoke(cli, arguments)
    (item,) = json.loads(refused.stdout)["items"]
    assert "did not get past the step" in item["reason"]
    assert "seed:" in item["reason"]
    assert "Declare as volatile" in item["reason"]
    settings = tmp_path / "settings.yaml"
    settings.write_text("volatile:\n  fields: [metadata.*, seed]\n  patterns: ['ticket [a-z]{5}']\n")
    done = CliRunner().invoke(cli, [*arguments, "--config", str(settings)])
    (item,) = json.loads(done.stdout)["items"]
    assert (done.exit_code, item["agent"], item["step"]) == (0, "Buyer", 3)
    assert "confirmed by a re-run" in item["reason"]
    assert any("seed: " in note and "(volatile)" in note for note in item["notes"])
    assert "request 1, seed: " in done.stderr


def test_an_agent_that_does_something_else_is_refused_whatever_its_clock_says(agent, tmp_path, monkeypatch):
    with running_server(team) as upstream:
        exchanges = recorded(agent, upstream, tmp_path)
        monkeypatch.setenv("FIRST", "list all the chairs that are in the shop today please and hurry")
        blamed = blame(agent, exchanges, upstream)
    assert "no candidate was confirmed" in blamed.attribution.reason
    assert "is not in the record; nearest is request 1" in blamed.attribution.reason
    assert "chairs" in blamed.attribution.reason


def test_an_outage_of_the_upstream_is_no_rejected_candidate(agent, tmp_path):
    def down(messages, tools):
        return Reply(error_status=503) if "Take care" in messages[-1].content else team(messages, tools)

    with running_server(team) as upstream, running_server(down) as broken:
        exchanges = recorded(agent, upstream, tmp_path)
        blamed = blame(agent, exchanges, broken)
    assert "did not answer: HTTP 503" in blamed.failed
    assert blamed.attribution.step_id is None


def inspected(function):
    import inspect

    return inspect.getsource(function)


def body(*texts, **further):
    messages = [{"role": "system", "content": "You are one of many agents in a long story. " * 40}]
    return json.dumps(
        {"messages": messages + [{"role": "user", "content": text} for text in texts], **further}
    ).encode()


def exchange(number, content):
    answer = json.dumps({"choices": [{"message": {"content": f"answer {number}"}}]}).encode()
    path = "/v1/chat/completions"
    return Exchange(str(number), "POST", path, (), content, None, 200, "OK", (), ((0, answer),), 0, 0, "complete", None)


alike = partial(compare_requests, volatile=Volatile())


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ("at 2026-11-23T07:00:00.123456+00:00 buy", True),
        ("at 2026-11-24 buy", True),
        ("at 2026-11-24 06:59:59,5 buy", True),
        ("at 2026-11-24 06:59:59,5 sell", False),
        ("at 2026-11-24 buy 12", False),
        ("", False),
    ],
)
def test_times_are_taken_out_and_nothing_else(now, same):
    match = alike(body("at 2025-01-02T03:04:05Z buy"), body(now))
    assert (match.similarity == 1, match.similarity < 0.9) == (same, not same)
    assert len(match.differences) == 1


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("the order 12 is paid", "the order 13 is paid"),
        ("version 1.2.3", "version 1.2.4"),
        ("port 5432", "port 5433"),
        ("is a better than b", "is b better than a"),
        ("call deadbeef", "call cafebabe"),
        ("price 1999999999 euros", "price 999999999 euros"),
    ],
)
def test_numbers_and_words_are_no_volatile_shapes_and_a_long_prompt_hides_no_other_question(before, now):
    match = alike(body(before), body(now))
    assert match.similarity < 0.9
    assert "alike)" in match.differences[0]


def test_one_more_message_is_another_request_and_so_is_one_less():
    assert alike(body("one"), body("one", "two")).similarity == 0
    assert alike(body("one", "two"), body("one")).similarity == 0
    assert alike(b"no json", b"no json").similarity == 1
    assert alike(b"no json", b"other").similarity == 0
    assert alike(body("one", model="m"), body("one", model="n")).similarity < 0.9


@pytest.mark.slow
def test_long_texts_are_compared_in_seconds_and_by_their_words():
    long = " ".join(f"w{i}" for i in range(200_000))
    assert alike(body(long), body(long + " 2026-01-01T00:00:00Z")).similarity > 0.99
    assert alike(body(long), body(long.replace("w1", "x1"))).similarity < 0.9


def test_requests_of_agents_that_speak_at_the_same_time_find_their_own_answers():
    words = [f"agent {name} asks for the weather of the town it is in, at 07:00:0{n}" for n, name in enumerate("abc")]
    replay = ReplayAlike([exchange(n, body(text)) for n, text in enumerate(words)], Volatile())
    again = [text.replace("07:00", "08:30") for text in words]
    served = [replay.decide("POST", "/v1/chat/completions", body(text)) for text in (again[2], again[0], again[1])]
    assert [decision.exchange.id for decision in served] == ["2", "0", "1"]
    assert all(len(decision.differences) == 1 for decision in served)
    beyond = replay.decide("POST", "/v1/chat/completions", body(again[0]))
    assert isinstance(beyond, Refuse)
    assert "nothing near it was left" in beyond.message


def test_equal_requests_come_first_and_far_ones_are_not_taken():
    recorded = [exchange(n, body(f"at 07:00:{n:02} the same question")) for n in range(30)]
    replay = ReplayAlike(recorded, Volatile())
    assert replay.decide("POST", "/v1/chat/completions", recorded[20].request_body).exchange.id == "20"
    nearest = replay.decide("POST", "/v1/chat/completions", body("at 09:00:00 the same question"))
    assert nearest.exchange.id == "1"
    assert isinstance(replay.decide("POST", "/v1/messages", body("at 09:00:00 the same question")), Refuse)


def test_the_edited_request_says_how_it_differs_too():
    first, second = body("one at 07:00:00"), body("two at 07:00:01")
    edit = Intervene([exchange(0, first), exchange(1, second)], StepIntervention(step=2, add="careful"))
    path = "/v1/chat/completions"
    assert isinstance(edit.decide("POST", path, first), Serve)
    sent = edit.decide("POST", path, body("two at 09:00:01"))
    assert b"careful" in sent.body
    assert sent.differences == ("request 2, messages.1.content: 'two at 07:00:01' is now 'two at 09:00:01' (volatile)",)


def test_the_settings_that_the_page_shows_are_settings():
    page = (Path(__file__).parents[3] / "docs" / "blame.md").read_text()
    (block,) = (text for text in re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL) if "volatile" in text)
    assert parse_yaml(block, BlameSettings, "blame.md").volatile.field(("metadata", "run_id"))
