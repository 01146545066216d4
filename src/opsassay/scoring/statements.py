"""The reads and filters of a checked statement, found in its parse tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from opsassay.scoring.lineage import Lineage, Node, Query
from opsassay.telemetry.schema import PERIODS
from opsassay.telemetry.sql_worker import tree_nodes

NAME_COLUMNS = frozenset(
    {"service_name", *(f"attr.k8s.{level}.name" for level in ("service", "deployment", "statefulset", "replicaset"))}
    | {"attr.k8s.pod.name", "attr.k8s.container.name"}
)
"""Columns that name a service or a replica of it."""

_IDENTITIES = NAME_COLUMNS | {"span_name", "trace_id", "span_id", "parent_span_id"}
_STRANGE_TABLES = frozenset({"PIVOT", "SHOW_REF", "EXPRESSION_LIST", "TABLE_FUNCTION", "COLUMN_DATA", "DELIM_GET"})
_LIKE = frozenset({"~~", "~~*", "contains", "starts_with", "prefix"})

Matches = Callable[[str], bool]
"""Function: whether a text constant of a statement names the claimed service."""


@dataclass(frozen=True, eq=False)
class Statement:
    """A SELECT as duckdb parsed it; *schema* has the columns of each telemetry table."""

    tree: Node
    schema: Mapping[str, Iterable[str]]

    @cached_property
    def reads(self) -> int:
        """The number of reads of telemetry tables in the statement; a table named twice is read twice."""
        return len(self._own_lineage.tables)

    @cached_property
    def is_constant(self) -> bool:
        """Whether a branch of the result uses neither a telemetry column nor a count of telemetry rows."""
        results = [query.result for query in self._own_lineage.queries if query.is_outermost]
        return any(result.is_known and not result.origins for result in results)

    def restricted(self, matches: Matches) -> frozenset[int]:
        """Return the numbers of the table reads whose name column is filtered to names that fit *matches*.

        The filter is a WHERE, HAVING, QUALIFY, JOIN ... ON or FILTER; under OR every branch must restrict.
        """
        conditions = [c for query in self._own_lineage.queries for c in _list_conditions(query.node)]
        return frozenset[int]().union(*(self._find_restricted_reads(condition, matches) for condition in conditions))

    @cached_property
    def feeding(self) -> frozenset[int]:
        """The numbers of the table reads whose values or rows can change the result."""
        fed = {read for read, _ in self._own_lineage.output.origins}
        for node in tree_nodes(self.tree):
            by_row = node.get("subquery_type") == "ANY" and (node.get("child") or {}).get("class") == "COLUMN_REF"
            if by_row or (node.get("subquery_type") == "EXISTS" and self._own_lineage.is_correlated(node)):
                fed |= self._own_lineage.rows_of(node)
        return frozenset(fed)

    def why_not_bound(self) -> str:
        """Return why this cannot serve as bound evidence, '' when it can.

        It must name its service by ``$service`` alone, compared with a name column of telemetry, so that it can be
        tried on other services; it must read telemetry only; ``$period`` must be compared with the literal next to the
        rows of a period; the query must be the same for both periods; and it must have no CASE, which could hide a
        name.
        """
        outermost = [query for query in self._own_lineage.queries if query.is_outermost]
        names = {node["identifier"] for node in tree_nodes(self.tree) if node.get("class") == "PARAMETER"}
        made_up = any(not q.is_over_telemetry for q in self._own_lineage.queries if q not in outermost or q.relations)
        free = sorted(self._freely_used_columns(outermost))
        whys = {
            "the query must use $service and $period, and no other parameter": names != {"service", "period"},
            "a bound query reads rows of telemetry, none that it makes up": made_up,
            "CASE, if, NATURAL and POSITIONAL joins, COLUMNS, PIVOT and #1 are not allowed": self._may_hide_names,
            f"{free[:1]} may only be compared with its parameter, or with itself in a join": bool(free),
            "$service is compared with a name of telemetry, $period with the literal beside its rows": (
                not self._parameters_compared()
            ),
            "both periods must be asked the same": not _asks_periods_alike(self._own_lineage.queries),
        }
        return next((why for why, holds in whys.items() if holds), "")

    @property
    def _may_hide_names(self) -> bool:
        """Whether the statement reads columns without naming them, or uses a construct that can hide a name."""
        listed = {id(entry) for node in tree_nodes(self.tree) for entry in node.get("select_list") or ()}
        return any(
            _may_hide_names(node) or (node.get("class") == "STAR" and id(node) not in listed)
            for node in tree_nodes(self.tree)
        )

    @cached_property
    def _own_lineage(self) -> Lineage:
        """The origin of each column of the statement, resolved once."""
        return Lineage(self.tree, self.schema)

    def _find_restricted_reads(self, condition: Any, matches: Matches) -> frozenset[int]:
        """Return the numbers of the reads that *condition* restricts to names that fit *matches*."""
        kind = condition.get("type")
        if kind in {"CONJUNCTION_AND", "CONJUNCTION_OR"}:
            each = [self._find_restricted_reads(child, matches) for child in condition["children"]]
            return reduce(frozenset.union if kind.endswith("AND") else frozenset.intersection, each)
        if kind == "COMPARE_EQUAL":
            left, right = condition["left"], condition["right"]
            return self._reads_named(left, [right], matches) | self._reads_named(right, [left], matches)
        if kind == "COMPARE_IN":
            column, *others = condition["children"]
            return self._reads_named(column, others, matches)
        if kind == "FUNCTION" and condition.get("function_name") in _LIKE:
            operands = [argument.get("expression", argument) for argument in condition.get("arguments", ())]
            return self._reads_named(operands[0], operands[1:], matches) if len(operands) == 2 else frozenset()
        return frozenset()

    def _reads_named(self, node: Node, values: Iterable[Node], matches: Matches) -> frozenset[int]:
        """Return the numbers of table reads whose name column is *node*, if all of *values* fit *matches*; or none."""
        given = list(values)
        if not given or not self._is_name(node) or not all(_names_service(other, matches) for other in given):
            return frozenset()
        return frozenset(read for read, _ in self._own_lineage.resolve_column(node).origins)

    def _is_name(self, node: Node) -> bool:
        """Return whether *node* is an unchanged telemetry column with names of services."""
        column = self._own_lineage.resolve_column(node)
        return column.is_plain and column.is_known and bool(column.names) and column.names <= NAME_COLUMNS

    def _is_identity(self, node: Node) -> bool:
        """Return whether *node* is an unchanged telemetry column that identifies a service, pod or the like."""
        column = self._own_lineage.resolve_column(node)
        return column.is_plain and column.is_known and bool(column.names) and column.names <= _IDENTITIES

    def _freely_used_columns(self, outermost: Iterable[Query]) -> set[str]:
        """Return identifying columns used elsewhere than in equalities, GROUP BY, SELECT lists below *outermost*."""
        at_top = {id(query.node) for query in outermost}
        allowed: set[int] = set()
        for node in tree_nodes(self.tree):
            if node.get("type") == "COMPARE_EQUAL":
                sides = (node["left"], node["right"])
                with_parameter = any(side.get("class") == "PARAMETER" for side in sides)
                if with_parameter or all(self._is_identity(side) for side in sides):
                    allowed.update(map(id, sides))
            elif node.get("type") == "SELECT_NODE":
                allowed.update(map(id, node.get("group_expressions") or ()))
                if id(node) not in at_top:
                    allowed.update(map(id, node.get("select_list") or ()))
        free = set()
        for node in tree_nodes(self.tree):
            if node.get("class") != "COLUMN_REF" or id(node) in allowed:
                continue
            column = self._own_lineage.resolve_column(node)
            if not column.is_known or column.is_period or column.names & _IDENTITIES:
                free.add(str(node["column_names"][-1]))
        return free

    def _parameters_compared(self) -> bool:
        """Return whether $service and $period only occur in equalities with a name column or a period's literal."""
        compared = set()
        for node in tree_nodes(self.tree):
            if node.get("type") == "COMPARE_EQUAL":
                for side, other in ((node["left"], node["right"]), (node["right"], node["left"])):
                    if side.get("class") != "PARAMETER" or other.get("class") != "COLUMN_REF":
                        continue
                    is_period = self._own_lineage.resolve_column(other).is_period
                    if self._is_name(other) if side["identifier"] == "service" else is_period:
                        compared.add(id(side))
        return all(id(node) in compared for node in tree_nodes(self.tree) if node.get("class") == "PARAMETER")


def _list_conditions(select: Node) -> Iterator[Any]:
    """Yield the conditions of *select*: WHERE, HAVING, QUALIFY, joins' ON, and aggregates' FILTER."""
    yield from (select.get(name) for name in ("where_clause", "having", "qualify") if select.get(name))
    waiting = [select.get("from_table") or {}]
    while waiting:
        table = waiting.pop()
        if table.get("type") == "JOIN":
            waiting += [table["left"], table["right"]]
            if table.get("condition"):
                yield table["condition"]
    yield from (n["filter"] for n in tree_nodes(select.get("select_list")) if isinstance(n.get("filter"), dict))


def _names_service(node: Node, matches: Matches) -> bool:
    """Return whether *node* is the parameter `$service` or a string that fits *matches*."""
    if node.get("class") == "PARAMETER":
        return bool(node.get("identifier") == "service")
    literal = node.get("literal") or {}
    return literal.get("kind") == "STRING" and matches(str(literal.get("text", "")))


def _may_hide_names(node: Node) -> bool:
    """Return whether *node* can use a name without filtering by it: altered stars, natural joins, CASE, positions."""
    star = node.get("class") == "STAR" and (node.get("expr") or node.get("columns"))
    join = node.get("ref_type") in {"NATURAL", "POSITIONAL"} or node.get("type") in _STRANGE_TABLES
    hiding = node.get("class") in {"CASE", "POSITIONAL_REFERENCE"} or node.get("function_name") in {"if", "error"}
    return bool(star) or join or hiding


def _asks_periods_alike(queries: Iterable[Query]) -> bool:
    """Return whether those *queries* on normal and those on abnormal tables are equal but for the period."""
    asked: dict[str, set[str]] = {period: set() for period in PERIODS}
    for query in queries:
        texts = {(e.get("literal") or {}).get("text") for e in query.node.get("select_list") or ()}
        for period in set(PERIODS) & texts:
            asked[period].add(json.dumps(_without_period(query.node, period), sort_keys=True))
    first, *others = asked.values()
    return bool(first) and all(other == first for other in others)


def _without_period(tree: Any, period: str) -> Any:
    """Return the syntax *tree* without text positions, and with "$period" for *period* in names and strings."""
    if isinstance(tree, dict):
        left_out = {"query_location", "query_location_length"}
        return {key: _without_period(value, period) for key, value in tree.items() if key not in left_out}
    if isinstance(tree, list):
        return [_without_period(value, period) for value in tree]
    if isinstance(tree, str) and (tree == period or tree.startswith(f"{period}_")):
        return "$period" + tree.removeprefix(period)
    return tree
