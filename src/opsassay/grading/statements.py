"""What a parsed statement reads and restricts: decided on duckdb's own tree of it, never on its text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opsassay.telemetry.schema import MODALITIES, PERIODS
from opsassay.telemetry.sql import LockedSql
from opsassay.telemetry.sql_worker import tree_nodes

TABLES = frozenset(f"{period}_{modality}" for period in PERIODS for modality in MODALITIES)
NAME_COLUMNS = frozenset(
    {"service_name", *(f"attr.k8s.{level}.name" for level in ("service", "deployment", "statefulset", "replicaset"))}
    | {"attr.k8s.pod.name", "attr.k8s.container.name"}
)
"""Columns that name a service or a replica of it."""

_IDENTITIES = NAME_COLUMNS | {"span_name", "trace_id", "span_id", "parent_span_id"}
_PIECE, _PIECES = 15_000, 18
"""The tree is handed over in pieces that fit a cell and a reply; a longer one (270,000 characters) is not looked at."""

_IN_PIECES = (
    f"SELECT substr(tree, i * {_PIECE} + 1, {_PIECE}) FROM (SELECT json_serialize_sql($statement) AS tree), "  # noqa: S608
    f"range({_PIECES + 1}) AS pieces(i) WHERE i * {_PIECE} < length(tree) ORDER BY i"
)

Node = dict[str, Any]
Matches = Callable[[str], bool]
"""Whether a constant of a statement names the claimed service."""


def parsed(sql: LockedSql, statement: str) -> Statement | None:
    """Return the tree of one SELECT *statement*, made by the locked worker; None when it is none or too large."""
    answer = sql.query(_IN_PIECES, {"statement": statement})
    if answer.status != "ok" or len(answer.rows) > _PIECES:
        return None
    tree = json.loads("".join(str(row[0]) for row in answer.rows))
    return None if tree.get("error") or len(tree["statements"]) != 1 else Statement(tree["statements"][0]["node"])


@dataclass(frozen=True, eq=False)
class Statement:
    """A SELECT as duckdb parsed it."""

    tree: Node

    @cached_property
    def reads_telemetry(self) -> bool:
        """Whether any part reads a telemetry table; a name that the statement itself defines is none."""
        return _reads(self.tree, self._own_names)

    @cached_property
    def is_constant(self) -> bool:
        """Whether a branch of the result has no column, star, count or subquery, so that no row has a say in it."""
        return any(not any(map(_depends, select.get("select_list", ()))) for select in self._outermost)

    def restricts_to(self, matches: Matches) -> bool:
        """Return whether a part that reads telemetry, and on which the result depends, is filtered to a name column.

        The filter is a WHERE, HAVING, QUALIFY, JOIN ... ON or FILTER; under OR every branch must restrict.
        """
        if self.is_constant:
            return False
        return any(
            _reads(select.get("from_table"), self._own_names)
            and any(_restricts(c, matches) for c in _conditions(select))
            for select in _selects(self.tree)
        )

    def why_not_bound(self) -> str:
        """Return why this cannot serve as bound evidence, '' when it can.

        It must name its service by ``$service`` alone, compared with a name column, so that what holds for the claimed
        service can be tried on others; ``$period`` is compared with a column, and there is no CASE to hide a name in.
        """
        if "service" not in self._parameters or "period" not in self._parameters:
            return "the query must use $service and $period"
        if any(
            node.get("class") == "CASE" or node.get("function_name") in {"if", "error"}
            for node in tree_nodes(self.tree)
        ):
            return "CASE and if are not allowed in a bound query"
        free = _columns_outside(self.tree)
        if free:
            return f"{sorted(free)[0]} may only be compared with $service, or with itself in a join"
        if any(name not in {"service", "period"} for name in self._parameters):
            return "the only parameters are $service and $period"
        return "" if _parameters_compared(self.tree) else "$service and $period may only be compared with a column"

    @cached_property
    def _outermost(self) -> list[Node]:
        """The SELECTs whose rows are the result: one, or the branches of a UNION and its like."""
        found, waiting = [], [self.tree]
        while waiting:
            node = waiting.pop()
            if node.get("type") == "SET_OPERATION_NODE":
                waiting += [part for part in (node.get("left"), node.get("right"), *node.get("children", ())) if part]
            else:
                found.append(node)
        return found

    @cached_property
    def _own_names(self) -> frozenset[str]:
        return frozenset(
            entry["key"].lower()
            for node in tree_nodes(self.tree)
            for entry in (node.get("cte_map") or {}).get("map") or ()
            if "key" in entry
        )

    @cached_property
    def _parameters(self) -> list[str]:
        return [node["identifier"] for node in tree_nodes(self.tree) if node.get("class") == "PARAMETER"]


def _selects(tree: Node) -> Iterator[Node]:
    return (node for node in tree_nodes(tree) if node.get("type") == "SELECT_NODE")


def _reads(tree: Any, own_names: frozenset[str]) -> bool:
    return any(_is_telemetry(node, own_names) for node in tree_nodes(tree))


def _is_telemetry(node: Node, own_names: frozenset[str]) -> bool:
    if node.get("type") == "BASE_TABLE":
        name = str(node.get("table_name", "")).lower()
        return name.removesuffix(".parquet") in TABLES and name not in own_names
    if node.get("type") == "TABLE_FUNCTION":
        return str((node.get("function") or {}).get("function_name", "")).lower() in {"read_parquet", "parquet_scan"}
    return False


def _depends(expression: Any) -> bool:
    """Return whether rows have a say in *expression*."""
    return any(
        node.get("class") in {"COLUMN_REF", "STAR", "SUBQUERY", "WINDOW"} or _counts(node)
        for node in tree_nodes(expression)
    )


def _counts(node: Node) -> bool:
    return node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in {"count_star", "count"}


def _conditions(select: Node) -> Iterator[Any]:
    yield from (select.get(name) for name in ("where_clause", "having", "qualify") if select.get(name))
    yield from (
        n["condition"] for n in tree_nodes(select.get("from_table")) if n.get("type") == "JOIN" and n.get("condition")
    )
    yield from (n["filter"] for n in tree_nodes(select.get("select_list")) if isinstance(n.get("filter"), dict))


def _restricts(condition: Any, matches: Matches) -> bool:
    kind = condition.get("type")
    if kind == "CONJUNCTION_AND":
        return any(_restricts(child, matches) for child in condition["children"])
    if kind == "CONJUNCTION_OR":
        return all(_restricts(child, matches) for child in condition["children"])
    if kind == "COMPARE_EQUAL":
        return _pairs(condition["left"], condition["right"], matches)
    if kind == "COMPARE_IN":
        column, *others = condition["children"]
        return _names_column(column) and bool(others) and all(_names(other, matches) for other in others)
    if kind == "FUNCTION" and condition.get("function_name") in {"~~", "~~*", "contains", "starts_with", "prefix"}:
        operands = [argument.get("expression", argument) for argument in condition.get("arguments", ())]
        return len(operands) == 2 and _names_column(operands[0]) and _names(operands[1], matches)
    return False


def _pairs(left: Node, right: Node, matches: Matches) -> bool:
    return (_names_column(left) and _names(right, matches)) or (_names_column(right) and _names(left, matches))


def _names_column(node: Node) -> bool:
    return node.get("class") == "COLUMN_REF" and str(node["column_names"][-1]).lower() in NAME_COLUMNS


def _names(node: Node, matches: Matches) -> bool:
    if node.get("class") == "PARAMETER":
        return bool(node.get("identifier") == "service")
    literal = node.get("literal") or {}
    return literal.get("kind") == "STRING" and matches(str(literal.get("text", "")))


def _columns_outside(tree: Node) -> set[str]:
    """Return the identifying columns that are used elsewhere than compared with ``$service`` or with each other."""
    allowed: set[int] = set()
    for node in tree_nodes(tree):
        if node.get("type") != "COMPARE_EQUAL":
            continue
        sides = (node["left"], node["right"])
        columns = [side for side in sides if side.get("class") == "COLUMN_REF"]
        with_service = any(side.get("class") == "PARAMETER" and side.get("identifier") == "service" for side in sides)
        if len(columns) == 2 or (with_service and all(_names_column(column) for column in columns)):
            allowed.update(id(column) for column in columns)
    return {
        name
        for node in tree_nodes(tree)
        if node.get("class") == "COLUMN_REF" and id(node) not in allowed
        if (name := str(node["column_names"][-1]).lower()) in _IDENTITIES
    }


def _parameters_compared(tree: Node) -> bool:
    """Return whether every parameter is one side of an equality whose other side is a column."""
    compared = set()
    for node in tree_nodes(tree):
        if node.get("type") == "COMPARE_EQUAL":
            for side, other in ((node["left"], node["right"]), (node["right"], node["left"])):
                if side.get("class") == "PARAMETER" and other.get("class") == "COLUMN_REF":
                    is_name = _names_column(other)
                    if is_name == (side["identifier"] == "service"):
                        compared.add(id(side))
    return all(id(node) in compared for node in tree_nodes(tree) if node.get("class") == "PARAMETER")
