"""Column lineage of a checked statement: each reference is resolved, by the scopes of SQL, to telemetry columns or not.

The tree is duckdb's (`telemetry.sql_worker.check_statement`). A construct that is not supported resolves to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from opsassay.telemetry.schema import PERIODS
from opsassay.telemetry.sql_worker import MAIN, reads, tree_nodes

Node = Mapping[str, Any]
Origin = tuple[int, str]
"""(number of the read of a telemetry table in the statement, column name)."""

ANY = "*"
"""In place of a column name: the number of rows."""


@dataclass(frozen=True)
class Column:
    """The origin of a column's values: *origins*; *is_plain* if each value is one of theirs, unchanged.

    *is_period* is set for a literal 'normal' or 'abnormal' in a SELECT from tables of that period only. *is_known* False:
    the column could not be resolved.
    """

    origins: frozenset[Origin] = frozenset()
    is_plain: bool = False
    is_period: bool = False
    is_known: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The names of the telemetry columns that the values are computed from."""
        return frozenset(name for _, name in self.origins)


_LITERAL, _UNKNOWN = Column(), Column(is_known=False)


def _merge_columns(first: Column, second: Column) -> Column:
    """Return the column that takes its values from both *first* and *second*, as in a UNION."""
    return Column(
        first.origins | second.origins,
        first.is_plain and second.is_plain,
        first.is_period and second.is_period,
        first.is_known and second.is_known,
    )


@dataclass(frozen=True)
class _Relation:
    """A table of a FROM clause: its *alias*, its columns in order, the numbers of the reads that its rows come from."""

    alias: str
    columns: tuple[tuple[str, Column], ...]
    rows: frozenset[int] = frozenset()
    is_telemetry: bool = True
    """Whether all of its rows are made of telemetry rows."""

    def find_columns(self, name: str) -> list[Column]:
        """Return the columns called *name*, more than one when names repeat."""
        return [column for own, column in self.columns if own == name]


_NO_TABLE = _Relation("", (), is_telemetry=False)


@dataclass
class _Scope:
    relations: list[_Relation]
    outer: _Scope | None = None
    aliases: dict[str, Node] = field(default_factory=dict)

    def find(self, path: Sequence[str]) -> Column | None:
        """Return the column that the dotted name *path* refers to in this scope, None when there is none."""
        relations = self.relations
        if len(path) > 1:
            qualifier = path[-2] if path[0] == MAIN and len(path) > 2 else path[0]
            chosen = [relation for relation in relations if relation.alias == qualifier]
            found = [column for relation in chosen for column in relation.find_columns(path[-1])]
            if not found and chosen:
                return _UNKNOWN
            return reduce(_merge_columns, found) if found else None
        found = [column for relation in relations for column in relation.find_columns(path[0])]
        if found:
            return reduce(_merge_columns, found)
        whole = [column for relation in relations if relation.alias == path[0] for _, column in relation.columns]
        return _combine_columns(whole) if whole else None


@dataclass(frozen=True)
class Query:
    """One SELECT of a statement: the relations of its FROM clause, the origin of its result, whether it is outermost."""

    node: Node
    relations: tuple[_Relation, ...]
    result: Column
    is_outermost: bool

    @property
    def is_over_telemetry(self) -> bool:
        """Whether every relation in the FROM clause has rows of telemetry only."""
        return bool(self.relations) and all(relation.is_telemetry for relation in self.relations)


class Lineage:
    """The resolved references of a statement's *tree*; *schema* has the columns of each telemetry table."""

    def __init__(self, tree: Node, schema: Mapping[str, Iterable[str]]) -> None:
        self._schema = {table: tuple(columns) for table, columns in schema.items()}
        self._reads = {id(node): number for number, node in enumerate(reads(tree))}
        self.tables = tuple(str(node["table_name"]) for node in reads(tree))
        self._columns: dict[int, Column] = {}
        self._rows: dict[int, frozenset[int]] = {}
        self.queries: list[Query] = []
        columns, _ = self._resolve_query(tree["statements"][0]["node"], {}, None, outermost=True)
        self.output = _combine_columns(column for _, column in columns)
        """The sources of all columns of the result together."""

    def resolve_column(self, reference: Node) -> Column:
        """Return the origin of *reference*, a column reference node of the syntax tree."""
        return self._columns.get(id(reference), _UNKNOWN)

    def rows_of(self, subquery: Node) -> frozenset[int]:
        """Return the numbers of the table reads from which *subquery*, a subquery node, takes its rows."""
        return self._rows.get(id(subquery), frozenset())

    def is_correlated(self, subquery: Node) -> bool:
        """Return whether *subquery*, a subquery node, refers to columns of an enclosing query."""
        inside = {self._reads[id(node)] for node in tree_nodes(subquery) if id(node) in self._reads}
        origins = (self.resolve_column(n).origins for n in tree_nodes(subquery) if n.get("class") == "COLUMN_REF")
        return any(read not in inside | self.rows_of(subquery) for each in origins for read, _ in each)

    def _resolve_query(
        self, node: Node, ctes: Mapping[str, _Relation], outer: _Scope | None, *, outermost: bool = False
    ) -> tuple[list[tuple[str, Column]], frozenset[int]]:
        """Resolve a query in scope *outer*; return (name, column) pairs and the numbers of the reads of its rows."""
        ctes = self._resolve_ctes(node, ctes, outer)
        kind = node.get("type")
        if kind == "SELECT_NODE":
            return self._resolve_select(node, ctes, outer, outermost=outermost)
        parts = [part for part in (node.get("left"), node.get("right"), *node.get("children", ())) if part]
        if kind == "RECURSIVE_CTE_NODE":
            ctes = {**ctes, str(node.get("cte_name", "")).lower(): _NO_TABLE}
        done = [self._resolve_query(part, ctes, outer, outermost=outermost) for part in parts]
        scope = _Scope([], outer)
        self._resolve_references(node.get("modifiers"), scope, ctes)
        rows = frozenset[int]().union(*(rows for _, rows in done))
        if kind == "SET_OPERATION_NODE" and node.get("setop_type") == "UNION_BY_NAME":
            named = [dict(columns) for columns, _ in done]
            names = dict.fromkeys(name for columns in named for name in columns)
            return [(name, reduce(_merge_columns, (of.get(name, _LITERAL) for of in named))) for name in names], rows
        if kind != "SET_OPERATION_NODE" or len({len(columns) for columns, _ in done}) > 1:
            return [(name, _as_derived_column(column)) for columns, _ in done for name, column in columns], rows
        cells = zip(*(columns for columns, _ in done), strict=True)
        return [(cell[0][0], reduce(_merge_columns, (column for _, column in cell))) for cell in cells], rows

    def _resolve_ctes(self, node: Node, ctes: Mapping[str, _Relation], outer: _Scope | None) -> Mapping[str, _Relation]:
        """Return *ctes* with those of the WITH clause of *node*, each resolved with those before it and *outer*."""
        known = dict(ctes)
        for entry in (node.get("cte_map") or {}).get("map") or ():
            value = entry["value"]
            made = self._resolve_subquery(
                value.get("query_node") or {}, known, outer, entry["key"], value.get("aliases") or ()
            )
            known[entry["key"].lower()] = made
        return known

    def _resolve_subquery(
        self, query: Node, ctes: Mapping[str, _Relation], outer: _Scope | None, alias: str, names: Sequence[str]
    ) -> _Relation:
        """Resolve *query* and return it as a relation called *alias* whose columns are renamed to *names*."""
        before = len(self.queries)
        columns, rows = self._resolve_query(query, ctes, outer)
        own = self.queries[before:]
        is_telemetry = bool(own) and all(query.is_over_telemetry for query in own)
        return _Relation(alias.lower(), _rename_columns(columns, names), rows, is_telemetry)

    def _resolve_select(
        self, node: Node, ctes: Mapping[str, _Relation], outer: _Scope | None, *, outermost: bool
    ) -> tuple[list[tuple[str, Column]], frozenset[int]]:
        """Resolve a SELECT and append it to `queries`; return its (name, column) pairs and its reads' numbers."""
        relations = self._resolve_from(node.get("from_table") or {}, ctes, outer, [])
        scope = _Scope(relations, outer)
        chosen = node.get("select_list") or ()
        scope.aliases = {str(e["alias"]).lower(): e for e in chosen if e.get("alias")}
        for part in ("select_list", "where_clause", "group_expressions", "having", "qualify", "modifiers"):
            self._resolve_references(node.get(part), scope, ctes)
        rows = frozenset[int]().union(*(relation.rows for relation in relations))
        columns: list[tuple[str, Column]] = []
        for expression in chosen:
            columns += self._columns_of_select_entry(expression, relations, rows)
        self.queries.append(Query(node, tuple(relations), _combine_columns(column for _, column in columns), outermost))
        return columns, rows

    def _resolve_from(
        self, table: Node, ctes: Mapping[str, _Relation], outer: _Scope | None, left: list[_Relation]
    ) -> list[_Relation]:
        """Return the relations of the FROM clause *table*; those on its *left* may occur in a lateral subquery."""
        kind, alias = table.get("type"), str(table.get("alias") or "").lower()
        names = table.get("column_name_alias") or ()
        if kind == "JOIN":
            first = self._resolve_from(table["left"], ctes, outer, left)
            second = self._resolve_from(table["right"], ctes, outer, [*left, *first])
            self._resolve_references(table.get("condition"), _Scope([*left, *first, *second], outer), ctes)
            return [*first, *second]
        if kind == "SUBQUERY":
            around = _Scope(left, outer) if left else outer
            inner = table["subquery"]["node"]
            return [self._resolve_subquery(inner, ctes, around, alias, names)]
        if kind == "BASE_TABLE":
            return [self._resolve_base_table(table, ctes, alias, names)]
        if kind == "EMPTY":
            return []
        for part in tree_nodes(table):
            if part.get("class"):
                self._resolve_references(part, _Scope(left, outer), ctes)
        return [_Relation(alias, (), is_telemetry=False)]

    def _resolve_base_table(
        self, table: Node, ctes: Mapping[str, _Relation], alias: str, names: Sequence[str]
    ) -> _Relation:
        """Return *table* as relation *alias*: a numbered read of telemetry, one of *ctes*, or one without columns."""
        name = str(table.get("table_name", "")).lower()
        if id(table) in self._reads:
            read = self._reads[id(table)]
            columns = [(c.lower(), Column(frozenset({(read, c.lower())}), is_plain=True)) for c in self._schema[name]]
            return _Relation(alias or name, _rename_columns(columns, names), frozenset({read}))
        if not table.get("schema_name") and name in ctes:
            made = ctes[name]
            return _Relation(alias or name, _rename_columns(made.columns, names), made.rows, made.is_telemetry)
        return _Relation(alias or name, (), is_telemetry=False)

    def _resolve_references(self, tree: Any, scope: _Scope, ctes: Mapping[str, _Relation]) -> None:
        """Record in *scope* the origin of each column reference and subquery in the expressions below *tree*."""
        waiting = [(tree, scope)]
        while waiting:
            node, around = waiting.pop()
            if isinstance(node, list):
                waiting += [(item, around) for item in node]
            elif not isinstance(node, dict):
                continue
            elif node.get("class") == "COLUMN_REF":
                self._columns[id(node)] = self._resolve_column(node, around, ctes)
            elif node.get("class") == "SUBQUERY":
                columns, self._rows[id(node)] = self._resolve_query(node["subquery"]["node"], ctes, around)
                self._columns[id(node)] = _as_derived_column(_combine_columns(column for _, column in columns))
                waiting.append((node.get("child"), around))
            elif node.get("class") == "LAMBDA":
                named = [
                    str(of["column_names"][-1]).lower() for of in tree_nodes(node.get("lhs")) if "column_names" in of
                ]
                own = _Relation("", tuple((name, _LITERAL) for name in named), is_telemetry=False)
                waiting.append((node.get("expr"), _Scope([own], around)))
            else:
                waiting += [(value, around) for value in node.values() if isinstance(value, dict | list)]

    def _resolve_column(self, reference: Node, scope: _Scope, ctes: Mapping[str, _Relation]) -> Column:
        """Return the column that *reference* names in relations, aliases or outer scopes; else an unknown one."""
        path = [str(name).lower() for name in reference["column_names"]]
        at: _Scope | None = scope
        while at is not None:
            found = at.find(path)
            if found is not None:
                return found
            if len(path) == 1 and path[0] in at.aliases:
                meant = at.aliases.pop(path[0])  # so that an alias does not stand for itself
                self._resolve_references(meant, at, ctes)
                rows = frozenset[int]().union(*(relation.rows for relation in at.relations))
                value = self._column_of_expression(meant, at.relations, rows)
                at.aliases[path[0]] = meant
                return value
            at = at.outer
        return _UNKNOWN

    def _columns_of_select_entry(
        self, expression: Node, relations: Sequence[_Relation], rows: frozenset[int]
    ) -> list[tuple[str, Column]]:
        """Return the (name, column) pairs of SELECT entry *expression* over *relations*; a star gives several."""
        if expression.get("class") != "STAR":
            name = str(expression.get("alias") or (expression.get("column_names") or [""])[-1]).lower()
            return [(name, self._column_of_expression(expression, relations, rows))]
        of = str(expression.get("relation_name") or "").lower()
        columns = [c for relation in relations if of in {"", relation.alias} for c in relation.columns]
        unclear = any(expression.get(key) for key in ("expr", "columns", "rename_list", "qualified_exclude_list"))
        if unclear or any(not relation.columns for relation in relations):
            return [(name, _as_derived_column(column)) for name, column in columns]
        left_out = {str(name).lower() for name in expression.get("exclude_list") or ()}
        replaced = {str(e["key"]).lower(): e["value"] for e in expression.get("replace_list") or ()}
        return [
            (name, self._column_of_expression(replaced[name], relations, rows) if name in replaced else column)
            for name, column in columns
            if name not in left_out
        ]

    def _column_of_expression(self, expression: Node, relations: Sequence[_Relation], rows: frozenset[int]) -> Column:
        """Return the origin of an expression's value: the telemetry columns that it is computed from."""
        if expression.get("class") == "COLUMN_REF":
            return self.resolve_column(expression)
        text = (expression.get("literal") or {}).get("text")
        if expression.get("class") == "CONSTANT":
            periods = {self.tables[read].split("_")[0] for read in rows}
            is_period = text in PERIODS and periods == {text} and all(r.is_telemetry for r in relations)
            return Column(is_period=is_period)
        parts, origins = [], frozenset[Origin]()
        for node in _nodes_outside_subqueries(expression):
            if node.get("class") in {"COLUMN_REF", "SUBQUERY"}:
                parts.append(self.resolve_column(node))
            elif node.get("class") == "WINDOW" or counts_rows(node):
                origins |= {(read, ANY) for read in rows}
            elif node.get("class") == "STAR":
                parts += [column for relation in relations for _, column in relation.columns]
        found = _combine_columns(parts)
        return Column(found.origins | origins, is_known=found.is_known)


def counts_rows(node: Node) -> bool:
    """Return whether *node* of the syntax tree is a count function, such as count(*)."""
    return node.get("class") == "FUNCTION" and str(node.get("function_name", "")).lower() in {"count_star", "count"}


def _nodes_outside_subqueries(expression: Any) -> Iterator[Node]:
    """Yield the nodes of *expression*, subquery nodes included but not their contents."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            yield node
            waiting += [value for key, value in node.items() if key != "subquery"]


def _combine_columns(columns: Iterable[Column]) -> Column:
    """Return the column that an expression over *columns* computes: all their origins, not unchanged (`is_plain`)."""
    listed = list(columns)
    return Column(
        frozenset[Origin]().union(*(column.origins for column in listed)),
        is_known=all(column.is_known for column in listed),
    )


def _as_derived_column(column: Column) -> Column:
    """Return *column* as a computed value: the same origins, but no unchanged telemetry column (`is_plain`)."""
    return Column(column.origins, is_known=column.is_known)


def _rename_columns(columns: Sequence[tuple[str, Column]], names: Sequence[str]) -> tuple[tuple[str, Column], ...]:
    """Return *columns* renamed by position to *names* in lower case; further ones keep their names."""
    given = [str(name).lower() for name in names]
    return tuple((given[i] if i < len(given) else name, column) for i, (name, column) in enumerate(columns))
