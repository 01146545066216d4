"""A scripted model that finds failing services by SQL: `opsassay run incidents -a rca --model scripted:agents/analyst.py`.

It plays the part of an LLM in the two phases of the RCA agent, without a network or a key. It knows one idea: the service
deepest in the calls whose share of failed spans grew. As a diagnoser it is a toy; as a conversation it is the real thing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from opsassay.solvers.agents.models import Message, Reply, ToolRequest

LOOK = """
WITH s AS (SELECT 'normal' AS period, * FROM normal_traces UNION ALL BY NAME
           SELECT 'abnormal' AS period, * FROM abnormal_traces)
SELECT service_name,
       avg(("attr.status_code" = 'Error')::INT) FILTER (period = 'abnormal') AS failing,
       median(duration) FILTER (period = 'abnormal') / greatest(median(duration) FILTER (period = 'normal'), 1) AS slower
FROM s WHERE service_name NOT IN ('loadgenerator', 'load-generator')
GROUP BY service_name ORDER BY failing DESC, slower DESC, service_name LIMIT 10"""

CALLS = """
SELECT DISTINCT c.service_name AS callee, p.service_name AS caller
FROM abnormal_traces c JOIN abnormal_traces p ON c.parent_span_id = p.span_id AND c.trace_id = p.trace_id
WHERE c.service_name <> p.service_name ORDER BY ALL LIMIT 100"""

COUNT = "SELECT count(*) AS failed FROM abnormal_traces WHERE service_name = '{0}' AND \"attr.status_code\" = 'Error'"
BOTH = "SELECT count(*) AS spans FROM abnormal_traces WHERE service_name IN ('{0}', '{1}')"


def respond(messages: Sequence[Message], _tools: object) -> Reply:
    """Return the next move: look, look at the calls, think, stop; or the answer, in the synthesis."""
    if "synthesiser" in messages[0].content:
        return Reply(text=json.dumps(answer(messages[1].content)))
    seen = [message for message in messages if message.role == "tool"]
    moves = [
        ToolRequest(id="1", tool="list_tables"),
        ToolRequest(id="2", tool="query_sql", arguments={"sql": LOOK}),
        ToolRequest(id="3", tool="think", arguments={"thought": "which of them is called by the others?"}),
        ToolRequest(id="4", tool="query_sql", arguments={"sql": CALLS}),
    ]
    if len(seen) < len(moves):
        return Reply(tool_requests=(moves[len(seen)],))
    return Reply(text="The service deepest in the calls that fails is the root cause.")


def answer(investigation: str) -> dict[str, Any]:
    """Return the answer that the rows in the investigation make."""
    rows = [json.loads(line) for line in re.findall(r"^\[\"[^\n]*\]$", investigation, re.MULTILINE)]
    failing = {row[0]: row[1] for row in rows if len(row) == 3 and isinstance(row[1], float) and row[1] > 0}
    callers = [row for row in rows if len(row) == 2 and row != ["callee", "caller"]]
    if not failing:
        return {"root_causes": [], "propagation": []}
    edges = [(callee, caller) for callee, caller in callers if callee in failing and caller in failing]
    caused = {caller for _, caller in edges}
    root = max(sorted(set(failing) - caused) or sorted(failing), key=failing.get)
    return {
        "root_causes": [
            {
                "service": root,
                "fault_kind": "http_response_status_modified",
                "evidence": [{"kind": "trace", "sql": COUNT.format(root), "claim": f"spans of {root} fail"}],
            }
        ],
        "propagation": [
            {"from": a, "to": b, "evidence": [{"kind": "trace", "sql": BOTH.format(a, b), "claim": f"{b} calls {a}"}]}
            for a, b in edges
        ],
    }
