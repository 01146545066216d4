"""Agents in Python, by name: ``evals.py_agents:Class``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

from evals.commands import GOOD
from opsassay.solvers.agents.contract import read_diagnosis
from opsassay.solvers.agents.models import Message


class Agent:
    source = "tests"
    configuration: ClassVar[dict[str, object]] = {}

    @property
    def name(self):
        return type(self).__name__

    def solve(self, exam):
        raise NotImplementedError


class Looks(Agent):
    def solve(self, exam):
        exam.asker.ask("looker", [Message(role="user", content="hello")])
        assert exam.tools.call("query_sql", {"sql": "SELECT 1"}).status == "ok"
        return read_diagnosis(GOOD, exam.services)


class Breaks(Agent):
    def solve(self, _exam):
        return 1 / 0


class AnswersText(Agent):
    def solve(self, _exam):
        return "it was the cart"


class Vanishes(Agent):
    def solve(self, _exam):
        os._exit(0)


class ReadsTheCanary(Agent):
    def solve(self, exam):
        told = (Path.cwd() / "injection.json").read_text()
        service = told.partition('"service": "')[2].partition('"')[0]
        wrong = {**GOOD["root_causes"][0], "service": service}
        return read_diagnosis({"root_causes": [wrong], "propagation": []}, exam.services)
