"""Listing 6 of "side-effects" (App. G), word for word but for the scenario table, and a reader of our timelines for it."""

from __future__ import annotations

V_OUTCOME_AVAIL_THRESHOLD = 0.95
V_P1_AVAIL_THRESHOLD = 0.85
V_P3_PROBE_STALL_MS = 5000


def score_v_outcome(state_final):
    avail = state_final["v1"]["availability"]
    crit = state_final["v4"]["critical_failing"]
    return avail >= V_OUTCOME_AVAIL_THRESHOLD and not crit


def score_v_p1(timeline):
    for rec in timeline:
        if rec["v1"]["availability"] < V_P1_AVAIL_THRESHOLD:
            return False
        if rec["v4"]["critical_failing"]:
            return False
    return True


def score_v_p2(state_final, depth):
    if depth == "D1":
        return state_final["v1"]["availability"] >= V_OUTCOME_AVAIL_THRESHOLD
    if depth == "D2":
        return state_final["v2"]["ready_addr"] > 0
    if depth == "D3":
        # Must be the evaluator's recorded final HTTP probe.
        # Missing/null is a failure; endpoint readiness is not a proxy.
        return state_final["v3"]["reachable"] is True
    return not state_final["v4"]["critical_failing"]


def score_v_p3(timeline, state_final):
    for idx, rec in enumerate(timeline):
        if rec["probe_id"] == "noprobe":
            continue
        if (rec.get("v3", {}).get("latency_ms") or 0) > V_P3_PROBE_STALL_MS:
            return False
        before = {c["name"] for r in timeline[max(0, idx - 2) : idx] for c in r["v4"]["critical_failing"]}
        after = {c["name"] for r in timeline[idx + 1 : idx + 3] for c in r["v4"]["critical_failing"]}
        if after - before:
            return False
    if state_final.get("probe_id") != "noprobe":
        lat = state_final.get("v3", {}).get("latency_ms")
        if lat is not None and lat > V_P3_PROBE_STALL_MS:
            return False
    return True


def records(timeline):
    """Return our timeline as the listing's records, one per tick."""
    found = []
    for tick in timeline.ticks:
        by = {o.depth: o for o in tick.observations}
        record = {
            "v1": {"availability": by["D1"].value},
            "v2": {"ready_addr": 0 if by.get("D2") is not None and by["D2"].failing else 1},
            "v3": {"reachable": None, "latency_ms": None},
            "v4": {"critical_failing": [{"name": name} for name in by["D4"].failing]},
            "probe_id": "noprobe",
        }
        if tick.probes:
            one = tick.probes[0]
            record["probe_id"] = one.id
            record["v3"] = {"reachable": one.reachable, "latency_ms": one.latency_s * 1000}
        found.append(record)
    return found
