"""A comparison for a CI job: JUnit XML for the gate, Markdown for the summary page."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # written here, never parsed
from collections.abc import Sequence

from opsassay.analysis.audit.compare import Comparison, Difference, sentence

_CONTROL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that are not allowed in XML, even escaped."""


def junit(comparisons: Sequence[Comparison]) -> str:
    """Return the comparisons as JUnit XML: one test case per method, one per system; only the overall one can fail."""
    tests = sum(1 + len(comparison.systems) for comparison in comparisons)
    failures = sum(not comparison.passed for comparison in comparisons)
    suites = ET.Element("testsuites", _suite_attributes("opsassay compare", tests, failures))
    for comparison in comparisons:
        name = f"opsassay compare: {comparison.method}"
        suite = ET.SubElement(
            suites, "testsuite", _suite_attributes(name, 1 + len(comparison.systems), 0 if comparison.passed else 1)
        )
        if comparison.unsealed:  # properties stand before cases
            properties = ET.SubElement(suite, "properties")
            ET.SubElement(properties, "property", name="unsealed", value=comparison.unsealed)
        _add_test_case(suite, comparison.method, comparison.overall, failed=not comparison.passed)
        for system in comparison.systems:
            _add_test_case(suite, f"{comparison.method} on {system.system}", system, failed=False)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def markdown(comparisons: Sequence[Comparison], before: str, after: str) -> str:
    """Return the comparisons of the tables *before* and *after* as Markdown: verdict, table, a sentence per method."""
    passed = all(comparison.passed for comparison in comparisons)
    lines = [
        f"## opsassay compare: {'passed' if passed else 'failed'}",
        "",
        f"B ({_format_as_code(after)}) against A ({_format_as_code(before)}), paired on the cases that both have.",
        "",
        "| method | system | cases | A | B | B - A, pp [interval] | detectable, pp | verdict |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for comparison in comparisons:
        verdict = comparison.overall.outcome.value if comparison.passed else f"**{comparison.overall.outcome.value}**"
        mark = " (unsealed)" if comparison.unsealed else ""
        lines.append(_format_row(comparison.method, "all (mean of systems)", comparison.overall, verdict + mark))
        lines += [
            _format_row(comparison.method, one.system, one, one.outcome.value + mark) for one in comparison.systems
        ]
    left_out = [
        f"- {_escape_markdown(one.method)}: {_escape_markdown(one.left_out)}." for one in comparisons if one.left_out
    ]
    said = [f"- {_escape_markdown(one.method)}: {sentence(one.overall)}." for one in comparisons]
    unsealed = [f"- {_escape_markdown(one.method)}: {one.unsealed}." for one in comparisons if one.unsealed]
    return "\n".join([*lines, "", *said, *left_out, *unsealed, ""])


def _suite_attributes(name: str, tests: int, failures: int) -> dict[str, str]:
    """Return the attributes of a JUnit test suite."""
    return {
        "name": _strip_controls(name), "tests": str(tests), "failures": str(failures),
        "errors": "0", "skipped": "0", "time": "0",
    }  # fmt: skip


def _add_test_case(suite: ET.Element, name: str, difference: Difference, *, failed: bool) -> None:
    """Add the difference to the JUnit *suite* as one test case, failed or not."""
    case = ET.SubElement(suite, "testcase", classname="opsassay.compare", name=_strip_controls(name), time="0")
    said = _strip_controls(sentence(difference))
    if failed:
        ET.SubElement(case, "failure", message=said, type=difference.outcome.value).text = said
    else:
        ET.SubElement(case, "system-out").text = said


def _format_row(method: str, system: str, difference: Difference, verdict: str) -> str:
    """Return the difference as a row of a Markdown table, figures in percent."""
    change = f"{100 * difference.difference:+.1f} [{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
    detectable = "–" if difference.detectable is None else f"{100 * difference.detectable:.1f}"
    cells = (
        _escape_markdown(method), _escape_markdown(system), str(difference.cases), f"{100 * difference.before:.1f}%",
        f"{100 * difference.after:.1f}%", change, detectable, verdict,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _strip_controls(text: str) -> str:
    """Return *text* with characters replaced that XML does not allow."""
    return _CONTROL.sub("\ufffd", text)


def _escape_markdown(text: str) -> str:
    """Return *text* on one line with Markdown characters escaped."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~&:@-])", r"\\\1", " ".join(text.split()))


def _format_as_code(text: str) -> str:
    """Return *text* as inline code of Markdown on one line, safe inside a table."""
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "/") + "`"
