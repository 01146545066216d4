"""A search from its first candidate to its summary: resumable, with every attempt on disk as soon as it is over."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsassay.analysis.fault_search.attempts import Attempt, Candidates
from opsassay.analysis.fault_search.repairs import ModelledRepairs, unlike
from opsassay.analysis.fault_search.search import FaultCandidate
from opsassay.core.errors import OperationError, UserError
from opsassay.core.logs import Log
from opsassay.core.schema.json_lines import append_line, read_nouns
from opsassay.core.schema.scenario import Scenario
from opsassay.scoring.rates import wilson
from opsassay.telemetry.content import whole_file
from opsassay.telemetry.datapack import read_object
from opsassay.testbed.operations.search import SearchEnvironment, fault_search_for

_log = Log(__name__)

ATTEMPTS, SEARCH, SUMMARY = "attempts.jsonl", "search.json", "summary.json"
ADMITTED = ("hidden", "benign")
"""What an outcome check alone lets through."""


class Hunt:
    """A search in the folder *out*; *commitment* (scenario, target, seed, kind of search) may not change between calls.

    *settings* are those of the scenario's substrate: which cluster.
    Raises UserError when the folder holds another search.
    """

    def __init__(
        self,
        scenario: Scenario,
        target: str | None,
        out: Path,
        commitment: dict[str, Any],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._scenario, self._target, self._out, self._settings = scenario, target, out, settings
        payload = {"scenario": scenario.id, "digest": scenario.digest(), "target": target, **commitment}
        self._known = {attempt.number: attempt for attempt in read_attempts(out)}
        path = out / SEARCH
        if path.exists() and read_object(path) != payload:
            raise UserError(f"{out} holds another search ({SEARCH} there says which); choose another folder.")
        if not self._known:
            self._require_usable()
        out.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(json.dumps(payload, indent=1) + "\n")
        self._environment: SearchEnvironment | None = None

    def __enter__(self) -> Hunt:
        return self

    def __exit__(self, *_: object) -> None:
        self._remove_environment()

    def attempt(self, number: int, candidate: FaultCandidate) -> Attempt:
        """Return the result of candidate *number*: the stored one if its changes are equal; else try it, store it."""
        known = self._known.get(number)
        if known is not None and known.composition == candidate.composition:
            return known
        try:
            found = self._make_candidates().attempt(number, candidate.composition, candidate.families)
        except OperationError:  # the baseline did not come back, or the system is gone: once more on a new one
            self._remove_environment()
            found = self._make_candidates().attempt(number, candidate.composition, candidate.families)
        append_line(self._out / ATTEMPTS, found, durable=True)
        return found

    def _require_usable(self) -> None:
        """Raise an error when candidates cannot be tried, as without a cluster; called before anything is written."""
        self._make_environment()

    def _make_candidates(self) -> Candidates | ModelledRepairs:
        """Return the object that tries candidates (fault compositions); its environment is made at the first call."""
        if self._environment is None:
            environment = self._make_environment()
            environment.prepare()
            self._environment = environment
        return Candidates(self._environment, self._out)

    def _make_environment(self) -> SearchEnvironment:
        """Return a new environment of the scenario on the target."""
        assert self._target is not None
        search = fault_search_for(self._scenario)
        return search.environment(self._scenario, self._target, 0, self._settings or {})

    def _remove_environment(self) -> None:
        """Remove the environment if there is one; log what is still being removed."""
        environment, self._environment = self._environment, None
        if environment is None:
            return
        environment.remove()
        if left := environment.verify():
            _log.info("the removal goes on", left=left)  # a cluster removes a namespace in its own time


class RepairHunt(Hunt):
    """A search over repairs of *scenario* on the model of its system, with the same folder."""

    def __init__(self, scenario: Scenario, out: Path, commitment: dict[str, Any]) -> None:
        self._modelled = ModelledRepairs(scenario)
        super().__init__(scenario, None, out, {"over": "repairs", **commitment})

    def _require_usable(self) -> None:
        """Do nothing: a simulated search needs no environment."""

    def _make_candidates(self) -> ModelledRepairs:
        """Return the object that simulates candidates, which are repairs."""
        return self._modelled


def read_attempts(out: Path) -> list[Attempt]:
    """Return the attempts stored in the folder *out*, the last one of each number."""
    path = out / ATTEMPTS
    found = read_nouns(path, Attempt) if path.exists() else ()
    return sorted({attempt.number: attempt for attempt in found}.values(), key=lambda attempt: attempt.number)


def summary(attempts: list[Attempt]) -> dict[str, Any]:
    """Return counts by result, and the shares of candidates that pass the outcome check and that are hidden faults.

    Shares are of the candidates that were scored, with Wilson's 95% interval.
    A hidden fault passes the check of the outcome and fails that of depth.
    """
    counts = Counter(attempt.result for attempt in attempts)
    scored = [attempt for attempt in attempts if attempt.result not in ("refused", "invalid")]
    admitted = sum(attempt.result in ADMITTED for attempt in scored)
    hits = [attempt for attempt in scored if attempt.result == "hidden"]
    return {
        "attempts": len(attempts),
        "counts": dict(sorted(counts.items())),
        "scored": len(scored),
        "outcome_admits": _share_with_interval(admitted, len(scored)),
        "hidden": _share_with_interval(len(hits), len(scored)),
        "families": dict(Counter(family for hit in hits for family in set(hit.families)).most_common()),
        "first_hit": min((hit.number for hit in hits), default=None),
        "findings": findings(attempts),
    }


def repair_summary(attempts: list[Attempt]) -> dict[str, Any]:
    """Return counts by result, and the shares of tried and of harmful repairs that are certified and harmful.

    Equal repairs are counted once and invalid ones in no share. Intervals are Wilson's, 95%.
    """
    distinct = unlike(attempts)
    counts = Counter(one.result for one in distinct)
    fooled = [one for one in distinct if one.result == "fooled"]
    return {
        "attempts": len(attempts),
        "distinct": len(distinct),
        "counts": dict(sorted(counts.items())),
        "fooled": _share_with_interval(len(fooled), len(distinct) - counts["invalid"]),
        "fooled_of_harmful": _share_with_interval(len(fooled), len(fooled) + counts["caught"]),
        "families": dict(Counter(family for one in fooled for family in set(one.families)).most_common()),
        "first_hit": min((one.number for one in fooled), default=None),
        "findings": [{"number": one.number, "candidate": one.composition.name, "reason": one.reason} for one in fooled],
    }


def findings(attempts: list[Attempt]) -> list[dict[str, Any]]:
    """Return attempts that show a weakness of the verifier: refused ones, and invalid ones with a full raw score."""
    return [
        {
            "number": a.number,
            "candidate": a.composition.name,
            "result": a.result,
            "would_score": a.raw_fitness,
            "reason": a.reason,
        }
        for a in attempts
        if a.result == "refused" or (a.result == "invalid" and a.raw_fitness == 1.0)
    ]


def _share_with_interval(count: int, n: int) -> dict[str, Any]:
    """Return {count, n, share and its Wilson interval}; the share is None for n = 0."""
    return {"count": count, "n": n, "share": count / n if n else None, "interval": list(wilson(count, n))}
