"""A real endpoint over HTTP that misbehaves: what the agent's model makes of it."""

from __future__ import annotations

import contextlib
import json

import psutil
import pytest

from opsassay.core.errors import ConfigError
from opsassay.solvers.agents.models import Message, ModelError, Reply
from opsassay.solvers.agents.models.endpoint import EndpointModel
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.models.server import running_server
from opsassay.solvers.agents.rca import RcaAgent
from solvers.agents.exams import GOOD, calls, exam, is_synthesis, says, steps
from telemetry.packs import make_pack

ASKED = [Message(role="user", content="hello")]


def ask(respond, timeout_s=20.0):
    with running_server(respond) as url:
        return EndpointModel("m", f"{url}/v1", "key", retries=0, timeout_s=timeout_s).complete(ASKED)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_a_status_is_told_and_whether_it_may_pass(status):
    with pytest.raises(ModelError) as failed:
        ask(lambda *_: Reply(error_status=status))
    assert failed.value.status == status
    assert failed.value.passing == (status in {429, 500, 503})


@pytest.mark.parametrize("broken", ["garbage", "half"])
def test_an_answer_that_is_none_is_a_failure_that_may_pass(broken):
    with pytest.raises(ModelError) as failed:
        ask(lambda *_: Reply(broken=broken))
    assert failed.value.passing
    assert "\n" not in str(failed.value)


def test_an_endpoint_that_hangs_is_given_up():
    with pytest.raises(ModelError) as failed:
        ask(lambda *_: Reply(broken="hang"), timeout_s=1.0)
    assert failed.value.passing


def test_an_endpoint_that_is_not_there_is_a_failure_that_may_pass():
    with pytest.raises(ModelError) as failed:
        EndpointModel("m", "http://127.0.0.1:9/v1", "key", retries=0).complete(ASKED)
    assert failed.value.passing


def test_tools_and_their_results_go_through_http_as_they_are(tmp_path):
    pack = make_pack(tmp_path / "p", error_in="cart")
    record = tmp_path / "record"
    record.mkdir()
    moves = iter(
        [Reply(error_status=429), calls("query_sql", sql="SELECT 42 AS answer"), Reply(broken="garbage"), says("done")]
    )

    def respond(messages, _tools):
        return says(json.dumps(GOOD)) if is_synthesis(messages) else next(moves)

    with running_server(respond) as url:
        model = EndpointModel("m", f"{url}/v1", "key", retries=0)
        with exam(pack, record, model) as given:
            assert RcaAgent().solve(given).diagnosis.root_causes[0].service == "cart"
    written = steps(record)
    assert [step.error is not None for step in written] == [True, False, True, False, False]
    assert "[42]" in written[-2].input_context
    assert written[1].usage["output_tokens"] > 0


@pytest.mark.parametrize(
    "reply", [Reply(text="fine"), Reply(error_status=429), Reply(broken="garbage"), Reply(broken="half")]
)
def test_no_connection_is_left_when_a_question_was_answered_or_not(reply):
    with running_server(lambda *_: reply) as url:
        model = EndpointModel("m", f"{url}/v1", "key", retries=0)
        with contextlib.suppress(ModelError):
            model.complete(ASKED)
        port = int(url.rpartition(":")[2])
        held = [c for c in psutil.Process().net_connections() if c.raddr and c.raddr.port == port]
    assert held == []


def test_a_script_may_play_failures_so_often(tmp_path):
    script = tmp_path / "script.yaml"
    script.write_text("rules:\n  - {status: 429, times: 2}\n  - {broken: garbage, times: 1}\n  - reply: fine\n")
    model = ScriptedModel.from_file(script)
    for status in (429, 429, None):
        with pytest.raises(ModelError) as failed:
            model.complete(ASKED)
        assert failed.value.status == status
    assert model.complete(ASKED).text == "fine"


def test_a_script_with_an_unknown_failure_is_refused(tmp_path):
    script = tmp_path / "script.yaml"
    script.write_text("rules:\n  - broken: sideways\n")
    with pytest.raises(ConfigError, match="broken"):
        ScriptedModel.from_file(script)
