"""A published causal graph stays what it is: annotate writes beside it, and says how far it agrees."""

from __future__ import annotations

import json

from click.testing import CliRunner

from annotation import systems
from annotation.cascade import Effect, fault, frames, incident
from opsassay.annotation.job import annotate_path
from opsassay.cli import cli
from opsassay.core.schema.causal_graph import CausalEdge, CausalGraph, CausalNode
from opsassay.core.schema.incident import Truth
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.injection import public_injection
from opsassay.telemetry.tree import resolve

SLOW = Effect(own_ms={"payment": 300})


def public(folder, *, extra=None):
    """Write a public-form datapack with somebody else's graph: payment > orders, and what *extra* names."""
    write_datapack(folder, frames(systems.deep(), SLOW), incident(), {})
    true = fault("HTTPResponseDelay", "payment", SLOW)
    truth = Truth(id="0" * 16, system="deep", faults=(true,))
    (folder / "injection.json").write_text(json.dumps(public_injection(truth)))
    names = ["service|payment", "service|orders", *([f"service|{extra}"] if extra else [])]
    nodes = tuple(CausalNode(component=name, state=("lat",)) for name in names)
    edges = (CausalEdge(source=names[0], target=names[1]),)
    graph = CausalGraph(nodes=nodes, edges=edges, root_causes=nodes[:1])
    (folder / "causal_graph.json").write_text(graph.pretty_json())
    return folder


def test_a_published_graph_is_never_replaced(tmp_path):
    folder = public(tmp_path / "pack")
    published = (folder / "causal_graph.json").read_bytes()
    for _ in range(2):
        assert annotate_path(folder).error is None
        assert (folder / "causal_graph.json").read_bytes() == published
    (case,) = resolve(folder)
    assert case.annotation.graph.service_edges() == {("payment", "orders"), ("orders", "gateway")}
    assert case.published.graph.service_edges() == {("payment", "orders")}


def test_our_own_graph_is_no_published_one(tmp_path):
    folder = public(tmp_path / "pack")
    (folder / "causal_graph.json").unlink()
    for _ in range(2):
        annotate_path(folder)
        (case,) = resolve(folder)
        assert case.published is None
    assert json.loads((folder / "causal_graph.json").read_text())["edges"]


def test_agreement_is_printed_and_strange_services_are_named(tmp_path):
    folder = public(tmp_path / "pack", extra="billing")
    shown = CliRunner().invoke(cli, ["incident", "annotate", "--compare", "--json", str(folder)])
    assert shown.exit_code == 0, shown.output
    (item,) = json.loads(shown.stdout)["items"]
    assert item["edges"] == {"both": 1, "ours_alone": 1, "published_alone": 0}
    assert item["roots"] == {"both": 1, "ours_alone": 0, "published_alone": 0}
    assert item["unknown"] == ["billing"]
    assert "names services that the telemetry lacks: billing" in shown.stderr
