"""The profile compat beside the public scorer on fresh random answers: `python benchmarks/grading_peer.py`.

The peer is the PyPI package rcabench-platform (v3.sdk.evaluation.v2) in a virtual environment of its own under
~/.cache/opsassay-bench/rcabench, made on first use. Every figure of every pair is compared; the answers' names are written
in several spellings, causes are wrong in kind, doubled or missing, and edges touch the load generator.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from opsassay.core.schema.causal_graph import Annotation, CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import CATALOGUE, NETWORK_KINDS, FaultKind
from opsassay.core.schema.incident import Fault, Label, Truth
from opsassay.core.schema.run import Run, RunStatus, Solver
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.verdict import grade

PEER = Path.home() / ".cache" / "opsassay-bench" / "rcabench"
NEEDED = ["rcabench-platform[sdk,internal]", "openai", "sqlmodel", "colorlog", "jinja2", "rich"]
NAMES = ["ts-travel-service", "Cart_Service", "payment", "checkout", "redis-cart", "frontend", "ad-service"]
FIGURES = (
    "precision",
    "recall",
    "f1",
    "exact_match",
    "fault_kind_accuracy",
    "node_precision",
    "node_recall",
    "node_f1",
    "edge_precision",
    "edge_recall",
    "edge_f1",
    "path_reachability_hit",
)

THEIRS = """
import json, sys
from rcabench_platform.v3.sdk.evaluation.causal_graph import CausalGraph
from rcabench_platform.v3.sdk.evaluation.v2 import (
    AgentRCAOutput, FaultKind, GTFault, compute_graph_metrics, compute_outcome, compute_path_reachability)
for line in open(sys.argv[1]):
    case = json.loads(line)
    agent = AgentRCAOutput.model_validate(case["answer"])
    faults = [GTFault(**{**f, "fault_kind": FaultKind(f["fault_kind"])}) for f in case["truth"]["faults"]]
    nodes = [{"component": f"service|{n}", "state": []} for n in case["truth"]["nodes"]]
    alarms = [{"component": f"service|{n}", "state": []} for n in case["truth"]["alarms"]]
    edges = [{"source": f"service|{a}", "target": f"service|{b}"} for a, b in case["truth"]["edges"]]
    mapping = {f"service|{n}": n for n in case["truth"]["nodes"]}
    graph = CausalGraph.from_dict({"nodes": nodes, "edges": edges, "root_causes": [], "alarm_nodes": alarms,
        "component_to_service": mapping})
    outcome = compute_outcome(agent, faults)
    shape = compute_graph_metrics(agent, graph)
    told = {name: getattr(outcome, name) for name in
        ("precision", "recall", "f1", "exact_match", "fault_kind_accuracy")}
    told |= {name: getattr(shape, name) for name in
        ("node_precision", "node_recall", "node_f1", "edge_precision", "edge_recall", "edge_f1")}
    told["path_reachability_hit"] = compute_path_reachability(agent, outcome, graph)
    print(json.dumps(told))
"""


def main() -> int:
    """Grade random pairs with both and print every figure that differs; 1 when one does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    options = parser.parse_args()
    dice = random.Random(options.seed)
    pairs = [random_pair(dice) for _ in range(options.pairs)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.jsonl"
        path.write_text("\n".join(map(json.dumps, pairs)) + "\n")
        told = subprocess.run([str(peer()), "-c", THEIRS, str(path)], capture_output=True, text=True, check=False)
        if told.returncode:
            print(told.stderr[-2000:])
            return 1
    theirs = [json.loads(line) for line in told.stdout.splitlines() if line.startswith("{")]
    differing = 0
    for pair, expected in zip(pairs, theirs, strict=True):
        ours = grades(pair)
        for name in FIGURES:
            wanted = None if expected[name] is None else float(expected[name])
            if ours[name] != wanted:
                differing += 1
                print(f"{name}: ours {ours[name]}, theirs {wanted}: {json.dumps(pair)}")
    print(f"seed {options.seed}: {len(pairs)} pairs x {len(FIGURES)} figures, {differing} differ")
    return 1 if differing else 0


def random_pair(dice: random.Random) -> dict[str, Any]:
    """Return a truth and an answer to it."""
    nodes = dice.sample(NAMES, dice.randint(2, 6)) + (["loadgenerator"] if dice.random() < 0.4 else [])
    services = [n for n in nodes if n != "loadgenerator"]
    kinds = [kind.value for kind in FaultKind]
    faults = []
    for _ in range(dice.randint(1, 3)):
        service, kind = dice.choice(services), dice.choice(kinds)
        network = FaultKind(kind) in NETWORK_KINDS and len(services) > 1
        peer_ = dice.choice([n for n in services if n != service]) if network else None
        faults.append(
            {
                "service": service,
                "fault_kind": kind,
                "direction_src": service if network else None,
                "direction_dst": peer_,
            }
        )
    edges = sorted({tuple(dice.sample(nodes, 2)) for _ in range(dice.randint(0, 8))})
    alarms = dice.sample(nodes, dice.randint(0, 2))
    truth = {"faults": faults, "nodes": nodes, "edges": edges, "alarms": alarms}
    claims = [
        {
            "service": spelt(dice, dice.choice([str(f["service"]) for f in faults] if dice.random() < 0.6 else NAMES)),
            "fault_kind": dice.choice([f["fault_kind"] for f in faults] if dice.random() < 0.6 else kinds),
        }
        for _ in range(dice.randint(0, 3))
    ]
    said = [
        dice.choice(edges) if edges and dice.random() < 0.5 else tuple(dice.sample([*NAMES, "loadgenerator"], 2))
        for _ in range(dice.randint(0, 7))
    ]
    answer = {"root_causes": claims, "propagation": [{"from": spelt(dice, a), "to": spelt(dice, b)} for a, b in said]}
    return {"truth": truth, "answer": answer}


def spelt(dice: random.Random, name: str) -> str:
    """Return *name* in a spelling of its own."""
    return dice.choice([name, name, name.upper(), name.replace("-", ""), name.replace("_", "-")])


def grades(pair: dict[str, Any]) -> dict[str, float | None]:
    """Return our figures of *pair* under compat."""
    types = {row.kind.value: row.name for row in CATALOGUE.values()}
    told = pair["truth"]
    faults = tuple(
        Fault(type=types[f["fault_kind"]], service=f["service"], peer=f["direction_dst"], start_ns=0, end_ns=1)
        for f in told["faults"]
    )
    graph = CausalGraph(
        nodes=tuple(CausalNode(component=f"service|{n}") for n in told["nodes"]),
        edges=tuple(CausalEdge(source=f"service|{a}", target=f"service|{b}") for a, b in told["edges"]),
        alarm_nodes=tuple(CausalNode(component=f"service|{n}") for n in told["alarms"]),
    )
    run = Run(
        cell="c", attempt=1, item="i", item_hash="h", system="s", solver=Solver(name="s"), solver_hash="h",
        status=RunStatus.DONE,
    )  # fmt: skip
    truth = Truth(id="i", system="s", faults=faults)
    annotation = Annotation(label=Label.ATTRIBUTED, reason="given", graph=graph)
    answer = Diagnosis.model_validate(pair["answer"])
    metrics = grade(run, answer, truth, annotation, None, PROFILES["compat"]).metrics
    return {name: metrics[name].value for name in FIGURES}


def peer() -> Path:
    """Return the python of the peer's environment, made when it is not there."""
    python = PEER / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([str(PEER / "bin" / "pip"), "install", "-q", *NEEDED], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
