"""What a method is, which ones there are, and what every answer of one carries."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from opsassay.errors import UserError
from opsassay.model.diagnosis import Diagnosis, RankedService
from opsassay.registry import Registry
from opsassay.telemetry.datapack import Datapack


@runtime_checkable
class Method(Protocol):
    """An algorithmic diagnoser: a pure function of one incident's telemetry."""

    @property
    def name(self) -> str:
        """The name that it is registered under."""

    @property
    def source(self) -> str:
        """Where the idea comes from: paper and section, or what it is there for."""

    @property
    def cost(self) -> str:
        """What a diagnosis costs, in one phrase: methods here cost time alone, no tokens."""

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Every number and choice that moves its answers, part of the solver hash.

        A method that ranks services and never names a fault kind declares it with ``names_fault_kinds`` False.
        """

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Return root causes (none when nothing is wrong), the ranking of all services, and the stated protocol."""


METHODS = Registry(
    "method",
    "opsassay.methods",
    {
        "baro": "opsassay.methods.baro:Baro",
        "cd-1min": "opsassay.methods.cd_1min:Cd1Min",
        "max-z": "opsassay.methods.max_z:MaxZ",
        "alert-count": "opsassay.methods.alert_count:AlertCount",
        "circa": "opsassay.methods.circa:Circa",
        "self-time": "opsassay.methods.self_time:SelfTime",
        "loudest": "opsassay.methods.loudest:Loudest",
        "gap": "opsassay.methods.gap:Gap",
        "constant": "opsassay.methods.constant:Constant",
        "chance": "opsassay.methods.chance:Chance",
    },
)
"""Classes of methods by name; an installed package adds its own through the entry-point group ``opsassay.methods``."""


def method_named(name: str) -> Method:
    """Return the method called *name* with its default configuration.

    *name* is a registered one, or ``module:class`` of code that can be imported. Raises NotFoundError with the nearest
    registered name, UserError when the code cannot be imported or is no method.
    """
    made = (_from_path(name) if ":" in name else METHODS.load(name))()
    if not isinstance(made, Method):
        raise UserError(f"{name} is no method: it needs name, source, cost, configuration and diagnose(view).")
    return made


def _from_path(path: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"The method {path} cannot be imported ({error}); give MODULE:CLASS or a known name."
        ) from error


def ranked(scores: Mapping[str, float] | Iterable[tuple[str, float]]) -> tuple[RankedService, ...]:
    """Return *scores* as a ranking: highest first, equal scores by name."""
    pairs = scores.items() if isinstance(scores, Mapping) else scores
    return tuple(RankedService(service=s, score=x) for s, x in sorted(pairs, key=lambda p: (-p[1], p[0])))


def stated(
    *,
    baseline_window: str,
    column_set: str,
    imputation: str,
    zero_variance: str,
    metric_to_service: str,
    ties: str = "alphabetical",
    claim_threshold: str,
    fault_kind: str,
    **further: Any,
) -> dict[str, Any]:
    """Return the protocol of a diagnosis: the choices that move accuracy by up to 31 points, none of them left out."""
    return {
        "baseline_window": baseline_window,
        "column_set": column_set,
        "imputation": imputation,
        "zero_variance": zero_variance,
        "metric_to_service": metric_to_service,
        "ties": ties,
        "claim_threshold": claim_threshold,
        "fault_kind": fault_kind,
        **further,
    }
