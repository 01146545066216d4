"""A code fault without logs shows in the structure of calls, and nothing else that changes the structure is one."""

from __future__ import annotations

import random

import polars as pl
import pytest

from annotation.cascade import CALM, Call, Effect, fault, frames, incident
from annotation.systems import deep
from opsassay.annotation.verdict.annotate import annotate
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack

SERVICES = ("gateway", "orders", "payment", "bank", "catalogue")


def _shown(folder, tables, type_="JVMException"):
    write_datapack(folder / "pack", tables, incident(), {})
    pack = Datapack.open(folder / "pack")
    found = {place: annotate(pack, [fault(type_, place)]) for place in SERVICES}
    return {place for place, one in found.items() if any(verdict.shown for verdict in one.faults)}


@pytest.mark.sampled
@pytest.mark.parametrize("type_", ["JVMException", "JVMReturn"])
@pytest.mark.parametrize(("root", "share"), [("payment", 0.3), ("payment", 1.0), ("gateway", 0.4), ("orders", 0.5)])
def test_requests_without_the_calls_that_they_need_show_at_the_deepest_place(tmp_path, root, share, type_):
    assert _shown(tmp_path, frames(deep(), Effect(skips={root: share})), type_) == {root}


def _with_inner_spans(tables):
    """Give every request of catalogue an inner span of its own in place of the call to its store."""
    for key in [key for key in tables if key[1] == "traces"]:
        store = (pl.col("service_name") == "catalogue") & (pl.col("attr.span_kind") == "Client")
        name = pl.when(store).then(pl.lit("parse catalogue")).otherwise("span_name")
        kind = pl.when(store).then(pl.lit("Internal")).otherwise("attr.span_kind")
        tables[key] = tables[key].with_columns(span_name=name, **{"attr.span_kind": kind})
    return tables


def test_a_service_that_calls_nobody_shows_by_its_inner_spans(tmp_path):
    assert _shown(tmp_path, _with_inner_spans(frames(deep(), Effect(skips={"catalogue": 0.4})))) == {"catalogue"}


def _with_methods(tables, share, method="parse"):
    """Give every request of payment, before its calls, a span "validate" with "parse" in it.

    In *share* of the requests of the abnormal window *method* ends at once: without "parse", or not made at all.
    """
    rnd = random.Random(5)
    for period in ("normal", "abnormal"):
        traces = tables[period, "traces"]
        for number, row in enumerate(traces.filter(service_name="payment", **{"attr.span_kind": "Server"}).to_dicts()):
            ends = period == "abnormal" and rnd.random() < share
            inner = dict.fromkeys(row) | {k: row[k] for k in ("time", "trace_id", "service_name", "attr.k8s.pod.name")}
            inner |= {"attr.span_kind": "Internal", "attr.status_code": "Unset"}
            ms = 0.05 if ends else 2.0
            made = [("validate", row["span_id"], ms)] + [("parse", f"v{number}", ms / 2)] * (not ends)
            made = [] if ends and method == "validate" else made
            rows = [
                inner
                | {"span_id": f"{name[0]}{number}", "parent_span_id": parent, "span_name": name}
                | {"duration": int(each * 1e6)}
                for name, parent, each in made
            ]
            traces = traces.vstack(pl.DataFrame(rows, schema=traces.schema)) if rows else traces
        tables[period, "traces"] = traces
    return tables


@pytest.mark.sampled
@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_method_inside_a_service_that_ends_early_shows(tmp_path, share):
    assert _shown(tmp_path, _with_methods(frames(deep()), share)) == {"payment"}


def test_methods_that_go_on_as_before_are_no_sign(tmp_path):
    assert _shown(tmp_path, _with_methods(frames(deep()), 0.0)) == set()


def test_a_service_that_stops_after_an_answer_is_not_to_blame(tmp_path):
    """What its callee answered may be why: a checkout without orders, after the catalogue answered."""
    tables = frames(deep())
    traces = tables["abnormal", "traces"]
    ways = dict(traces.select("span_id", "parent_span_id").iter_rows())
    checkouts = traces.filter(service_name="gateway", span_name="POST /checkout").get_column("span_id")[::2]
    calls = traces.filter(service_name="gateway", span_name="POST /orders")
    gone = set(calls.filter(pl.col("parent_span_id").is_in(checkouts.implode())).get_column("span_id"))
    assert len(gone) > 20
    while below := {span for span, parent in ways.items() if parent in gone} - gone:
        gone |= below
    tables["abnormal", "traces"] = traces.filter(~pl.col("span_id").is_in(list(gone)))
    assert _shown(tmp_path, tables) == set()


def test_a_service_shows_although_users_come_less_often(tmp_path):
    tables = frames(deep())
    fewer = frames({call: rate * 0.4 for call, rate in deep().items()}, Effect(skips={"payment": 0.5}))
    tables |= {key: table for key, table in fewer.items() if key[0] == "abnormal"}
    assert _shown(tmp_path, tables) == {"payment"}


def test_spans_that_are_lost_or_not_sampled_are_no_sign(tmp_path):
    for share in (0.2, 0.6):
        tables, rnd = frames(deep()), random.Random(3)
        traces = tables["abnormal", "traces"]
        kept = [span == "" or rnd.random() >= share for span in traces["parent_span_id"]]
        tables["abnormal", "traces"] = traces.filter(pl.Series(kept))
        assert _shown(tmp_path / str(share), tables) == set()


@pytest.mark.slow
def test_another_mix_of_requests_is_no_sign(tmp_path):
    """Quick requests without calls come beside the others, or those that call come less often, or all more often."""
    bare = {Call("gateway", "GET /browse", own_ms=1): 6.0, Call("orders", "POST /orders", own_ms=1): 3.0}
    few = {call: rate / 2 for call, rate in deep().items()}
    many = {call: rate * 2 for call, rate in deep().items()}
    for number, requests in enumerate((deep() | bare, few, many)):
        tables = frames({**deep(), **dict.fromkeys(bare, 0.2)})
        other = frames(requests)
        tables |= {key: table for key, table in other.items() if key[0] == "abnormal"}
        assert _shown(tmp_path / str(number), tables) == set()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "effect", [Effect(gone=frozenset({"bank"})), Effect(fails={"bank": 0.7}), Effect(own_ms={"bank": 500}), CALM]
)
def test_a_caller_is_not_to_blame_for_what_its_callee_does(tmp_path, effect):
    assert _shown(tmp_path, frames(deep(), effect)) <= {"bank"}
