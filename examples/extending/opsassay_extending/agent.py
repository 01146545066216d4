"""An agent: it blames the first service of the data, and asks no model."""

from collections.abc import Mapping
from typing import Any, ClassVar

from opsassay.solvers.agents.base import Exam
from opsassay.solvers.agents.contract import Answer, read_diagnosis


class FirstService:
    """Answer with the alphabetically first service."""

    name: ClassVar[str] = "first-service"
    source: ClassVar[str] = "an example"

    @property
    def configuration(self) -> Mapping[str, Any]:
        """It has nothing to choose."""
        return {}

    def solve(self, exam: Exam) -> Answer:
        """Return the answer by the contract."""
        first = min(exam.services)
        evidence = [{"kind": "trace", "claim": "it takes part", "sql": "SELECT count(*) FROM abnormal_traces"}]
        claim = {"service": first, "fault_kind": "cpu_stress", "evidence": evidence}
        return read_diagnosis({"root_causes": [claim], "propagation": []}, exam.services)
