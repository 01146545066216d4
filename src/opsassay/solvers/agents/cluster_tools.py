"""Two more tools over incidents that come with Kubernetes events and objects: spec changes, and all about one object.

They follow spec change analysis and context contract of ITBench's public SRE agent (sre_tools/README.md of
github.com/itbench-hub/ITBench-SRE-Agent); the importer writes events and objects as rows of logs.
"""

# ruff: noqa: S608 - what agents name is quoted, and the worker that runs it is locked

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.incident import Incident
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.text import plural
from opsassay.solvers.agents.tools import TOOLS, Status, TelemetryToolbox, shown_rows, tool_specs
from opsassay.telemetry.sql import LockedSql

SYSTEM = "itbench-lite"
"""The system of incidents whose logs hold events and objects."""
A_PAGE, MOST_ROWS = 3, 40
_OBJECT = "regexp_extract(message, '^[a-z]+ ([^:]+):', 1)"


class SpecChanges(Written):
    """List how the specs of Kubernetes objects changed over time, those with the most changes first."""

    object: str = Field("", max_length=300, description="Kind/name; empty for all objects")


class ObjectContext(Written):
    """Tell what is known of a Kubernetes object: spec, changes, events, alerts, calls, metrics; then of what it calls."""

    object: str = Field(min_length=1, max_length=300, description="Kind/name, or the name of a service")
    page: int = Field(
        1, ge=1, description=f"1: the object; from 2 on: {A_PAGE} of the services that it depends on a page"
    )


ALL_TOOLS: Mapping[str, type[Written]] = {**TOOLS, "spec_changes": SpecChanges, "object_context": ObjectContext}


class ClusterToolbox(TelemetryToolbox):
    """The tools over the *incident* in *sql*, and two more over its Kubernetes objects."""

    tools = ALL_TOOLS

    def __init__(self, sql: LockedSql, incident: Incident) -> None:
        super().__init__(sql)
        self._incident = incident

    def _run_tool(self, request: Written) -> tuple[str, Status]:
        """Run the tool of the validated *request*; return its text output and "ok" or "error"."""
        if isinstance(request, SpecChanges):
            return self._changes(request.object), "ok"
        if isinstance(request, ObjectContext):
            sections = self._sections_about(request.object) if request.page == 1 else self._dependencies(request)
            return "\n\n".join(f"{title}\n{text}" for title, text in sections), "ok"
        return super()._run_tool(request)

    def _sections_about(self, named: str) -> Iterator[tuple[str, str]]:
        """Yield (title, text) on the object *named* NAME or KIND/NAME: spec, changes, events, alerts, calls, metrics ..."""
        name = named.rpartition("/")[2]
        depended = self._list_dependencies(name)
        alerts = [one for one in self._incident.description.removeprefix("Alerts: ").split(", ") if name in one]
        yield (
            "spec",
            self._query_rows(
                f"SELECT time, message FROM {self._periods('logs')} WHERE message LIKE 'object %' AND {_is_about(named)}"
            ),
        )
        yield "changes", self._changes(named)
        yield "events", self._events(named)
        yield "alerts", "\n".join(alerts) or "(none)"
        yield "calls, by period", self._calls(name)
        yield "metrics that moved most, in deviations of the normal period", self._metrics(name)
        yield f"depends on ({A_PAGE} a page from page 2 on)", ", ".join(depended) or "(nothing that it calls)"

    def _dependencies(self, request: ObjectContext) -> Iterator[tuple[str, str]]:
        """Yield (title, text) on the `A_PAGE` services that the object calls, for page 2 on; UserError after the last."""
        depended = self._list_dependencies(request.object.rpartition("/")[2])
        begin = (request.page - 2) * A_PAGE
        if begin >= len(depended):
            raise UserError(f"{request.object!r} has {plural(1 + -(-len(depended) // A_PAGE), 'page')}")
        for name in depended[begin : begin + A_PAGE]:
            yield f"changes of {name}", self._changes(name)
            yield f"events of {name}", self._events(name)

    def _changes(self, named: str) -> str:
        """Return the spec changes of the object *named* NAME or KIND/NAME as JSON lines; "" takes all objects."""
        return self._query_rows(
            f"SELECT period, time, {_OBJECT} AS object, substr(message, length({_OBJECT}) + 10) AS change "
            f"FROM {self._periods('logs')} WHERE message LIKE 'change %' AND {_is_about(named) if named else 'true'} "
            "ORDER BY count(*) OVER (PARTITION BY object) DESC, object, time"
        )

    def _events(self, named: str) -> str:
        """Return the Kubernetes events of the object *named* NAME or KIND/NAME as JSON lines, by time."""
        name = _quoted(named.rpartition("/")[2])
        return self._query_rows(
            f"SELECT period, time, message FROM {self._periods('logs')} "
            f"WHERE message LIKE 'event %' AND ({_is_about(named)} OR service_name = {name}) ORDER BY time"
        )

    def _calls(self, name: str) -> str:
        """Return calls, error percentage and p99 of each edge at service *name* by period, as JSON lines."""
        return self._query_rows(
            "SELECT caller.service_name AS caller, called.service_name AS callee, period, count(*) AS calls, "
            "round(100 * avg((called.\"attr.status_code\" = 'Error')::INT), 1) AS errors_percent, "
            "round(quantile_cont(called.duration, 0.99) / 1e6, 1) AS p99_ms "
            f"{self._join_calls()} AND {_quoted(name)} IN (caller.service_name, called.service_name) "
            "GROUP BY ALL ORDER BY caller, callee, period DESC"
        )

    def _metrics(self, name: str) -> str:
        """Return the metrics of service *name* as JSON lines, those that changed most (in sigmas) first."""
        means = "avg(value) FILTER (period = 'normal') AS normal, avg(value) FILTER (period = 'abnormal') AS abnormal"
        moved = "abs(abnormal - normal) / nullif(stddev_pop(value) FILTER (period = 'normal'), 0)"
        return self._query_rows(
            f"SELECT metric, {means}, round({moved}, 1) AS deviations FROM {self._periods('metrics')} "
            f"WHERE service_name = {_quoted(name)} GROUP BY metric ORDER BY deviations DESC NULLS LAST, metric"
        )

    def _list_dependencies(self, name: str) -> list[str]:
        """Return the services that service *name* calls directly, then those that these call."""
        asked = f"SELECT DISTINCT caller.service_name, called.service_name {self._join_calls()} ORDER BY ALL"
        pairs = self._sql.query(asked).rows
        direct = [str(callee) for caller, callee in pairs if caller == name]
        further = [str(callee) for caller, callee in pairs if caller in direct]
        return [one for one in dict.fromkeys([*direct, *further]) if one != name]

    def _join_calls(self) -> str:
        """Return the SQL FROM and WHERE that join a span ``called`` to its parent ``caller`` in another service."""
        spans = self._periods("traces")
        return (
            f"FROM {spans} AS called JOIN {spans} AS caller USING (period, trace_id) "
            "WHERE called.parent_span_id = caller.span_id AND caller.service_name <> called.service_name"
        )

    def _periods(self, table: str) -> str:
        """Return an SQL subquery over the normal and the abnormal rows of *table*, with a column ``period``."""
        parts = (f"SELECT '{period}' AS period, * FROM {period}_{table}" for period in ("normal", "abnormal"))
        return f"({' UNION ALL BY NAME '.join(parts)})"

    def _query_rows(self, sql: str) -> str:
        """Return the first `MOST_ROWS` rows of the query *sql* as JSON lines, or "(none)"; raises UserError if it fails."""
        found = self._sql.query(f"{sql} LIMIT {MOST_ROWS}")
        if found.status not in ("ok", "empty"):
            raise UserError(f"{found.status}: {found.message}")
        return shown_rows(found.columns, found.rows, truncated=found.truncated) if found.rows else "(none)"


def toolbox_of(sql: LockedSql, incident: Incident) -> TelemetryToolbox:
    """Return the tools over the tables *sql*; an incident imported from ITBench-Lite has two more on Kubernetes objects."""
    return ClusterToolbox(sql, incident) if incident.system == SYSTEM else TelemetryToolbox(sql)


def further_specs(toolbox: TelemetryToolbox) -> tuple[ToolSpec, ...]:
    """Return the specifications of the tools in *toolbox* beyond the usual ones: () or those on Kubernetes objects."""
    return tool_specs({name: asked for name, asked in toolbox.tools.items() if name not in TOOLS})


def _is_about(named: str) -> str:
    """Return the SQL condition that a log row is about the object *named* NAME or KIND/NAME, ignoring case."""
    name = f"lower({_OBJECT})" if "/" in named else f"lower(split_part({_OBJECT}, '/', 2))"
    return f"{name} = lower({_quoted(named)})"


def _quoted(text: str) -> str:
    """Return *text* as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
