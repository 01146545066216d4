"""The part of docker's command line that an operator of a compose project has: what each command stands for."""

from __future__ import annotations

import json

import pytest

from opsassay.core.errors import UserError
from opsassay.testbed.operations.docker import changes_something, parse_docker
from opsassay.testbed.operations.tools import ON_CONTAINERS, TOOLS, VerbToolSession

STANDS_FOR = {
    "ps -a": [("ps", {})],
    "compose ps": [("ps", {})],
    "inspect orders": [("describe", {"target": "orders"})],
    "logs --tail 20 orders-0": [("logs", {"target": "orders-0", "lines": 20})],
    "compose logs orders": [("logs", {"target": "orders", "lines": 50})],
    "container restart -t 3 orders-0 db-0": [("restart", {"target": "orders-0"}), ("restart", {"target": "db-0"})],
    "stop orders": [("stop", {"target": "orders"})],
    "start orders": [("start", {"target": "orders"})],
    "update -m 1g orders": [("config_set", {"target": "orders", "key": "memory_limit_mb", "value": "1024"})],
    "update --memory=536870912 orders": [
        ("config_set", {"target": "orders", "key": "memory_limit_mb", "value": "512"})
    ],
    "update --cpus .5 orders": [("config_set", {"target": "orders", "key": "cpu_limit", "value": "0.5"})],
    "exec -it orders-0 curl -sS -m 2 http://db:8000/x": [
        ("exec_curl", {"source": "orders-0", "url": "http://db:8000/x", "method": "GET", "timeout_s": 2.0})
    ],
    "exec orders-0 curl -X POST http://db:8000/": [
        ("exec_curl", {"source": "orders-0", "url": "http://db:8000/", "method": "POST"})
    ],
}


@pytest.mark.parametrize("command", STANDS_FOR)
def test_a_command_stands_for_calls_of_the_other_tools(command):
    words = command.split()
    calls = parse_docker(words)
    assert [tuple(call) for call in calls] == STANDS_FOR[command]
    for call in calls:
        (TOOLS | ON_CONTAINERS)[call.tool].arguments.model_validate(call.arguments, strict=True)
    changes = {"restart", "stop", "start", "config_set"} & {call.tool for call in calls} or "POST" in words
    assert changes_something(words) == bool(changes)


@pytest.mark.parametrize(
    ("command", "says"),
    {
        "rm -f orders": "There is no `docker rm` here; there are ps, inspect, logs, restart, start, stop, update, exec",
        "compose": "There is no `docker compose` here",
        "restart": "docker restart: Missing argument 'NAMES...'",
        "logs -f orders": "docker logs: No such option '-f'",
        "logs --tail all orders": "docker logs: Invalid value for '-n' / '--tail': 'all' is not a valid integer range",
        "update orders": "docker update: say --cpus or --memory",
        "update -m lots orders": "docker update: lots is no size of memory; write 512m or 1g",
        "exec orders sh -c id": "docker exec: sh is not run here; curl is",
        "exec orders curl -d x http://db/": "curl: No such option '-d'",
    }.items(),
)
def test_what_stands_for_nothing_is_refused_and_changes_nothing(command, says):
    with pytest.raises(UserError) as raised:
        parse_docker(command.split())
    assert str(raised.value).startswith(says)
    assert not changes_something(command.split())


@pytest.mark.parametrize("odd", [None, "ps", [], [1], {"a": 1}, [["ps"]]])
def test_odd_arguments_change_nothing(odd):
    assert not changes_something(odd)


class Containers:
    """Two containers; remembers what is done to them."""

    def __init__(self):
        self.done = []

    def operate(self, verb, arguments):
        if verb == "ps":
            return {"replicas": [{"replica": f"{name}-0", "service": name} for name in ("orders", "db")]}
        self.done.append((verb, arguments))
        return {"restarted": [arguments["target"]]} if verb == "restart" else {}


def test_a_command_is_one_recorded_action_and_an_unknown_container_is_refused_before_anything_is_done():
    running, actions = Containers(), []
    session = VerbToolSession(running, None, actions.append, TOOLS | ON_CONTAINERS)
    session.call("docker", {"args": ["restart", "orders-0", "cache-0"]})
    assert (running.done, actions[-1].status) == ([], "error")
    session.call("docker", {"args": ["restart", "orders-0", "db"]})
    assert [verb for verb, _ in running.done] == ["restart", "restart"]
    assert (actions[-1].mutating, actions[-1].touched) == (True, ("db", "orders-0"))
    session.call("docker", {"args": ["update", "--cpus", "1", "orders-0"]})
    assert running.done[-1][1]["target"] == "orders"
    assert json.dumps(actions[-1].arguments) == '{"args": ["update", "--cpus", "1", "orders-0"]}'
