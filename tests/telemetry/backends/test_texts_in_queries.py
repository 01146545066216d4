"""Texts in quotes and regular expressions mean in PromQL, LogQL and TraceQL what they mean in Go and in RE2."""

from __future__ import annotations

import pytest

from opsassay.telemetry.backends.literals import code_literals, decode_literals, unquoted
from telemetry.backends.recordings import START_S, every, got, recorded, served

ROUTES = (
    "/users/{id}",
    "a{,3}",
    "1&",
    "a.b",
    "a1b",
    r"back\slash",
    r"\d",
    "tab\there",
    'quo"te',
    "two\nlines",
    "é",
    "plain",
)
TEXTS = [
    (r'"\a\b\f\n\r\t\v\\\""', '\a\b\f\n\r\t\v\\"'), (r"'\'\"'", None), (r"'it\'s'", "it's"), (r'"\'"', None),
    (r'"\x41\101\u00e9\U0001f600"', "AA\u00e9\U0001f600"), (r'"\xc3\xa9"', "é"), (r'"\xff"', "\ufffd"),
    (r"`\x41\n\`", r"\x41\n" + "\\"), ("`a\nb`", "a\nb"), (r'"\w"', None), (r'"\."', None), (r'"\ud800"', None),
    (r'"\U00110000"', None), (r'"\400"', None), (r'"\x4"', None), (r'"\8"', None), ("''", ""), ('"é"', "é"),
]  # fmt: skip
REGEXES = [
    ("/users/{id}", ["/users/{id}"]), ("/users/{[a-z]+}", ["/users/{id}"]), ("a{,3}", ["a{,3}"]),
    (r"\Qa.b\E", ["a.b"]), ("[1&&2]&", ["1&"]), ("a.b", ["a.b", "a1b"]), (r"a\.b", ["a.b"]), (r"a\db", ["a1b"]),
    (r"back\\slash", [r"back\slash"]), (r"\\d", [r"\d"]), ("(?i)PLAIN", ["plain"]), ("plai|n", []), ("lain", []),
    ("(?-s)two.lines", []), ("two.lines", ["two\nlines"]), ("plain$", ["plain"]), (r"\pL", ["é"]),
    ("[[:alpha:]]+", ["plain"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    series = [("hits", {"attr.route": route}, every(15, *[1] * 8)) for route in ROUTES]
    spans = [{"trace_id": f"a{at}", "span_name": route} for at, route in enumerate(ROUTES)]
    logs = [
        {"time_s": 1, "message": f"<{route}>", "service_name": "front", "level": "INFO", "attr.route": route}
        for route in ROUTES
    ]
    pack = recorded(tmp_path_factory.mktemp("r") / "incident", series, spans=spans, logs=logs)
    with served(pack) as url:
        yield url


def routes_by_promql(url, literal, op):
    found = got(url, "/api/v1/query", query=f"hits{{route{op}{literal}}}", time=START_S + 60)
    return sorted(one["metric"]["route"] for one in found["data"]["result"])


def routes_by_logql(url, query):
    span = {"start": START_S, "end": START_S + 3600}
    found = got(url, "/loki/api/v1/query_range", query=query, **span)["data"]["result"]
    return sorted(one["stream"]["route"] for one in found)


def routes_by_traceql(url, literal, op):
    found = got(url, "/tempo/api/search", q=f"{{ name {op} {literal} }}", start=START_S, end=START_S + 3600)
    return sorted(one["rootTraceName"] for one in found["traces"])


@pytest.mark.parametrize(("literal", "meant"), TEXTS)
def test_a_literal_means_what_it_means_in_go(literal, meant):
    if meant is None:
        with pytest.raises(ValueError, match="unknown escape sequence"):
            unquoted(literal)
    else:
        assert unquoted(literal) == meant
        assert decode_literals(code_literals(f"x{{a={literal}}} # it's")) == f'x{{a="{meant}"}} # it\'s'


@pytest.mark.parametrize("route", ROUTES)
def test_one_literal_finds_the_same_wherever_it_stands(url, route):
    escaped = '"' + route.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").replace("\t", r"\t") + '"'
    for literal in (escaped, f"`{route}`"):
        assert got(url, "/api/v1/query", query=literal, time=START_S)["data"]["result"][1] == route
        assert routes_by_promql(url, literal, "=") == [route]
        assert routes_by_promql(url, literal, "!=") == sorted({*ROUTES} - {route})
        assert routes_by_logql(url, f'{{service_name="front"}} | route = {literal}') == [route]
        assert routes_by_logql(url, f'{{service_name="front"}} |= {literal}') == [route]
        assert routes_by_traceql(url, literal, "=") == [route]


@pytest.mark.parametrize(("regex", "matching"), REGEXES)
def test_a_regular_expression_is_re2s_wherever_it_stands(url, regex, matching):
    literal = f"`{regex}`"
    assert routes_by_promql(url, literal, "=~") == sorted(matching)
    assert routes_by_promql(url, literal, "!~") == sorted({*ROUTES} - {*matching})
    assert routes_by_logql(url, f'{{service_name="front"}} | route =~ {literal}') == sorted(matching)
    assert routes_by_traceql(url, literal, "=~") == sorted(matching)
    if "s:" not in regex and "two" not in regex and "$" not in regex:
        found = routes_by_logql(url, f'{{service_name="front"}} |~ `^<(?:{regex})>$`')
        assert found == sorted(matching)
        assert {*found} <= {*routes_by_logql(url, f'{{service_name="front"}} |~ {literal}')}


@pytest.mark.parametrize("regex", ["(?=a)b", "(?!a)b", r"(a)\1", "(", "a)(b", "a{1001}", "a**", "x{2,1}"])
def test_what_re2_has_not_is_refused_in_one_sentence(url, regex):
    refusals = [
        got(url, "/api/v1/query", 400, query=f"hits{{route=~`{regex}`}}", time=START_S)["error"],
        *(
            got(url, path, 400, text=True, start=START_S, end=START_S + 60, **{name: query})
            for path, name, query in (
                ("/loki/api/v1/query_range", "query", f'{{service_name="front"}} |~ `{regex}`'),
                ("/tempo/api/search", "q", f"{{ name =~ `{regex}` }}"),
            )
        ),
    ]
    for said in refusals:
        assert "is no regular expression: " in said
        assert ("no lookaround and no backreferences" in said) is regex.startswith(("(?", "(a)"))


def test_anchors_and_word_boundaries_are_those_of_each_line(tmp_path):
    lines = ["one", "", "two one", "one two", "", "onetwo", "no", ""]
    logs = [{"time_s": at, "message": line, "service_name": "front", "level": "INFO"} for at, line in enumerate(lines)]
    with served(recorded(tmp_path / "incident", [], logs=logs)) as url:
        for regex, matching in (
            ("^one", ["one", "one two", "onetwo"]), ("one$", ["one", "two one"]), ("^$", ["", "", ""]),
            (r"\bone\b", ["one", "one two", "two one"]), (r"\Aone\z", ["one"]), ("e[^x]t", ["one two"]),
            (r"e\st", ["one two"]), ("(?-m)^one$", ["one"]), ("o?", sorted(lines)), ("o$|^n", ["no", "one two", "onetwo"]),
            ("e.*o", ["one two", "onetwo"]),
        ):  # fmt: skip
            found = got(url, "/loki/api/v1/query_range", query=f'{{service_name="front"}} |~ `{regex}`', start=START_S,
                        end=START_S + 60)["data"]["result"]  # fmt: skip
            assert sorted(line for stream in found for _, line in stream["values"]) == matching, regex


@pytest.mark.parametrize("query", ['{route=""}', '{route=~".*"}', '{route!="a"}', "{}", '{route=~"|x"}'])
def test_a_selector_that_an_absent_label_fits_is_refused(url, query):
    said = got(url, "/api/v1/query", 400, query=query, time=START_S)["error"]
    assert "at least one non-empty matcher" in said or "no expression" in said


def test_names_in_quotes_are_names(url):
    for query in ('{"hits","route"="plain"}', 'hits{"route"="plain"}', 'sum by ("route") (hits{route="plain"})',
                  'hits{route="plain"} * on("route") group_left() hits'):  # fmt: skip
        (one,) = got(url, "/api/v1/query", query=query, time=START_S)["data"]["result"]
        assert one["metric"]["route"] == "plain", query


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ('count_over_time({service_name="front"}[1h])', len(ROUTES)),
        ('(count_over_time({service_name="front"}[1h]))', len(ROUTES)),
        ('count_over_time({service_name="front"}[1h] |= "plain")', 1),
        ('count_over_time({service_name="front"}[1h] offset 1s |= "plain" | level="INFO")', 1),
        ('count_over_time({service_name="front"} | level="INFO" and service_name="front" [1h])', len(ROUTES)),
        ('count_over_time({service_name="front"} | level="INFO", service_name="cart" [1h])', 0),
    ],
)
def test_one_count_of_logs_in_every_way_to_write_it(url, query, count):
    found = got(url, "/loki/api/v1/query", query=f"sum({query})", time=START_S + 1800)["data"]["result"]
    assert [float(one["value"][1]) for one in found] == [float(count)] * bool(count)


@pytest.mark.parametrize(
    ("value", "is_longer"), [("1e3", True), (".5", True), ("999", True), ("1e10", False), ("2.", True)]
)
def test_a_number_in_traceql_in_every_form(url, value, is_longer):
    """A number beside a duration counts nanoseconds; the spans take one millisecond."""
    found = got(
        url, "/tempo/api/search", q=f'{{ name = "plain" && duration > {value} }}', start=START_S, end=START_S + 3600
    )
    assert bool(found["traces"]) == is_longer
