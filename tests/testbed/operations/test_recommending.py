"""An operator who recommends looks and changes nothing; a plan has calls that an operator who acts could make."""

from __future__ import annotations

import pytest

from opsassay.testbed.operations.recommending import RecommendToolSession
from opsassay.testbed.operations.tools import ON_CONTAINERS, TOOLS, VerbToolSession


class Shop:
    """A system that keeps what it is asked for."""

    def __init__(self):
        self.asked = []

    def operate(self, verb, given):
        del given
        self.asked.append(verb)
        return {"replicas": []}


@pytest.fixture
def shop():
    return Shop()


@pytest.fixture
def actions():
    return []


@pytest.fixture
def session(shop, actions):
    return RecommendToolSession(VerbToolSession(shop, None, actions.append, {**TOOLS, **ON_CONTAINERS}))


ACTS = [
    ("restart", {"target": "orders"}, "there is no tool 'restart'"),
    ("config_set", {"target": "orders", "key": "A", "value": "1"}, "there is no tool 'config_set'"),
    ("exec_curl", {"source": "web", "url": "http://orders/", "method": "POST"}, "put it into submit_plan"),
    ("docker", {"args": ["restart", "orders-0"]}, "put it into submit_plan"),
]


@pytest.mark.parametrize(("tool", "arguments", "said"), ACTS)
def test_an_acting_call_is_refused_and_reaches_nothing(session, shop, actions, tool, arguments, said):
    call = session.call(tool, arguments)
    assert call.status == "error"
    assert said in call.output
    assert shop.asked == []
    assert [(action.status, action.mutating) for action in actions] == [("error", False)]


def test_looks_reach_the_system(session, shop):
    assert session.call("ps", {}).status == "ok"
    assert session.call("exec_curl", {"source": "web", "url": "http://orders:8080/"}).status == "ok"
    assert session.call("docker", {"args": ["ps"]}).status == "ok"
    assert shop.asked == ["ps", "exec curl", "ps", "ps"]


def test_it_is_told_every_call_that_an_acting_operator_has(session):
    assert {tool.name for tool in session.specs(changing=False)} == {
        name for name, tool in {**TOOLS, **ON_CONTAINERS}.items() if not tool.mutating
    }
    *_, submit = session.specs()
    calls = submit.parameters["properties"]["steps"]["items"]["anyOf"]
    assert [one["properties"]["tool"]["const"] for one in calls] == [*TOOLS, *ON_CONTAINERS]
    restart = next(one for one in calls if one["properties"]["tool"]["const"] == "restart")
    assert restart["properties"]["arguments"]["required"] == ["target"]
    session.allow_undo()
    *_, submit = session.specs()
    assert submit.parameters["properties"]["steps"]["items"]["anyOf"][-1]["properties"]["tool"] == {
        "const": "undo_last"
    }


WRONG = {
    "unknown tool": (
        {"tool": "restrt", "arguments": {"target": "a"}},
        "step 2: There is no tool 'restrt'; did you mean",
    ),
    "not allowed": ({"tool": "undo_last"}, "step 2: There is no tool 'undo_last'"),
    "missing argument": ({"tool": "restart"}, "step 2: invalid arguments of restart: target"),
    "unknown argument": ({"tool": "ps", "arguments": {"all": True}}, "step 2: invalid arguments of ps: "),
    "wrong type": (
        {"tool": "scale", "arguments": {"service": "a", "replicas": "2"}},
        "step 2: invalid arguments of scale",
    ),
    "too long a wait": ({"tool": "wait", "arguments": {"seconds": 61}}, "step 2: invalid arguments of wait: seconds"),
    "no call": ("restart orders", "invalid arguments of submit_plan: steps"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_plan_is_one_sentence_and_leaves_the_plan_before_it(session, shop, what):
    step, said = WRONG[what]
    good = {"tool": "restart", "arguments": {"target": "orders"}}
    assert session.call("submit_plan", {"steps": [good]}).output == "Taken: a plan of 1 steps."
    call = session.call("submit_plan", {"steps": [good, step]})
    assert call.status == "error"
    assert said in call.output
    assert "\n" not in call.output
    assert [planned.tool for planned in session.plan] == ["restart"]
    assert shop.asked == []


def test_the_last_plan_counts_and_none_comes_after_the_end(session):
    assert session.plan is None
    session.call("submit_plan", {"steps": [{"tool": "restart", "arguments": {"target": "orders"}}]})
    session.call("submit_plan", {"steps": []})
    assert session.plan == ()
    session.close()
    assert session.call("submit_plan", {"steps": [{"tool": "ps"}]}).status == "error"
    assert session.plan == ()
