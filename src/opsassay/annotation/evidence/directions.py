"""In which direction a network fault acts: tests each class of links at one place, and rival faults at their other ends.

Packets are delayed, lost or cut on their way out of a process or into it: on all of its links, on those with one peer,
or on those of one protocol. In the class of links that the fault affects, calls must be slow or broken; outside it they
must not be, and no fault at the other end of the links may explain more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl

from opsassay.annotation.evidence.context import EvidenceContext, SignatureCheck, Sources
from opsassay.annotation.evidence.links import CALL, ENDS, LinkCalls, chance, link_calls, share_hit, with_support
from opsassay.annotation.evidence.load_normalisation import at_usual_pace
from opsassay.core.schema.faults import FaultKind

Links = pl.DataFrame


@dataclass(frozen=True)
class Hypothesis:
    """A network fault at *place* in *direction* (inbound, outbound, both, peer:NAME or protocol:NAME).

    *slow*: the (caller, peer) links that show it, of the *tells* conclusive links of its class. *links*: all links of
    the class. *added_ms*: the least added wait of a hit call. *stores*: whether only links to stores show it.
    *support*: the log likelihood ratios of `with_support`, each capped at most_of_one_link either way, summed over the
    class minus those outside it.
    """

    place: str
    direction: str
    slow: frozenset[tuple[str, str]]
    tells: int
    support: float
    links: frozenset[tuple[str, str]]
    added_ms: float
    stores: bool


@dataclass(frozen=True, eq=False)
class _Question:
    """Calls over links, and how a fault of one kind must affect them.

    *least*: smallest share of calls hit; *least_ms*: smallest added wait of a hit call; *alike*: all hit calls wait
    about equally long; *breaks*: hit calls fail, and waiting does not count.
    """

    calls: LinkCalls
    least: float = 0.0
    least_ms: float = 0.0
    alike: bool = False
    breaks: bool = False

    def table(self, added_ms: float) -> Links:
        """Return `LinkCalls.count_by_link`, where a call is hit when it waits *added_ms* longer than its baseline."""
        return self.calls.count_by_link(self.calls.hit(added_ms))

    def smallest(self, place: str, members: pl.Expr) -> float:
        """Return the added wait (ms) from which a call at *place*, on links that the filter *members* selects, is hit."""
        if not self.alike or self.breaks:
            return math.inf if self.breaks else self.least_ms
        calls, limits = self.calls, self.calls.thresholds
        hits = calls.hit(kinds=_calls_or_serves(place) & members)
        suspects = calls.count_by_link(hits).filter((pl.col("p") < limits.suspicious) & (pl.col("k") > 0))
        now = hits.filter((pl.col("period") == "abnormal") & pl.col("hit"))
        now = now.join(calls.kinds.select("kind", "link", "usual_ms"), on="kind")
        now = now.join(suspects, on="link", how="semi") if suspects.height else now
        each = now.group_by("link").agg(ms=(pl.col("waited_ms") - pl.col("usual_ms")).median())
        usual = each.get_column("ms").median()
        return (
            max(limits.smallest_part * float(usual), self.least_ms)
            if isinstance(usual, (int, float))
            else self.least_ms
        )


def _calls_or_serves(place: str) -> pl.Expr:
    """Return a polars filter for links whose caller or callee is *place*."""
    return _is_called(place) | _is_caller(place)


def _is_called(place: str) -> pl.Expr:
    """Return a polars filter for links whose callee is *place*."""
    return pl.col("peer") == place


def _is_caller(place: str) -> pl.Expr:
    """Return a polars filter for links whose caller is *place*."""
    return pl.col("caller_service") == place


def _link_classes(place: str, links: Links, peer: str | None) -> Iterator[tuple[str, pl.Expr]]:
    """Yield (name, filter) of each group of *place*'s links that a fault may hit; with *peer* only its links."""
    if peer is not None:
        yield from _with_peer(links, peer)
        return
    yield "both", _calls_or_serves(place)
    yield "inbound", _is_called(place)
    yield "outbound", _is_caller(place)
    yield from _split_by_protocol(links)


def _split_by_protocol(links: Links) -> Iterator[tuple[str, pl.Expr]]:
    """Yield (name, filter) for the links of each protocol, and of all stores if several; none for one protocol."""
    spoken = links.get_column("protocol").unique().sort().to_list()
    if len(spoken) < 2:
        return
    if len(spoken) > 2:
        yield "protocol:store", pl.col("protocol") != CALL
    for protocol in spoken:
        yield f"protocol:{protocol}", pl.col("protocol") == protocol


def _with_peer(links: Links, peer: str) -> Iterator[tuple[str, pl.Expr]]:
    """Yield (name, filter) of the links with *peer*; if no link names it, one filter for each store protocol."""
    called = (pl.col("caller_service") == peer) | (pl.col("peer") == peer)
    called |= (pl.col("protocol") != CALL) & pl.col("peer").str.contains(peer, literal=True)
    if links.filter(called).height:
        yield f"peer:{peer}", called
        return
    stores = links.filter(pl.col("protocol") != CALL)
    for protocol in stores.get_column("protocol").unique().sort():
        yield f"peer:{peer}", pl.col("protocol") == protocol


def best_hypothesis(
    place: str,
    question: _Question,
    *,
    peer: str | None = None,
    only_direction: str | None = None,
    added_ms: float | None = None,
) -> Hypothesis | None:
    """Return the network fault at *place* that the calls of *question* support best; None when they support none.

    A group of links (such as inbound ones) is supported when at least *link_share* of its conclusive links are slow, at
    least as many outside of it are not, and its hits are significant. *only_direction* limits the search to one group,
    *peer* to one other end; *added_ms* is the least added wait of a hit call.
    """
    best: Hypothesis | None = None
    links = question.calls.kinds.filter(_calls_or_serves(place)).select(*ENDS, "protocol").unique()
    for direction, members in _link_classes(place, links, peer):
        if only_direction not in (None, direction):
            continue
        found = _hypothesis_for(place, question, direction, members, added_ms)
        if found is not None and (best is None or found.support > best.support):
            best = found
    return best


def _hypothesis_for(
    place: str, question: _Question, direction: str, members: pl.Expr, added_ms: float | None
) -> Hypothesis | None:
    """Return the fault in *direction* on the links of *place* that the filter *members* selects; None if unsupported."""
    agree, limits = question.calls.limits.link_share, question.calls.thresholds
    least_ms = question.smallest(place, members) if added_ms is None else added_ms
    mine = question.table(least_ms).filter(_calls_or_serves(place))
    inside = mine.filter(members.fill_null(value=False))
    share = share_hit(inside, question.least, limits)
    if share is None or chance(inside) > limits.chance:
        return None
    inside = with_support(inside, share, limits)
    outside = with_support(mine.filter(~members.fill_null(value=False)), share, limits)
    slow, spared = inside.filter("slow"), inside.filter("spared")
    if not slow.height or slow.height < agree * (slow.height + spared.height):
        return None
    out = slow.select(_is_caller(place)).to_series()
    if direction == "both" and (out.all() or not out.any()):
        return None  # all on one side: that is the smaller claim
    if out.all():  # a place that waits lets its callers wait: that says nothing against
        outside = outside.filter(_is_caller(place) | ~pl.col("slow"))
    also, not_ = outside.filter("slow").height, outside.filter("spared").height
    if also > (1 - agree) * (also + not_):
        return None
    capped = pl.col("support").clip(-limits.most_of_one_link, limits.most_of_one_link).sum()
    return Hypothesis(
        place=place,
        direction=direction,
        slow=_pairs_of_links(slow),
        tells=slow.height + spared.height,
        support=float(inside.select(capped).item() - outside.select(capped).item()),
        links=_pairs_of_links(inside.filter(~pl.col("spared"))),
        added_ms=least_ms,
        stores=bool((slow.get_column("protocol") != CALL).all()),
    )


def _pairs_of_links(table: Links) -> frozenset[tuple[str, str]]:
    """Return the (caller, callee) pair of each row of *table*."""
    return frozenset(table.select(ENDS).iter_rows())


def _is_one_of_links(links: frozenset[tuple[str, str]]) -> pl.Expr:
    """Return a polars filter for rows whose (caller, callee) is one of *links*."""
    ends = pl.struct(ENDS)
    return ends.is_in([{"caller_service": caller, "peer": peer} for caller, peer in sorted(links)])


def _rival_hypotheses(context: EvidenceContext, hypothesis: Hypothesis, question: _Question) -> Iterator[Hypothesis]:
    """Yield the best network fault at the other end of each slow link of *hypothesis*; load generators are left out."""
    ends = {end for link in hypothesis.slow for end in link} - {hypothesis.place}
    for other in sorted(ends & set(context.calls.services)):
        theirs = best_hypothesis(other, question, added_ms=hypothesis.added_ms)
        if theirs is not None and theirs.slow & hypothesis.slow:
            yield theirs


def direction_of(context: EvidenceContext, direction: str | None = None) -> tuple[Hypothesis | None, LinkCalls, str]:
    """Return (the network fault at the root or None, the calls over links, a sentence about the finding).

    The fault is None when another end of the links explains the calls better. *direction* limits the search to one.
    """
    calls, peer, root = link_calls(context), context.fault.peer, context.root
    share = context.fault.kind in _OF_A_SHARE
    least = 0.0 if share else calls.thresholds.least_hit_by_delay
    least_ms = calls.thresholds.resent_ms if context.fault.kind in _RESENT else 0.0
    asked = _Question(calls, least, least_ms, alike=context.fault.kind not in _UNLIKE)
    named = context.fault.parameters.get("direction")
    called = str(named) if direction is None and named in _OF_CALLS else direction
    found = best_hypothesis(root, asked, peer=peer, only_direction=called) or best_hypothesis(
        root, asked, peer=peer, only_direction=direction
    )
    if found is None:
        mine = asked.table(0.0).filter(_calls_or_serves(root))
        shown = with_support(mine, calls.thresholds.most_hit, calls.thresholds).filter("slow").height
        return None, calls, f"{shown} of {mine.height} links of {root} are slower or break, in no direction"
    better, equal = _compare_rivals(context, found, asked) if peer is None else (None, None)
    if better is not None:
        words = f"the links of {root} that show it are links of {better.place}, which explains {len(better.slow)}"
        return None, calls, words
    if equal is not None and not _is_late_as_recorded(context, found, calls):
        return None, calls, f"what shows is between {root} and {equal.place}, and either could be the cause"
    if found.stores and not context.fault.parameters.get("direction") and peer is None:
        return None, calls, f"only stores of {root} are slower, which may be slow themselves"
    words = f"{len(found.slow)} of {found.tells} links of {root} that tell show it, direction {found.direction}"
    return found, calls, words


def _compare_rivals(
    context: EvidenceContext, hypothesis: Hypothesis, question: _Question
) -> tuple[Hypothesis | None, Hypothesis | None]:
    """Return (a rival fault that explains more than *hypothesis* or None, one that explains the same or None)."""
    rivals = list(_rival_hypotheses(context, hypothesis, question))
    packets = context.fault.parameters.get("direction") in _OF_PACKETS
    same = {rival for rival in rivals if hypothesis.slow in (rival.slow, rival.slow if packets else _own_links(rival))}
    mine = (len(hypothesis.slow), hypothesis.support)
    more = (rival for rival in rivals if rival not in same and (len(rival.slow), rival.support) > mine)
    return next(more, None), next(iter(same), None)


def _own_links(hypothesis: Hypothesis) -> frozenset[tuple[str, str]]:
    """Return the slow links on which the place of *hypothesis* is the caller; if there are none, all slow links."""
    made = frozenset(link for link in hypothesis.slow if link[0] == hypothesis.place)
    return made or hypothesis.slow


def who_breaks(context: EvidenceContext, direction: str) -> tuple[bool, str | None]:
    """Return (whether a fault of the root explains best why calls in *direction* break, place of an equal rival).

    *direction* is inbound or outbound. The first is False also when too few links of that direction break, the second
    None without such a rival.
    """
    asked = _Question(link_calls(context), breaks=True)
    found = best_hypothesis(context.root, asked, peer=context.fault.peer, only_direction=direction)
    if found is None:
        return False, None
    better, equal = _compare_rivals(context, found, asked)
    return better is None, equal.place if equal is not None else None


_OF_A_SHARE = frozenset(
    {FaultKind.NETWORK_LOSS, FaultKind.NETWORK_CORRUPT, FaultKind.NETWORK_DUPLICATE, FaultKind.NETWORK_BANDWIDTH_LIMIT}
)
"""Kinds that hit only some packets, so that any share of the calls may be affected."""

_OF_CALLS = frozenset({"inbound", "outbound"})
_OF_PACKETS = frozenset({"from", "to", "both"})
"""Directions of packets, whichever side called: sent from the place, sent to it, or both."""

_RESENT = frozenset({FaultKind.NETWORK_LOSS, FaultKind.NETWORK_CORRUPT})

_UNLIKE = frozenset({FaultKind.NETWORK_DUPLICATE, FaultKind.NETWORK_BANDWIDTH_LIMIT})
"""Kinds under which some calls wait long and others hardly, by their size."""


def _is_late_as_recorded(context: EvidenceContext, hypothesis: Hypothesis, calls: LinkCalls) -> bool:
    """Return whether packets are late in the direction that the fault's record names; False when it names none.

    Packets from callee to caller are late after the callee has ended; those to it before it begins (and when a
    connection has to be opened, its answers too). Clocks that disagree cancel out against the baseline, unless they
    move.
    """
    named = context.fault.parameters.get("direction")
    if named in _OF_CALLS:
        return str(named) == hypothesis.direction
    if named not in _OF_PACKETS:
        return False
    after = _share_after_callee_end(calls, hypothesis)
    if named == "both" or after is None:
        return True
    answers_late = after >= calls.thresholds.one_way
    return bool(answers_late == ((named == "from") == (hypothesis.direction == "inbound")))


def _share_after_callee_end(calls: LinkCalls, hypothesis: Hypothesis) -> float | None:
    """Return the share of the added time that falls after the callee's end; None without data or if clocks moved."""
    parts = calls.calls_of(_is_one_of_links(hypothesis.slow)).drop_nulls(["lead_ms", "gap_ms"])
    medians = parts.group_by("period").agg(before=pl.col("lead_ms").median(), whole=pl.col("gap_ms").median())
    rows = {row["period"]: row for row in medians.iter_rows(named=True)}
    least = calls.limits.added_ms
    if len(rows) < 2:
        return None
    whole = rows["abnormal"]["whole"] - rows["normal"]["whole"]
    before = rows["abnormal"]["before"] - rows["normal"]["before"]
    return 1 - before / whole if whole > least and -least < before < whole + least else None


def _sources_of(hypothesis: Hypothesis, calls: LinkCalls) -> Sources:
    """Return the added time per link and the broken calls on the links that the fault of *hypothesis* may hit."""
    now = calls.calls_of(_is_one_of_links(hypothesis.links)).filter(pl.col("period") == "abnormal")
    of_kinds = calls.kinds.select("kind", "caller_node", "to", "before_ms")
    ends = now.join(of_kinds, on="kind", maintain_order="left").group_by("caller_node", "to")
    each = ends.agg(ms=(pl.col("waited_ms") - pl.col("before_ms")).mean()).drop_nulls()
    link = {(c, p): ms for c, p, ms in each.sort("caller_node", "to").iter_rows() if ms > calls.limits.added_ms}
    return Sources(link_ms=link, exits=frozenset(now.filter("broken").get_column("exit")))


def _make_direction_check(only: str | None) -> Callable[[EvidenceContext], SignatureCheck]:
    """Return a signature check for a network fault at the root: in the direction *only*, or in any when that is None."""

    @at_usual_pace
    def check(context: EvidenceContext) -> SignatureCheck:
        found, calls, words = direction_of(context, only)
        if found is None:
            return SignatureCheck(passed=False, sentence=words)
        return SignatureCheck(passed=True, sentence=words, sources=_sources_of(found, calls), direction=found.direction)

    return check


link_fault = _make_direction_check(None)
"""Check for added waiting or broken calls on a class of links of the root, unless a fault elsewhere explains more."""

inbound_wait = _make_direction_check("inbound")
"""The same check, limited to calls that the root receives."""
