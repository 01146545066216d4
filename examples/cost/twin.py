"""A scripted model that plays the FinOps agent on the task category-cost: it makes a mistake, reads the error, mends it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, Reply, ToolRequest

SQL = (
    "SELECT ServiceCategory AS category, sum({cost} * UsdPerUnit) AS cost_usd FROM costs JOIN exchange_rates "
    "ON Currency = BillingCurrency WHERE ServiceCategory IN ('{one}', '{other}') AND ChargePeriodStart >= DATE '{first}' "
    "AND ChargePeriodStart < DATE '{last}' + INTERVAL 1 DAY GROUP BY ALL"
)


def respond(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
    """Return the next step: schema, a statement with a column that is not there, one without, the answer."""
    del tools
    goal = next(message.content for message in messages if message.role == "user")
    asked = re.search(r"categories (\w+) and (\w+) cost from (\S+) to (\S+),", goal)
    if asked is None:
        return Reply(tool_requests=(_call("submit", {"anomalies": []}),))
    one, other, first, last = asked.groups()
    done = [message.content for message in messages if message.role == "tool"]
    if not done:
        return Reply(tool_requests=(_call("get_schema", {"table": "costs"}),))
    if len(done) == 1:
        cost = "CostBilled"
    elif "Error" in done[-1]:
        cost = "BilledCost"
    else:
        rows = [json.loads(line) for line in done[-1].splitlines()[1:-1]]
        return Reply(tool_requests=(_call("submit", {"rows": [{"category": c, "cost_usd": v} for c, v in rows]}),))
    sql = SQL.format(cost=cost, one=one, other=other, first=first, last=last)
    return Reply(tool_requests=(_call("query_sql", {"sql": sql}),))


def _call(tool: str, arguments: dict[str, Any]) -> ToolRequest:
    return ToolRequest(id=f"call_{tool}", tool=tool, arguments=arguments)
