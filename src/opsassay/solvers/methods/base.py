"""The protocol of a diagnosis method, the registry of methods, and the protocol text of their answers."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from opsassay.core.errors import UserError
from opsassay.core.registry import Registry
from opsassay.core.schema.diagnosis import Diagnosis, RankedService
from opsassay.solvers.methods.parameters import read_parameters
from opsassay.telemetry.datapack import Datapack


@runtime_checkable
class Method(Protocol):
    """An algorithmic diagnoser: a pure function of one incident's telemetry."""

    @property
    def name(self) -> str:
        """The method's registered name."""

    @property
    def source(self) -> str:
        """The origin of the idea: paper and section, or its purpose."""

    @property
    def cost(self) -> str:
        """The cost of one diagnosis as a phrase, such as its time; methods use no tokens."""

    @property
    def configuration(self) -> Mapping[str, Any]:
        """All settings that influence its answers; they are part of the solver hash.

        A method that only ranks services has the class attribute ``names_fault_kinds`` False; one that can name only some
        fault kinds lists them in the class attribute *fault_kinds*.
        """

    def diagnose(self, view: Datapack) -> Diagnosis:
        """Return the diagnosis of *view*: root causes (none when nothing is wrong), a ranking of services, the protocol."""


METHODS = Registry(
    "method",
    "opsassay.methods",
    {
        "baro": "opsassay.solvers.methods.baro:Baro",
        "cd-1min": "opsassay.solvers.methods.cd_1min:Cd1Min",
        "max-z": "opsassay.solvers.methods.max_z:MaxZ",
        "alert-count": "opsassay.solvers.methods.alert_count:AlertCount",
        "circa": "opsassay.solvers.methods.circa:Circa",
        "self-time": "opsassay.solvers.methods.self_time:SelfTime",
        "loudest": "opsassay.solvers.methods.loudest:Loudest",
        "gap": "opsassay.solvers.methods.gap:Gap",
        "constant": "opsassay.solvers.methods.constant:Constant",
        "chance": "opsassay.solvers.methods.chance:Chance",
    },
)
"""Classes of methods by name; an installed package adds its own through the entry-point group ``opsassay.methods``."""


def method_named(name: str, parameters: Mapping[str, Any] = {}) -> Method:
    """Return the method called *name*, with *parameters* in place of their defaults.

    *name* is registered, ``MODULE:CLASS`` or ``FILE.py:CLASS``. Raises NotFoundError with the nearest registered name or
    parameter, UserError when the code cannot be loaded, is no method or refuses a value.
    """
    made = class_named(name)
    given = read_parameters(name, made, parameters)
    try:
        method = made(**given)
    except Exception as error:
        raise UserError(f"The method {name} cannot be made: {type(error).__name__}: {error}.") from error
    if not isinstance(method, Method):
        raise UserError(f"{name} is no method: it needs name, source, cost, configuration and diagnose(view).")
    return method


def class_named(name: str) -> Any:
    """Return the class of the method *name*: registered, MODULE:CLASS or FILE.py:CLASS; raises as `method_named`."""
    where, colon, attribute = name.rpartition(":")
    if not colon:
        return METHODS.load(name)
    try:
        return getattr(_module_of(Path(where)) if where.endswith(".py") else importlib.import_module(where), attribute)
    except (Exception, SystemExit) as error:
        why = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise UserError(
            f"The method {name} cannot be imported ({why}); give MODULE:CLASS, FILE.py:CLASS or a known name."
        ) from error


def _module_of(file: Path) -> ModuleType:
    """Import the Python file *file* and return the module; its folder is added to sys.path. Raises ImportError."""
    file = file.resolve()
    name = f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportError(f"there is no file {file}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec.loader.exec_module(module)
    return module


def numbers_of(method: Any) -> dict[str, Any]:
    """Return the fields of the dataclass instance *method* that are not None, by name."""
    return {name: value for name, value in asdict(method).items() if value is not None}


def ranked(scores: Mapping[str, float] | Iterable[tuple[str, float]]) -> tuple[RankedService, ...]:
    """Return *scores* (service to score) as a ranking: highest first, equal scores by name."""
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
    """Return the protocol of a diagnosis, choice to phrase: all analysis choices that its result depends on."""
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
