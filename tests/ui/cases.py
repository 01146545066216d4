"""A small made-up shop incident: seven services, a slow cache that makes carts and the front page slow."""

from __future__ import annotations

import random
from pathlib import Path

import polars as pl

from opsassay.core.schema.causal_graph import Annotation, CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.diagnosis import Diagnosis, Evidence, PropagationClaim, RankedService, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.core.schema.incident import Alert, EffectCheck, Fault, Incident, Label, RootLabel, Truth, Window
from opsassay.core.schema.run import EvidenceResult, Metric, MetricStatus, Run, RunStatus, Solver, Verdict
from opsassay.telemetry.datapack import Datapack
from opsassay.ui.payload import AnswerPayload, CaseReport, build_case

S = 1_000_000_000
BOUNDARY = 1_790_000_000 * S
NORMAL = Window(start_ns=BOUNDARY - 90 * S, end_ns=BOUNDARY)
ABNORMAL = Window(start_ns=BOUNDARY, end_ns=BOUNDARY + 90 * S)
CALLS = [
    ("gateway", "frontend"),
    ("frontend", "catalogue"),
    ("frontend", "cart"),
    ("frontend", "checkout"),
    ("checkout", "cart"),
    ("checkout", "payment"),
    ("cart", "pricing"),
]
DOWN = {"gateway": 1.0, "frontend": 1.0, "catalogue": 0.8, "checkout": 0.4, "cart": 0.6, "payment": 0.3, "pricing": 0.6}
SLOW_MS = {"gateway": 300, "frontend": 300, "cart": 320, "pricing": 300, "checkout": 180}


def spans(rename=lambda name: name, fault=True, seed=3) -> pl.DataFrame:
    """Spans of both periods, written as a recorder writes them; *rename* lets a test spoil names."""
    dice = random.Random(seed)
    rows = []
    for period, window in (("normal", NORMAL), ("abnormal", ABNORMAL)):
        for i in range(540):
            start = window.start_ns + int(dice.random() * window.seconds * S)
            trace, ids = f"{period}{i}", {}
            for service, share in DOWN.items():
                if dice.random() > share:
                    continue
                parent = dice.choice([ids[a] for a, b in CALLS if b == service and a in ids] or [""])
                ids[service] = f"{trace}-{service}"
                broken = fault and period == "abnormal" and start > BOUNDARY + 6 * S
                slow = SLOW_MS.get(service, 0) * dice.uniform(0.6, 1.4) if broken else 0
                rows.append(
                    {
                        "period": period,
                        "time": start,
                        "trace_id": trace,
                        "span_id": ids[service],
                        "parent_span_id": parent,
                        "span_name": f"GET /{service}",
                        "service_name": rename(service),
                        "duration": int((dice.gammavariate(4, 4) + slow) * 1e6),
                        "attr.span_kind": "Server",
                        "attr.status_code": "Error" if slow > 380 and dice.random() < 0.5 else "Unset",
                    }
                )
    return pl.DataFrame(rows).with_columns(
        pl.col("time").cast(pl.Datetime("ns", "UTC")), pl.col("duration").cast(pl.UInt64)
    )


def incident(case_id="3f9a1c77e0d2", rename=lambda name: name, fault=True) -> Incident:
    alerts = [("gateway", 14.2, 391), ("frontend", 15.0, 388), ("cart", 12.4, 352)] if fault else []
    return Incident(
        id=case_id,
        system="shop",
        normal=NORMAL,
        abnormal=ABNORMAL,
        description="Latency alerts on the shop front.",
        content_hash="9d" * 32,
        provenance={"recorder": "opsassay 0.1.0", "substrate": "local"},
        alerts=tuple(
            Alert(
                time_ns=BOUNDARY + int(at * S),
                service=rename(service),
                signal="latency_p99_ms",
                value=value,
                threshold=120,
                message=f"p99 latency of {rename(service)} is above its normal range",
            )
            for service, at, value in alerts
        ),
    )


def datapack(folder: Path, frame: pl.DataFrame, shown: Incident) -> Datapack:
    """Write *frame* as a datapack into *folder* and open it through the front door."""
    folder.mkdir(parents=True, exist_ok=True)
    for period in ("normal", "abnormal"):
        frame.filter(pl.col("period") == period).drop("period").write_parquet(folder / f"{period}_traces.parquet")
    (folder / "incident.json").write_text(shown.model_copy(update={"content_hash": ""}).pretty_json())
    pack = Datapack.open(folder)
    return Datapack(pack.path, shown, pack.env)


def truth(case_id="3f9a1c77e0d2", rename=lambda name: name) -> Truth:
    return Truth(
        id=case_id,
        system="shop",
        faults=(
            Fault(
                type="JVMLatency",
                service=rename("pricing"),
                parameters={"delay_ms": 300, "operation": "quote"},
                start_ns=BOUNDARY + 6 * S,
                end_ns=BOUNDARY + 84 * S,
            ),
        ),
        roots=(RootLabel(service=(rename("pricing"),)),),
        effects=(
            EffectCheck(
                signature="p50 latency of pricing, ms",
                before=15.1,
                after=316.0,
                threshold=120,
                passed=True,
                seconds=1.8,
            ),
        ),
        recovered=True,
        isolation="network namespaces",
        secret="0" * 32,
    )


def no_fault_truth(case_id: str) -> Truth:
    return Truth(
        id=case_id,
        system="shop",
        faults=(Fault(type="NoFault", service=None, start_ns=ABNORMAL.start_ns, end_ns=ABNORMAL.end_ns),),
    )


def annotation(rename=lambda name: name) -> Annotation:
    onsets = {"pricing": 6.4, "cart": 7.1, "checkout": 8.9, "frontend": 8.0, "gateway": 8.2}
    nodes = {
        s: CausalNode(
            component=f"service|{rename(s)}",
            state=("slow", "erroring") if s in {"gateway", "frontend"} else ("slow",),
            timestamp=BOUNDARY + int(at * S),
        )
        for s, at in onsets.items()
    }
    edges = [
        ("pricing", "cart"),
        ("cart", "checkout"),
        ("cart", "frontend"),
        ("checkout", "frontend"),
        ("frontend", "gateway"),
    ]
    graph = CausalGraph(
        case_name="3f9a1c77e0d2",
        fault_type="JVMLatency",
        nodes=tuple(nodes.values()),
        edges=tuple(
            CausalEdge(
                source=nodes[a].component,
                target=nodes[b].component,
                rule="caller waits for callee",
                evidence={"share_of_traces": 0.94, "delay_ms": 301},
            )
            for a, b in edges
        ),
        root_causes=(nodes["pricing"],),
        alarm_nodes=(nodes["gateway"], nodes["frontend"]),
    )
    return Annotation(
        label=Label.ATTRIBUTED,
        reason="both alarms are reached from the root by verified edges in order of onset",
        graph=graph,
        thresholds={"latency_ratio": 2.0, "error_share_added": 0.05, "minimum_calls": 20},
        false_alarm_rate=0.004,
    )


def scored(**values: float) -> dict[str, Metric]:
    return {name: Metric(value=value, status=MetricStatus.SCORED) for name, value in values.items()}


def not_applicable(reason: str, *names: str) -> dict[str, Metric]:
    return {name: Metric(status=MetricStatus.NOT_APPLICABLE, reason=reason) for name in names}


def answer(solver: str, diagnosis: Diagnosis | None, metrics: dict[str, Metric] | None, **more) -> AnswerPayload:
    results = more.pop("evidence", ())
    status = more.pop("status", RunStatus.DONE)
    run = Run(
        cell=f"cell-{solver}",
        attempt=1,
        item="3f9a1c77e0d2",
        item_hash="9d" * 32,
        system="shop",
        solver=Solver(name=solver, kind=more.pop("kind", "method")),
        solver_hash="ab" * 32,
        status=status,
        started_ns=BOUNDARY,
        ended_ns=BOUNDARY + 180_000_000,
        versions={"opsassay": "0.1.0", "polars": "2.1.0"},
        **more,
    )
    verdict = None
    if metrics is not None:
        verdict = Verdict(
            run=run.cell,
            item=run.item,
            system="shop",
            solver=solver,
            profile="default",
            label="attributed",
            metrics=metrics,
            evidence=results,
        )
    return AnswerPayload(run=run, diagnosis=diagnosis, verdict=verdict)


SQL = """SELECT period, service_name, quantile_cont(duration, 0.99) / 1e6 AS p99_ms, count(*) AS calls
FROM traces WHERE service_name = 'pricing' GROUP BY ALL ORDER BY period"""
CLAIM = "p99 latency of pricing rose from 32 ms to 418 ms"


def diagnosis(root: str, edges=(), kind: FaultKind | None = None, evidence=(), rank=()) -> Diagnosis:
    others = [s for s in (rank or DOWN) if s != root]
    return Diagnosis(
        root_causes=(RootCauseClaim(service=root, fault_kind=kind, evidence=evidence),) if root else (),
        propagation=tuple(PropagationClaim(source=a, target=b) for a, b in edges),
        ranking=tuple(
            RankedService(service=s, score=round(4.2 / (i + 1), 3))
            for i, s in enumerate([root, *others] if root else others)
        ),
        protocol={"windows": "normal, abnormal", "uses": "traces", "ties": "by name"},
    )


def answers() -> list[AnswerPayload]:
    evidence = (Evidence(kind="trace", sql=SQL, claim=CLAIM),)
    result = EvidenceResult(
        sql=SQL,
        claim=CLAIM,
        status="ok",
        columns=("period", "service_name", "p99_ms", "calls"),
        rows=(("abnormal", "pricing", 418.21, 323), ("normal", "pricing", 32.07, 331)),
    )
    right = scored(exact_match=1, precision=1, recall=1, f1=1, any_service=1)
    wrong = scored(exact_match=0, precision=0, recall=0, f1=0, any_service=0)
    pathless = not_applicable("the method names no propagation edges", "path_reachability", "edge_f1")
    without_sql = not_applicable("the answer carries no SQL", "sql_exec")
    walked = [("pricing", "cart"), ("cart", "frontend"), ("frontend", "gateway"), ("catalogue", "frontend")]
    graded = right | scored(path_reachability=1, edge_f1=0.667, sql_exec=1)
    failed_edges = {"edge_f1": Metric(status=MetricStatus.FAILED, reason="the edge grader stopped: no such component")}
    return [
        answer("constant", diagnosis("gateway"), wrong | pathless | without_sql),
        answer(
            "trace-walk",
            diagnosis("pricing", walked, FaultKind.JVM_METHOD_LATENCY, evidence),
            graded,
            evidence=(result,),
        ),
        answer("loudest", diagnosis("frontend"), wrong | pathless | without_sql),
        answer(
            "correlation",
            diagnosis("cart", [("cart", "frontend")]),
            wrong | scored(path_reachability=0) | failed_edges | without_sql,
        ),
        answer("random-walk", diagnosis("pricing"), right | pathless | without_sql),
        answer("chat-agent", None, None, status=RunStatus.TIMEOUT, error="no answer within 600 s", kind="agent"),
    ]


def full_case(folder: Path, case_id="3f9a1c77e0d2") -> CaseReport:
    return build_case(datapack(folder, spans(), incident(case_id)), truth(case_id), annotation(), answers())


HOSTILE = "</script><img src=x onerror=alert(1)>"
REORDERING = "safe\u202egnp.exe\u2066"


def hostile_name(name: str) -> str:
    """A service name that tries to leave its place on the page."""
    return {
        "pricing": HOSTILE,
        "cart": "{{7*7}}${7*7}",
        "checkout": REORDERING,
        "payment": "__proto__",
        "catalogue": '"><svg/onload=alert(2)>',
    }.get(name, name)


def hostile_case(folder: Path) -> CaseReport:
    """A case in which names, claims, statements, rows, reasons and errors are all hostile or huge."""
    evil, log_line = hostile_name("pricing"), "x<b>" * 2560
    sql = f"SELECT '{HOSTILE}' -- <!-- <script> {REORDERING}"
    evidence = (Evidence(kind="log", sql=sql, claim=f"<script>alert(3)</script>{log_line}"),)
    result = EvidenceResult(
        sql=sql,
        claim=evidence[0].claim,
        status="error",
        columns=("<i>message</i>", "time"),
        rows=((log_line, 1_790_000_000_123_456_789), (HOSTILE, None), ("{{7*7}}", float("nan"))),
        message="Parser Error: <img src=x onerror=alert(4)>",
    )
    said = diagnosis(evil, [(evil, hostile_name("cart")), ("constructor", "toString")], evidence=evidence)
    wrong = (
        scored(f1=0.5)
        | not_applicable(f"because {HOSTILE}", "edge_f1")
        | {"<u>odd</u>": Metric(status=MetricStatus.FAILED, reason="{{7*7}} " + "y" * 3000)}
    )
    broken = answer(HOSTILE, None, None, status=RunStatus.FAILED, error=f"Traceback {HOSTILE} {log_line}", kind="agent")
    shown = incident("a/b?c#<i>%", hostile_name).model_copy(update={"description": log_line, "system": HOSTILE})
    return build_case(
        datapack(folder, spans(hostile_name), shown),
        truth("a/b?c#<i>%", hostile_name),
        annotation(hostile_name),
        [answer("javascript:alert(5)", said, wrong, evidence=(result,)), broken],
    )


def bare_case(folder: Path) -> CaseReport:
    """A case with telemetry only: no truth, no annotation, no answers, no alerts."""
    return build_case(datapack(folder, spans(fault=False), incident("bare", fault=False)), None, None, [])


def no_fault_case(folder: Path) -> CaseReport:
    """Nothing was broken; one method rightly says so, one blames a service."""
    pack = datapack(folder, spans(fault=False), incident("quiet", fault=False))
    silent = answer("careful", diagnosis(""), scored(exact_match=1, f1=1))
    return build_case(
        pack, no_fault_truth("quiet"), None, [silent, answer("eager", diagnosis("cart"), scored(exact_match=0, f1=0))]
    )
