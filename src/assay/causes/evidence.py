"""What a root may show of its own: time, errors, absence, links, stores, resources. Each check is one function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import polars as pl

from assay.causes.added import added_time
from assay.causes.calls import Calls
from assay.causes.disturbed import disturbed
from assay.causes.metrics import Raised, raised
from assay.causes.states import Thresholds, beyond_chance
from assay.causes.wording import changed_lines
from assay.model.incident import Fault
from assay.telemetry.datapack import Datapack

Z_SOURCE = 4.0
Z_BACKED = 3.0
"""For time that a resource explains: its metric has shown the fault already."""

ADDED_MS = 10.0
RATIO = 1.5
LINK_SHARE = 0.8
FAR_BEYOND = 3.0
DOMINANCE = 0.5


@dataclass(frozen=True)
class Sources:
    """Where the fault enters the traffic: own time per call, time per call on a link, and calls that it failed itself.

    *own_ms*: node -> ms. *link_ms*: (caller node, peer) -> ms, a peer being a service or a store's operation.
    *entries* and *exits*: ids of those that the fault itself failed.
    """

    own_ms: dict[str, float] = field(default_factory=dict)
    link_ms: dict[tuple[str, str], float] = field(default_factory=dict)
    entries: frozenset[int] = frozenset()
    exits: frozenset[int] = frozenset()

    @staticmethod
    def merged(parts: Iterable[Sources]) -> Sources:
        """Return the union; times of the same place add up."""
        own: dict[str, float] = {}
        link: dict[tuple[str, str], float] = {}
        entries: frozenset[int] = frozenset()
        exits: frozenset[int] = frozenset()
        for part in parts:
            own |= {k: own.get(k, 0.0) + v for k, v in part.own_ms.items()}
            link |= {k: link.get(k, 0.0) + v for k, v in part.link_ms.items()}
            entries, exits = entries | part.entries, exits | part.exits
        return Sources(own, link, entries, exits)


@dataclass(frozen=True)
class Evidence:
    """The outcome of one check, with the sentence that says what was seen."""

    passed: bool
    sentence: str
    sources: Sources = field(default_factory=Sources)


@dataclass(frozen=True, eq=False)
class Scene:
    """One root on trial: its calls since the fault began, its metrics, and the fault; *pack* is asked for its logs."""

    pack: Datapack
    calls: Calls
    metrics: pl.DataFrame
    histograms: pl.DataFrame
    root: str
    fault: Fault
    thresholds: Thresholds

    @property
    def own(self) -> pl.DataFrame:
        """Entries of the root."""
        return self.calls.entries.filter(pl.col("service") == self.root)

    @property
    def inbound(self) -> pl.DataFrame:
        """Synchronous exits of others (also of load generators) that the root serves or should have served."""
        to_root = (pl.col("callee_service") == self.root) & (pl.col("caller_service") != self.root)
        return self.calls.exits.filter(to_root & ~pl.col("asynchronous"))

    @property
    def outbound(self) -> pl.DataFrame:
        """Exits of the root, to services and stores."""
        return self.calls.exits.filter(pl.col("caller_service") == self.root)


def _rose(table: pl.DataFrame, z: float = Z_SOURCE) -> pl.DataFrame:
    return table.filter(
        (pl.col("z") > z) & (pl.col("added_ms") > ADDED_MS) & (pl.col("added_ms") > (RATIO - 1) * pl.col("before_ms"))
    )


def _own(scene: Scene, value: pl.Expr, what: str) -> Evidence:
    # A caller that sleeps between attempts adds time of its own because its callee fails: those calls are no witness.
    undisturbed = scene.own.filter(~pl.col("any_failed_exit")).with_columns(value=value)
    table = _rose(added_time(undisturbed, "value", ["node"], ["shape"]))
    own = dict(table.select("node", "added_ms").iter_rows())
    if not own:
        return Evidence(passed=False, sentence=f"{scene.root} spends no more {what} than before")
    worst = max(own, key=lambda n: (own[n], n))
    return Evidence(
        passed=True, sentence=f"{worst} spends {own[worst]:.0f} ms more {what} per call", sources=Sources(own_ms=own)
    )


def own_time(scene: Scene) -> Evidence:
    """Look for added time in the root itself, not waiting for anyone."""
    return _own(scene, pl.col("own_ms"), "time of its own")


def store_time(scene: Scene) -> Evidence:
    """Look for added time in which the root waits for its stores."""
    return _own(scene, pl.col("store_ms"), "time in its stores")


def starved_time(scene: Scene) -> Evidence:
    """Look for added time that no callee spent, at the root and on the way to it: a starved process is late everywhere.

    What callers wait for an answer, less what the root's own callees took of it, is tested as a whole and then
    told apart into the root's own time and the time between the callers' spans and the root's.
    """
    unserved = pl.col("own_ms") + pl.col("store_ms") + pl.col("exit_gap_ms")
    entries = scene.own.filter(~pl.col("any_failed_exit")).with_columns(own_part=unserved)
    own = added_time(entries, "own_part", ["node"], ["shape"], whole=True)
    late = _rose(own, Z_BACKED)
    parts = entries.select(callee_entry="entry", own_part="own_part")
    waits = scene.inbound.join(parts, on="callee_entry").with_columns(
        waited=pl.col("own_part") + pl.col("gap_ms").fill_null(0.0), gap_ms=pl.col("gap_ms").fill_null(0.0)
    )
    ends = ["caller_node", "callee_service", "callee_node"]
    slow = _rose(added_time(waits, "waited", ends, ["name"], whole=True), Z_BACKED).select(ends)
    gaps = added_time(waits, "gap_ms", ends, ["name"], whole=True).join(slow, on=ends, how="semi")
    nodes = {*late.get_column("node"), *slow.get_column("callee_node")}
    own_ms = {n: ms for n, ms in own.select("node", "added_ms").iter_rows() if n in nodes and ms > 0}
    link_ms = {
        (c, s): ms
        for c, s, ms in gaps.group_by("caller_node", "callee_service")
        .agg(pl.col("added_ms").mean())
        .sort(ends[:2])
        .iter_rows()
        if ms > 0
    }
    if not nodes:
        return Evidence(passed=False, sentence=f"{scene.root} answers as fast as before")
    worst = max([*own_ms.values(), *link_ms.values()], default=0.0)
    return Evidence(
        passed=True,
        sentence=f"answers of {scene.root} take {worst:.0f} ms more that no callee spends",
        sources=Sources(own_ms=own_ms, link_ms=link_ms),
    )


def inbound_gap(scene: Scene) -> Evidence:
    """Look for added time between the callers' client spans and the root's server spans."""
    gaps = _rose(added_time(scene.inbound, "gap_ms", ["caller_node", "callee_service"], ["name", "callee_node"]))
    link = {(c, s): ms for c, s, ms in gaps.select("caller_node", "callee_service", "added_ms").iter_rows()}
    if not link:
        return Evidence(passed=False, sentence=f"calls reach {scene.root} as fast as before")
    words = f"calls to {scene.root} wait {max(link.values()):.0f} ms more outside it"
    return Evidence(passed=True, sentence=words, sources=Sources(link_ms=link))


def _links(calls: Calls) -> pl.DataFrame:
    """Return synchronous exits with both ends of their link: caller_service and peer, and wait_ms on the link."""
    real = ~pl.col("asynchronous") & ~pl.col("virtual")
    return calls.exits.filter(real).with_columns(
        peer=pl.when("store").then(pl.concat_str(pl.lit("store:"), "name")).otherwise("callee_service"),
        wait_ms=pl.when("store").then("duration_ms").otherwise("gap_ms"),
    )


def _link_table(calls: Calls) -> pl.DataFrame:
    """Return per link whether it became slower: caller_service, peer, slow."""
    table = added_time(_links(calls), "wait_ms", ["caller_service", "peer"], ["name", "caller_node"])
    slow = _rose(table).select("caller_service", "peer", slow=pl.lit(value=True))
    return table.join(slow, on=["caller_service", "peer"], how="left").with_columns(
        pl.col("slow").fill_null(value=False)
    )


def _ends(table: pl.DataFrame, service: str, only_peer: str | None) -> pl.DataFrame:
    touching = table.filter((pl.col("caller_service") == service) | (pl.col("peer") == service))
    if only_peer is None:
        return touching
    return touching.filter((pl.col("peer") == only_peer) | (pl.col("caller_service") == only_peer))


def _left_to_explain(table: pl.DataFrame, slow: pl.DataFrame, root: str, other: str) -> bool:
    """Tell whether most slow links of *root* away from *other* wait far longer than links that touch neither."""
    touches = (pl.col("caller_service") == other) | (pl.col("peer") == other)
    elsewhere = table.filter(~touches & (pl.col("caller_service") != root) & (pl.col("peer") != root))
    usual = elsewhere.get_column("added_ms").median() if elsewhere.height else None
    away = slow.filter(~touches)
    beyond = away.filter(pl.col("added_ms") > FAR_BEYOND * max(float(usual or 0.0), ADDED_MS)).height  # type: ignore[arg-type]
    return beyond > 0 and beyond >= LINK_SHARE * away.height


def link_gap(scene: Scene) -> Evidence:
    """Look for added waiting on (nearly) all links of the root, unless a neighbour explains all of them.

    A neighbour with more slow links, all of them slow, is the better explanation only of what it touches: when links of
    the root that it does not touch wait well beyond what links elsewhere do, the root is needed to explain them.
    """
    table = _link_table(scene.calls)
    peer = scene.fault.peer
    mine = _ends(table, scene.root, peer)
    slow = mine.filter("slow")
    if not slow.height or slow.height < LINK_SHARE * mine.height:
        return Evidence(
            passed=False, sentence=f"{slow.height} of {mine.height} links of {scene.root} are slower than before"
        )
    for other in sorted({*slow.get_column("caller_service"), *slow.get_column("peer")} - {scene.root}):
        theirs = _ends(table, other, None)
        more = theirs.filter("slow").height > slow.height and theirs.get_column("slow").mean() == 1.0
        if peer is None and more and not _left_to_explain(table, slow, scene.root, other):
            return Evidence(passed=False, sentence=f"the slow links of {scene.root} are links of {other}, all slow")
    real = _links(scene.calls).filter((pl.col("caller_service") == scene.root) | (pl.col("peer") == scene.root))
    each = _rose(added_time(real, "wait_ms", ["caller_node", "peer"], ["name"]))
    link = {(c, p): ms for c, p, ms in each.select("caller_node", "peer", "added_ms").iter_rows()}
    most = max(slow.get_column("added_ms").to_list())
    sentence = f"{slow.height} of {mine.height} links of {scene.root} are slower by up to {most:.0f} ms"
    return Evidence(passed=True, sentence=sentence, sources=Sources(link_ms=link))


_BROKEN = pl.col("failed") & (pl.col("absent") | pl.col("store") | (pl.col("served_well").fill_null(value=False)))


def _with_outcome(scene: Scene, exits: pl.DataFrame) -> pl.DataFrame:
    served = scene.calls.entries.select(callee_entry=pl.col("entry"), served_well=~pl.col("failed"))
    return exits.join(served, on="callee_entry", how="left", maintain_order="left")


def _beyond(scene: Scene, exits: pl.DataFrame, hit: pl.Expr, by: str, minimum: int = 2) -> frozenset[int]:
    """Return the ids of abnormal exits with *hit*, in the groups *by* where they are beyond chance."""
    table = exits.with_columns(hit=hit)
    now, before = (table.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    thresholds = scene.thresholds.model_copy(update={"minimum_errors": minimum})
    groups = sorted(beyond_chance(now, before, "hit", thresholds, by=by)) if now.height else []
    return frozenset(now.filter(pl.col("hit") & pl.col(by).is_in(groups)).get_column("exit"))


def link_errors(scene: Scene) -> Evidence:
    """Look for calls that fail between the ends of (nearly) all links of the root."""
    links = _with_outcome(scene, _links(scene.calls)).with_columns(
        link=pl.concat_str("caller_service", pl.lit(" to "), pl.col("peer"), ignore_nulls=True)
    )
    peer = scene.fault.peer
    mine = _ends(links, scene.root, peer)
    broken = _beyond(scene, mine, _BROKEN, "link")
    now = mine.filter((pl.col("period") == "abnormal") & pl.col("peer").is_not_null())
    used = now.group_by("link").len().filter(pl.col("len") >= 3).height
    bad = now.filter(pl.col("exit").is_in(list(broken))).get_column("link").n_unique()
    if not broken or bad < LINK_SHARE * used:
        return Evidence(passed=False, sentence=f"calls break on {bad} of {used} links of {scene.root}")
    return Evidence(
        passed=True, sentence=f"calls break on {bad} of {used} links of {scene.root}", sources=Sources(exits=broken)
    )


def absence(scene: Scene) -> Evidence:
    """Look for failed calls to the root with nothing under them; a restart in the metrics backs a single one."""
    restarted = raised(scene.metrics, scene.root, "restart")
    unready = raised(scene.metrics, scene.root, "unready")
    backed = restarted.passed or unready.passed
    exits = scene.inbound.with_columns(to=pl.lit(scene.root))
    broken = _beyond(scene, exits, pl.col("failed") & pl.col("absent"), "to", minimum=1 if backed else 2)
    if not broken:
        words = f"{scene.root} restarted, but no call missed it" if backed else f"no call to {scene.root} goes unserved"
        return Evidence(passed=backed, sentence=words)
    words = f"{len(broken)} calls to {scene.root} fail unserved" + (", and it restarted" if backed else "")
    return Evidence(passed=True, sentence=words, sources=Sources(exits=broken))


def unconsumed(scene: Scene) -> Evidence:
    """Look for messages to the root that nobody took, or that waited longer than before."""
    to_root = (pl.col("callee_service") == scene.root) & (pl.col("caller_service") != scene.root)
    messages = scene.calls.exits.filter(to_root & pl.col("asynchronous")).with_columns(to=pl.lit(scene.root))
    lost = _beyond(scene, messages, pl.col("absent"), "to", minimum=3)
    lags = _rose(added_time(messages, "lag_ms", ["callee_node"], ["name"]), Z_BACKED)
    waits = dict(lags.select("callee_node", "added_ms").iter_rows())
    if not lost and not waits:
        return Evidence(passed=False, sentence=f"no message to {scene.root} is left lying")
    words = f"{len(lost)} messages to {scene.root} are not taken" if lost else f"messages wait for {scene.root}"
    return Evidence(passed=True, sentence=words, sources=Sources(own_ms=waits, exits=lost))


def own_errors(scene: Scene) -> Evidence:
    """Look for failures that begin here: nothing below the root failed, or its good answers arrive as failures."""
    below = pl.Series(disturbed(scene.calls)[scene.own.get_column("entry").to_numpy()])
    own = scene.own.with_columns(hit=pl.col("own_error") & ~below)
    now, before = (own.filter(pl.col("period") == p) for p in ("abnormal", "normal"))
    nodes = sorted(beyond_chance(now, before, "hit", scene.thresholds)) if now.height else []
    entries = frozenset(now.filter(pl.col("hit") & pl.col("node").is_in(nodes)).get_column("entry"))
    spoilt = pl.col("failed") & pl.col("served_well").fill_null(value=False) & ~pl.col("overrun")
    changed = _beyond(scene, _with_outcome(scene, scene.inbound), spoilt, "callee_service")
    if not entries and not changed:
        return Evidence(passed=False, sentence=f"{scene.root} fails nothing of its own")
    count = len(entries) + len(changed)
    return Evidence(
        passed=True,
        sentence=f"{scene.root} fails {count} calls of its own",
        sources=Sources(entries=entries, exits=changed),
    )


def way_changed(scene: Scene) -> Evidence:
    """Look for log lines of the root that (nearly) all its requests wrote before and now do not, or the reverse.

    This shows a changed method, and nothing of it enters the traffic: only what its callers suffer could.
    """
    lines = changed_lines(scene.pack, scene.calls, scene.root)
    if not lines:
        return Evidence(passed=False, sentence=f"the log lines of {scene.root} come as before")
    line = max(lines, key=lambda a: (abs(a.now - a.before), a.text))
    verb = "stopped" if line.now < line.before else "started"
    return Evidence(passed=True, sentence=f"{scene.root} {verb} logging {_quoted(line.text)}")


def _quoted(text: str) -> str:
    words = text[text.find("[") :] if "[" in text else text
    return repr(words.strip()[:60])


def turned_away(scene: Scene) -> Evidence:
    """Look for calls that fail before the root's handler sees them: the client span has nothing under it."""
    broken = _beyond(scene, scene.inbound, pl.col("failed") & pl.col("absent"), "callee_service")
    words = f"{len(broken)} calls to {scene.root} fail before it serves them" if broken else "all calls are served"
    return Evidence(passed=bool(broken), sentence=words, sources=Sources(exits=broken))


def store_errors(scene: Scene) -> Evidence:
    """Look for failed calls of the root to its stores."""
    broken = _beyond(scene, scene.outbound.filter("store"), pl.col("failed"), "name")
    words = f"{len(broken)} store calls of {scene.root} fail" if broken else f"the stores answer {scene.root} as before"
    return Evidence(passed=bool(broken), sentence=words, sources=Sources(exits=broken))


def lookup_failures(scene: Scene) -> Evidence:
    """Look for places that the root calls and does not reach, most of them, while the root itself is reached."""
    real = _links(scene.calls).filter(pl.col("caller_service") == scene.root)
    wanted = scene.fault.parameters.get("hostname")
    out = real.filter(pl.col("peer") == wanted) if wanted and wanted in set(real.get_column("peer")) else real
    broken = _beyond(scene, out, pl.col("failed") & (pl.col("absent") | pl.col("store")), "peer")
    now = out.filter(pl.col("period") == "abnormal").drop_nulls("peer")
    used, bad = now["peer"].n_unique(), now.filter(pl.col("exit").is_in(list(broken)))["peer"].n_unique()
    words = f"{scene.root} does not reach {bad} of the {used} places that it calls"
    passed = bool(broken) and bad >= LINK_SHARE * used and not absence(scene).sources.exits
    return Evidence(passed=passed, sentence=words, sources=Sources(exits=broken) if passed else Sources())


def payload_changed(scene: Scene) -> Evidence:
    """Look for answers of a size that the baseline never had: most of an operation's."""
    sized = scene.own.drop_nulls("response_bytes")
    before = sized.filter(pl.col("period") == "normal").group_by("node")
    known = before.agg(n=pl.len(), low=pl.col("response_bytes").min(), high=pl.col("response_bytes").max())
    now = sized.filter(pl.col("period") == "abnormal").join(known.filter(pl.col("n") >= 5), on="node", how="inner")
    odd = now.filter((pl.col("response_bytes") < pl.col("low")) | (pl.col("response_bytes") > pl.col("high")))
    share = odd.group_by("node").len("odd").join(now.group_by("node").len("all"), on="node")
    nodes = sorted(share.filter((pl.col("odd") >= 5) & (pl.col("odd") * 2 > pl.col("all"))).get_column("node"))
    entries = frozenset(odd.filter(pl.col("node").is_in(nodes)).get_column("entry"))
    words = f"answers of {', '.join(nodes)} changed size" if nodes else f"answers of {scene.root} look as before"
    return Evidence(passed=bool(nodes), sentence=words, sources=Sources(entries=entries))


def clock_shift(scene: Scene) -> Evidence:
    """Look for server spans that begin 100 ms or more nearer to or farther from their client spans than before."""
    lead = scene.inbound.drop_nulls("lead_ms").group_by("period").agg(pl.len(), pl.col("lead_ms").median())
    shift = {period: value for period, n, value in lead.iter_rows() if n >= 5}
    moved = shift["abnormal"] - shift["normal"] if len(shift) == 2 else 0.0
    words = f"the clock of {scene.root} moved by {moved:.0f} ms against its callers'"
    return Evidence(passed=abs(moved) >= 100.0, sentence=words)


def _resource(scene: Scene, family: str) -> Evidence:
    found: Raised = raised(scene.metrics, scene.root, family)
    return Evidence(passed=found.passed, sentence=found.sentence)


def cpu_raised(scene: Scene) -> Evidence:
    """Look for a rise in processor use, among the largest of the system."""
    return _resource(scene, "cpu")


def memory_raised(scene: Scene) -> Evidence:
    """Look for a rise in memory, among the largest of the system."""
    return _resource(scene, "memory")


def gc_raised(scene: Scene) -> Evidence:
    """Look for a garbage collector that works more than twice as long per second."""
    rows = scene.histograms.filter(
        pl.col("metric").str.contains("gc", literal=True)
        & (pl.col("service_name") == scene.root)
        & pl.col("sum").is_finite()
    )
    total = dict(rows.group_by("period").agg(pl.col("sum").max() - pl.col("sum").min()).iter_rows())
    now = (total.get("abnormal") or 0.0) / scene.calls.seconds("abnormal")
    before = (total.get("normal") or 0.0) / scene.calls.seconds("normal")
    words = f"garbage collection of {scene.root} takes {now:.3f} s per second, {before:.3f} before"
    return Evidence(passed=now > 2 * before and now - before > 0.01, sentence=words)
