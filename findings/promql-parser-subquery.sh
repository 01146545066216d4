#!/usr/bin/env bash
# Package: promql-parser
# Version: 0.12.0
# Date: 2026-11-28
# Happens: `str(parse(query))` is another query. `x[1h:]`, a subquery with the default step, becomes the plain range
#   `x{}[1h]`, which parses, too; so `max_over_time((a + b)[1h:])` becomes a range of a sum, which the parser itself
#   refuses. `x[1d5ms]` loses its milliseconds. A quotation mark in a label's value comes without its backslash.
#   `prettify()` writes all of these rightly, but drops the empty `ignoring ()` of `a * ignoring () group_left () b`
#   and writes what the parser refuses.
# Guessed: The text of a syntax tree, in either of its two forms, parses to the same tree.
# Matters: Proxies that add a label to every selector, linters and caches parse, change and write queries. No error says
#   that a subquery has become a range of raw samples, which has other values in it. Use `prettify()`, parse what it wrote
#   once more, and refuse what does not come back as the same tree.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check promql-parser==0.12.0

cat >"$dir/see.py" <<'PY'
from promql_parser import parse


def again(text):
    """The kind of the tree that *text* parses to, or that it does not."""
    try:
        return type(parse(text)).__name__
    except ValueError as error:
        return f"refused ({str(error).splitlines()[0]})"


def show(query):
    tree = parse(query)
    plain, pretty = str(tree), " ".join(tree.prettify().split())
    print(f"{query}   is a {type(tree).__name__}")
    print(f"    str       {plain}   {again(plain)}")
    print(f"    prettify  {pretty}   {again(pretty)}")
    return type(tree).__name__, plain, again(plain), pretty, again(pretty)


kind, plain, plain_kind, pretty, pretty_kind = show("x[1h:]")
assert (kind, plain, plain_kind) == ("SubqueryExpr", "x{}[1h]", "MatrixSelector"), "str keeps subqueries now"
assert (pretty, pretty_kind) == ("x[1h:]", "SubqueryExpr")

_, plain, plain_kind, pretty, pretty_kind = show("max_over_time((a + b)[1h:])")
assert plain == "max_over_time((a{} + b{})[1h])", "str keeps subqueries now"
assert plain_kind.startswith("refused"), "a range of a sum is accepted now"
assert pretty_kind == "Call"

_, plain, *_ = show("x[1h:5m]")
assert plain == "x{}[1h:5m]", "an explicit step is lost now, too"

_, plain, _, pretty, _ = show("x[1d5ms]")
assert (plain, pretty) == ("x{}[1d]", "x[1d5ms]"), "str keeps milliseconds now"

_, plain, plain_kind, pretty, pretty_kind = show(r'x{path="a\"b"}')
assert plain == 'x{path="a"b"}', "str escapes now"
assert plain_kind.startswith("refused")
assert pretty_kind == "VectorSelector"

_, plain, plain_kind, pretty, pretty_kind = show("a * ignoring () group_left () b")
assert plain_kind == "BinaryExpr"
assert pretty == "a * group_left () b", "prettify keeps ignoring () now"
assert pretty_kind.startswith("refused")
PY
timeout 60 "$dir/venv/bin/python" "$dir/see.py"
echo "As described."
