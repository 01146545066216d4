"""An operator's tools for cost, besides those of its substrate: prices, costs, budget, alert, autoscalers, requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.cost import (
    AutoscalerSettings,
    CostAlertRule,
    CostBudget,
    CostCause,
    ReportedCause,
    ResourceRequest,
)
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import COST_CAUSES
from opsassay.testbed.operations import telemetry_queries
from opsassay.testbed.operations.arguments import Name
from opsassay.testbed.operations.costs import CostWatch
from opsassay.testbed.operations.tool_session import Done, OperatorToolSession, Tool


class Costs(Written):
    """Show what everything costs in an hour now, by service, what the same hour cost last week, budget and alert."""


class PriceBookShow(Written):
    """Show the price book and how a replica is charged."""


class AutoscalerShow(Written):
    """Show the autoscalers and what each replica of a service requests."""


class BudgetSet(Written):
    """Set the budget, USD per hour. It may be raised by its flexible part, and by no more."""

    hourly_usd: float = Field(ge=0, le=1e6)


class BudgetDelete(Written):
    """Delete the budget."""


class CostAlertSet(Written):
    """Set how many times the cost of the same hour last week the alert allows."""

    ratio: float = Field(gt=0, le=1e6)


class CostAlertDelete(Written):
    """Delete the cost alert."""


class AutoscalerSet(Written):
    """Change the autoscaler of a service."""

    service: Name
    target_utilization: float = Field(gt=0, le=1)
    min_replicas: int = Field(ge=0, le=12)
    max_replicas: int = Field(ge=1, le=12)


class AutoscalerDelete(Written):
    """Delete the autoscaler of a service; its replicas stay as they are."""

    service: Name


class RequestsSet(Written):
    """Change what each replica of a service requests: cores and MiB of memory."""

    service: Name
    cpu: float = Field(gt=0, le=8)
    memory_mb: int = Field(gt=0, le=65536)


class ReportCostCause(Written):
    """Say which service makes the cost rise, and why. It is graded; a later report takes its place."""

    service: Name
    cause: CostCause


COST_TOOLS: Mapping[str, Tool] = {
    "costs": Tool(Costs),
    "price_book": Tool(PriceBookShow),
    "autoscalers": Tool(AutoscalerShow),
    "budget_set": Tool(BudgetSet, mutating=True),
    "budget_delete": Tool(BudgetDelete, mutating=True),
    "cost_alert_set": Tool(CostAlertSet, mutating=True),
    "cost_alert_delete": Tool(CostAlertDelete, mutating=True),
    "autoscaler_set": Tool(AutoscalerSet, mutating=True),
    "autoscaler_delete": Tool(AutoscalerDelete, mutating=True),
    "requests_set": Tool(RequestsSet, mutating=True),
    "report_cost_cause": Tool(ReportCostCause),
}


class LiveCostToolSession(OperatorToolSession):
    """The tools of the substrate's session *inner*, and the cost tools over *watch*; reported causes go to *run_dir*."""

    def __init__(self, inner: OperatorToolSession, watch: CostWatch, run_dir: Path) -> None:
        super().__init__({**inner.tools, **COST_TOOLS}, inner.record, inner.view)
        self._inner, self._cost_watch, self._run_dir = inner, watch, run_dir
        self.watch, self.kubeconfig = inner.watch, inner.kubeconfig

    def fill(self, value: Any) -> Any:
        """Return *value* with the scenario's placeholders, such as ``{namespace}``, replaced by real names."""
        return self._inner.fill(value)

    def close(self) -> None:
        """Refuse all further calls, and end a wait of the substrate's session that is in progress."""
        super().close()
        self._inner.close()

    def changes(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call of *tool* with *arguments* may change something."""
        return self._inner.changes(tool, arguments)

    def carry_out(self, tool: Tool, arguments: Written) -> Done:
        """Carry out a call of *tool*; return output, status and changed entities; raises OpsAssayError if it fails."""
        if tool not in COST_TOOLS.values():
            return self._inner.carry_out(tool, arguments)
        if isinstance(arguments, Costs | PriceBookShow | AutoscalerShow):
            return Done(telemetry_queries.as_json(self._spending_fields(arguments)))
        if isinstance(arguments, ReportCostCause):
            self._require_service(arguments.service)
            line = ReportedCause(time_ns=time.time_ns(), service=arguments.service, cause=arguments.cause)
            append_line(self._run_dir / COST_CAUSES, line)
            return Done("Taken.")
        touched = self._apply_change(arguments)
        return Done(telemetry_queries.as_json({"done": arguments.model_dump()}), touched)

    def _spending_fields(self, arguments: Written) -> dict[str, Any]:
        """Return the answer to a query: the prices, the autoscalers and requests, or the costs now and the budget."""
        account, system, reading = self._cost_watch.account, self._cost_watch.system, self._cost_watch.latest
        if isinstance(arguments, PriceBookShow):
            rule = "a replica is charged for the larger of what it requests and what it uses"
            return {**account.prices.model_dump(), "rule": rule}
        if isinstance(arguments, AutoscalerShow):
            return {
                "autoscalers": [one.model_dump() for one in system.autoscalers().values()],
                "requests_per_replica": {name: one.model_dump() for name, one in system.requests().items()},
            }
        budget = account.budget
        return {
            "now": None if reading is None else {**reading.model_dump(), "hourly_usd": reading.hourly_usd},
            "budget": None if budget is None else budget.model_dump(),
        }

    def _apply_change(self, arguments: Written) -> tuple[str, ...]:
        """Change budget, alert, autoscaler or requests; return (service,) if one changed, else (); raises UserError."""
        account, system = self._cost_watch.account, self._cost_watch.system
        if isinstance(arguments, BudgetSet):
            if account.budget is None:
                raise UserError("There is no budget that could be set; it was deleted.")
            most = account.budget.most_usd  # the flexible part is used up by what is raised
            account.budget = CostBudget(
                hourly_usd=arguments.hourly_usd, flexible_usd=max(0.0, most - arguments.hourly_usd)
            )
        elif isinstance(arguments, BudgetDelete):
            account.budget = None
        elif isinstance(arguments, CostAlertSet):
            account.alert = CostAlertRule(ratio=arguments.ratio)
        elif isinstance(arguments, CostAlertDelete):
            account.alert = None
        elif isinstance(arguments, AutoscalerSet):
            self._require_service(arguments.service)
            if arguments.max_replicas < arguments.min_replicas:
                raise UserError("max_replicas is below min_replicas; give a range.")
            system.set_autoscaler(AutoscalerSettings.model_validate(arguments.model_dump()))
            return (arguments.service,)
        elif isinstance(arguments, AutoscalerDelete):
            if arguments.service not in (known := system.autoscalers()):
                raise NotFoundError("autoscaler", arguments.service, known)
            system.delete_autoscaler(arguments.service)
            return (arguments.service,)
        elif isinstance(arguments, RequestsSet):
            self._require_service(arguments.service)
            system.set_requests(arguments.service, ResourceRequest(cpu=arguments.cpu, memory_mb=arguments.memory_mb))
            return (arguments.service,)
        return ()

    def _require_service(self, service: str) -> None:
        """Raise NotFoundError unless *service* is one of the system's."""
        if service not in (known := self._cost_watch.system.allocations()):
            raise NotFoundError("service", service, known)
