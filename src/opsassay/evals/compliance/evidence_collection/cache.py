"""A cache of evidence: a collector runs once per test cluster or host, however often its answer is graded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from opsassay.core.errors import UserError
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld
from opsassay.evals.compliance.evidence_collection.evidence import CollectedEvidence
from opsassay.evals.compliance.hosts.worlds import HostWorld
from opsassay.telemetry.content import whole_file

GATHERER = "1"
"""Version of the code that runs collectors, part of the cache key."""
W = TypeVar("W", ComplianceWorld, HostWorld)


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to *path* at the end; its folder is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as partial:
        yield partial


class EvidenceCache:
    """Evidence in a *folder*, by the digest of collector and test system."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(
        self, collector: Mapping[str, bytes], world: W, gather: Callable[[Mapping[str, bytes], W], CollectedEvidence]
    ) -> CollectedEvidence:
        """Return the evidence of *collector* (content by name) on *world*: cached, else gathered by *gather*."""
        path = self._folder / f"{evidence_key(collector, world)}.json"
        if path.is_file():
            return _read_kept_evidence(path)
        found = gather(collector, world)
        data = None if found.data is None else found.data.decode()
        with suppress(OSError), _new_file(path) as partial:  # a store that cannot be written to is graded all the same
            partial.write_text(json.dumps({"data": data, "problem": found.problem}), encoding="utf-8")
        return found


class KeptEvidence(EvidenceCache):
    """A read-only cache: evidence that is not in it is not collected."""

    def take(
        self, collector: Mapping[str, bytes], world: W, gather: Callable[[Mapping[str, bytes], W], CollectedEvidence]
    ) -> CollectedEvidence:
        """Return the cached evidence of *collector* on *world*; UserError if absent, as *gather* is never called."""
        del gather
        path = self._folder / f"{evidence_key(collector, world)}.json"
        if not path.is_file():
            raise UserError(f"{self._folder} does not hold what was collected; `opsassay score run` collects it again.")
        return _read_kept_evidence(path)


def _read_kept_evidence(path: Path) -> CollectedEvidence:
    """Return the evidence stored in the JSON file *path*; its data is None when collection failed."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return CollectedEvidence(None if kept["data"] is None else kept["data"].encode(), kept["problem"])


def evidence_key(collector: Mapping[str, bytes], world: ComplianceWorld | HostWorld) -> str:
    """Return the SHA-256 cache key of the evidence of *collector* (content by name) on cluster or host *world*."""
    body = world.objects if isinstance(world, ComplianceWorld) else world.files
    parts = [GATHERER, type(world).__name__, json.dumps(body, sort_keys=True)]
    parts += [f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in sorted(collector.items())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
