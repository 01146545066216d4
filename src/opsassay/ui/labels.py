"""Pages on which an annotator audits the labels of a suite without seeing other verdicts, in three stages (E.1).

They show the raw evidence for judging a cascade: spans, metrics and logs of both windows.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import polars as pl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from opsassay.annotation.suites.agreement import CRITERIA, CaseVerdict, edge_name, read_verdicts, save_verdict
from opsassay.core.text import number_text
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.severity import ERROR_LEVELS
from opsassay.telemetry.tree import Case, Tree
from opsassay.ui.page import respond
from opsassay.ui.plain import plain, utc

BIN_S = 5
MOST_ROWS = 60


@dataclass(frozen=True)
class LabelEvidence:
    """One row of evidence: texts on the normal (*before*) and abnormal window (*after*), means of time bins (*series*)."""

    component: str
    what: str
    before: str
    after: str
    change: float
    series: tuple[float | None, ...] = ()


def span_evidence(pack: Datapack) -> list[LabelEvidence]:
    """Return per span name (service::name) rate, mean, p99 and errors in both windows, most changed first."""
    raw = pack.both("traces")
    failed = (pl.col("attr.status_code").fill_null("").str.to_lowercase() == "error") | (
        pl.col("attr.http.response.status_code") >= 500
    ).fill_null(value=False)
    spans = raw.select(
        "period",
        node=pl.concat_str("service_name", pl.lit("::"), "span_name"),
        time_ns=pl.col("time").dt.epoch("ns"),
        ms=pl.col("duration").cast(pl.Float64) / 1e6,
        failed=failed,
    )
    stats = spans.group_by("node", "period").agg(
        n=pl.len(), mean=pl.col("ms").mean(), p99=pl.col("ms").quantile(0.99), failed=pl.col("failed").mean()
    )
    wide = stats.collect().pivot("period", index="node", values=["n", "mean", "p99", "failed"])
    columns = [f"{name}_{period}" for name in ("n", "mean", "p99", "failed") for period in ("normal", "abnormal")]
    wide = wide.with_columns(pl.lit(None, pl.Float64).alias(c) for c in columns if c not in wide.columns)
    bins = _mean_per_bin(spans, pack)
    seconds = {"normal": pack.incident.normal.seconds, "abnormal": pack.incident.abnormal.seconds}
    rows = [_span_row(row, bins.get(row["node"], ()), seconds) for row in wide.iter_rows(named=True)]
    return sorted(rows, key=lambda r: (-r.change, r.component))


def _span_row(
    row: dict[str, float | str | None], series: tuple[float | None, ...], seconds: dict[str, float]
) -> LabelEvidence:
    """Return the evidence for a span name: texts for both windows, change score, *series*; *seconds* are by period."""

    def words(period: str) -> str:
        """Return rate, mean, 99th percentile and failed share in *period*."""
        count = float(row[f"n_{period}"] or 0)
        if not count:
            return "no calls"
        mean, p99, failed = (float(row[f"{name}_{period}"] or 0) for name in ("mean", "p99", "failed"))
        return f"{count / seconds[period]:.2f}/s, mean {mean:.1f} ms, p99 {p99:.0f} ms, {failed:.1%} failed"

    before, after = (float(row[f"mean_{p}"] or 0) for p in ("normal", "abnormal"))
    errors = float(row["failed_abnormal"] or 0) - float(row["failed_normal"] or 0)
    change = abs(after - before) / max(before, 1.0) + 10 * abs(errors)
    change += 5.0 if bool(row["n_normal"]) != bool(row["n_abnormal"]) else 0.0
    return LabelEvidence(f"span|{row['node']}", "calls", words("normal"), words("abnormal"), change, series)


def _mean_per_bin(spans: pl.LazyFrame, pack: Datapack) -> dict[str, tuple[float | None, ...]]:
    """Return per span name the mean duration in ms in each bin of `BIN_S` seconds, None without calls."""
    start, end = pack.incident.normal.start_ns, pack.incident.abnormal.end_ns
    count = int((end - start) / 1e9 // BIN_S) + 1
    table = (
        spans.with_columns(bin=((pl.col("time_ns") - start) // (BIN_S * 1_000_000_000)).clip(0, count - 1))
        .group_by("node", "bin")
        .agg(pl.col("ms").mean())
        .collect()
    )
    result: dict[str, list[float | None]] = {}
    for node, at, value in table.iter_rows():
        result.setdefault(node, [None] * count)[at] = value
    return {node: tuple(values) for node, values in result.items()}


def service_evidence(pack: Datapack, service: str) -> list[LabelEvidence]:
    """Return the eight metrics of *service* that changed most, and its number of error logs, before and after."""
    series = (
        pack.both("metrics")
        .filter((pl.col("service_name") == service) & pl.col("value").is_finite())
        .group_by("metric", "period")
        .agg(pl.col("value").mean(), spread=pl.col("value").std())
        .collect()
    )
    rows = []
    for (metric,), group in series.group_by("metric", maintain_order=False):
        by_period = {period: (value, spread) for _, period, value, spread in group.iter_rows()}
        if len(by_period) < 2:
            continue
        (before, spread), (after, _) = by_period["normal"], by_period["abnormal"]
        change = abs(after - before) / max(spread or 0.0, abs(before) * 0.05, 1e-9)
        rows.append(
            LabelEvidence(f"service|{service}", str(metric), number_text(before, 4), number_text(after, 4), change)
        )
    logs = pack.both("logs").filter((pl.col("service_name") == service) & pl.col("level").is_in(ERROR_LEVELS))
    errors = dict(logs.group_by("period").len().collect().iter_rows())
    before_, after_ = (str(errors.get(period, 0)) for period in ("normal", "abnormal"))
    rows.sort(key=lambda r: (-r.change, r.what))
    return [*rows[:8], LabelEvidence(f"service|{service}", "errors logged", before_, after_, 0.0)]


MOST_FIELDS = 20_000


@dataclass(frozen=True, eq=False)
class LabelAudit:
    """The work of one annotator: the *cases* of *suite*, in order."""

    suite: Path
    annotator: str
    cases: tuple[str, ...]

    def case(self, id_: str) -> Case:
        """Return the case *id_* with its truth and annotation."""
        tree = Tree(self.suite)
        return Case(tree.datapack(id_), tree.truth(id_), tree.annotation(id_), tree.truth_path(id_), id_)


def labels_app(audit: LabelAudit) -> Starlette:
    """Return the web application for judging the labels of *audit*; it saves the verdicts and is served on loopback."""
    token = secrets.token_urlsafe(16)

    async def overview(request: Request) -> Response:  # noqa: ARG001 - starlette's signature
        """Answer with the list of the audit's cases and the annotator's judgement of each."""
        done = read_verdicts(audit.suite, audit.annotator)
        cases = [{"id": c, "said": _describe_agreement(done.get(c))} for c in audit.cases]
        return respond("labels.html", f"Audit of labels: {audit.annotator}", cases=cases)

    async def case(request: Request) -> Response:
        """Answer a GET with the page of one case; store the verdict that a POST submits."""
        id_ = request.path_params["case"]
        if id_ not in audit.cases:
            return HTMLResponse("There is no such case in this audit.", status_code=404)
        if request.method == "POST":
            return await _save_verdict(audit, id_, request, token)
        return respond("labels_case.html", token=token, **_case_view(audit, id_))

    routes = [Route("/", overview), Route("/case/{case}", case, methods=["GET", "POST"])]
    app = Starlette(routes=routes)
    app.router.redirect_slashes = False
    return app


async def _save_verdict(audit: LabelAudit, id_: str, request: Request, token: str) -> Response:
    """Save the form of case *id_* as a verdict and redirect to the next case; 403 for a form of an older page."""
    try:
        body = (await request.body()).decode("utf-8", "replace")
        form = parse_qs(body, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return HTMLResponse(f"The form has more than {MOST_FIELDS:,} fields.", status_code=413)
    if not secrets.compare_digest(form.get("token", [""])[0].encode(), token.encode()):
        return HTMLResponse("This page was opened before the audit was started again; reload it.", status_code=403)
    save_verdict(audit.suite, verdict_of(form, audit, id_))
    left = [c for c in audit.cases if c not in read_verdicts(audit.suite, audit.annotator)]
    return RedirectResponse(f"/case/{left[0]}" if left else "/", status_code=303)


def verdict_of(form: Mapping[str, Sequence[str]], audit: LabelAudit, id_: str) -> CaseVerdict:
    """Return the verdict in the fields of *form* on case *id_*; fields that the case does not have are ignored."""
    annotation = audit.case(id_).annotation
    assert annotation is not None
    graph = annotation.graph
    failing = {
        edge_name(graph, i): tuple(c for c in CRITERIA if form.get(f"edge-{i}-{c}")) for i in range(len(graph.edges))
    }
    return CaseVerdict(
        case=id_,
        annotator=audit.annotator,
        nodes=tuple(n.component for i, n in enumerate(graph.nodes) if form.get(f"node-{i}")),
        edges={name: criteria for name, criteria in failing.items() if criteria},
        missing=tuple(line.strip() for line in form.get("missing", [""])[0].splitlines() if line.strip()),
        note=form.get("note", [""])[0][:2000],
    )


def _case_view(audit: LabelAudit, id_: str) -> dict[str, Any]:
    """Return the page data of case *id_*: faults, nodes and edges with evidence, and the verdict so far."""
    case = audit.case(id_)
    assert case.annotation is not None
    assert case.truth is not None
    graph, spans = case.annotation.graph, span_evidence(case.datapack)
    by_component = {row.component: row for row in spans}
    began = min((f.start_ns for f in case.truth.faults), default=case.datapack.incident.abnormal.start_ns)
    inside = {node.component for node in graph.nodes}
    nodes = [
        {
            "name": plain(node.component),
            "state": ", ".join(node.state),
            "onset": f"{(node.timestamp - began) / 1e9:+.1f} s" if node.timestamp else "–",
            "evidence": _evidence_rows(case, node.component, graph.service_of(node.component), by_component),
        }
        for node in graph.nodes
    ]
    said = read_verdicts(audit.suite, audit.annotator).get(id_)
    return {
        "title": f"Case {audit.cases.index(id_) + 1} of {len(audit.cases)}",
        "id": id_,
        "faults": [
            f"{f.type} at {plain(f.service or f.host or '?')} from {utc(f.start_ns)} to {utc(f.end_ns)}"
            + (f", {plain(f.parameters)}" if f.parameters else "")
            for f in case.truth.faults
        ],
        "nodes": nodes,
        "edges": [{"name": plain(edge_name(graph, i)), "rule": edge.rule or ""} for i, edge in enumerate(graph.edges)],
        "alarms": [plain(node.component) for node in graph.alarm_nodes],
        "others": [_evidence_row(row) for row in spans if row.component not in inside][:MOST_ROWS],
        "criteria": CRITERIA,
        "said": said,
        "edge_names": [edge_name(graph, i) for i in range(len(graph.edges))],
        "components": [node.component for node in graph.nodes],
    }


def _evidence_rows(
    case: Case, component: str, service: str, spans: Mapping[str, LabelEvidence]
) -> list[dict[str, Any]]:
    """Return the evidence on *component*: for an operation its entry in *spans*, else the metrics of *service*."""
    if component.startswith("span|"):
        row = spans.get(component)
        return [_evidence_row(row)] if row else []
    return [_evidence_row(row) for row in service_evidence(case.datapack, service)]


def _evidence_row(row: LabelEvidence) -> dict[str, Any]:
    """Return *row* as page data, its time series as the points of a line."""
    return {
        "name": plain(row.component.removeprefix("span|")),
        "what": plain(row.what),
        "before": row.before,
        "after": row.after,
        "line": _polyline(row.series),
    }


def _polyline(series: Sequence[float | None], width: int = 160, height: int = 28) -> str:
    """Return the points "x,y x,y ..." of an SVG line over *series*, scaled to *width* x *height* pixels."""
    known = [(i, v) for i, v in enumerate(series) if v is not None]
    if len(known) < 2:
        return ""
    top = max(v for _, v in known) or 1.0
    step = width / max(len(series) - 1, 1)
    return " ".join(f"{i * step:.1f},{height - v / top * (height - 2):.1f}" for i, v in known)


def _describe_agreement(verdict: CaseVerdict | None) -> str:
    """Return "agree" or "disagree" by *verdict*, "not judged yet" for None."""
    return "not judged yet" if verdict is None else "agree" if verdict.agree else "disagree"
