"""What the catalogue says of a fault type beside its row in Table 5: effect, preconditions, what it excludes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from opsassay.core.errors import RefusedError, UserError
from opsassay.core.schema.faults import (
    Actuator,
    Category,
    Channel,
    FaultKind,
    FaultType,
    Layer,
    Level,
    Parameter,
    families,
    fault_type,
)
from opsassay.core.schema.incident import PlannedFault
from opsassay.core.schema.system import Service
from opsassay.testbed.catalogue.measures import Signature
from opsassay.testbed.core.fleet import Fleet

SERVICE_POD = (Level.SERVICE, Level.POD)
INSIDE_A_PROCESS = "it acts inside the process of one service; name a service"


class Objection(NamedTuple):
    """What is wrong with a plan, and in which of its fields."""

    field: str
    error: UserError


Objections = Callable[[Fleet, PlannedFault], Iterator[Objection]]


def none(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:  # noqa: ARG001
    """Yield no objection (plan field, error): the check of a fault type that can act on every target."""
    yield from ()


@dataclass(frozen=True)
class CataloguedFault:
    """One fault type: its *row* in Table 5 and what an injection needs to know about it.

    *signature* measures its effect; *recovered_when_ready* says that nothing else has to be measured to see it gone.
    *objections* yields what stands against a plan whose target exists. *why_no_host* is the reason why its target cannot be
    a host, '' when it can. *excludes_others* and *excludes_itself*, with ``{replica}`` in them, say why no other
    fault, or no second one of this type, can act on the same replica. *impairment* makes what networks read of parameters.
    *hook* is the name by which the runtime of a service knows what it does inside its process, '' when that is nothing.
    *by_sidecar* says that a sidecar in front of a program can do it as well, *by_clock* that a library preloaded
    into one can.
    """

    row: FaultType
    signature: Signature
    objections: Objections = none
    recovered_when_ready: bool = False
    why_no_host: str = ""
    excludes_others: str = ""
    excludes_itself: str = ""
    impairment: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    hook: str = ""
    by_sidecar: bool = False
    by_clock: bool = False


@dataclass(frozen=True)
class FamilyTraits:
    """What the types of a family share, unless a type says otherwise; *parameters* stand behind a type's own."""

    category: Category
    layer: Layer
    levels: tuple[Level, ...]
    channel: Channel
    actuator: Actuator
    why_no_host: str = ""
    emulated_on_local: bool = False
    parameters: tuple[Parameter, ...] = ()
    objections: Objections = none

    def fault(
        self,
        name: str,
        kind: FaultKind,
        *parameters: Parameter,
        signature: Signature,
        levels: tuple[Level, ...] | None = None,
        channel: Channel | None = None,
        aliases: tuple[str, ...] = (),
        on_hosts: bool = False,
        objections: Objections | None = None,
        **fields: Any,
    ) -> CataloguedFault:
        """Return the catalogue entry of the fault type *name* with its own *parameters* and the family's traits.

        *levels*, *channel*, *objections* None are the family's. *signature* measures the effect, *kind* is what a
        diagnosis may claim, *on_hosts*: hosts can be targets; *fields* are others of `CataloguedFault`.
        """
        row = FaultType(
            name=name,
            category=self.category,
            layer=self.layer,
            levels=levels or self.levels,
            channel=channel or self.channel,
            kind=kind,
            actuator=self.actuator,
            parameters=(*parameters, *self.parameters),
            aliases=aliases,
            emulated_on_local=self.emulated_on_local,
        )
        why_no_host = "" if on_hosts else self.why_no_host
        return CataloguedFault(row, signature, objections or self.objections, why_no_host=why_no_host, **fields)


@functools.cache
def _read_catalogue() -> Mapping[str, CataloguedFault]:
    """Return all faults of all families by name."""
    found: dict[str, CataloguedFault] = {}
    for family in families():
        for fault in family:
            assert isinstance(fault, CataloguedFault), f"{fault} is no CataloguedFault"
            found[fault.row.name] = fault
    return found


def catalogued(name: str) -> CataloguedFault:
    """Return the catalogue's entry of the fault type *name* or a public alias; raises NotFoundError."""
    return _read_catalogue()[fault_type(name).name]


def service_of(fleet: Fleet, fault: PlannedFault) -> Service:
    """Return the definition of the service that *fault* targets."""
    assert fault.target is not None
    return fleet.system.services[fault.target.name]


def cannot_act(fault: PlannedFault, reason: str) -> Objection:
    """Return the objection (plan field, error) that *fault* has no effect on its target service, for *reason*."""
    assert fault.target is not None
    return Objection("target.service", RefusedError(f"{fault.fault} cannot act on {fault.target.name}: {reason}."))


def serves_http(fleet: Fleet, fault: PlannedFault) -> Iterator[Objection]:
    """Yield an objection (plan field, error) when the target service has no HTTP operation and no sidecar."""
    service = service_of(fleet, fault)
    if not (service.operations or service.sidecar):
        yield cannot_act(fault, "it serves no HTTP operation")


def number(name: str, default: float, help_: str, low: float | None = 0, high: float | None = None) -> Parameter:
    """Return a numeric fault parameter in [*low*, *high*] (None: no bound) with a *default*; *help_* describes it."""
    return Parameter(name=name, type="float", default=default, help=help_, minimum=low, maximum=high)


def whole(name: str, default: int | None, help_: str, low: int = 1, high: int | None = None) -> Parameter:
    """Return an integer fault parameter in [*low*, *high*] (None: no bound) with a *default*; *help_* describes it."""
    return Parameter(name=name, type="int", default=default, help=help_, minimum=low, maximum=high)


def text(name: str, default: str | None, help_: str, choices: tuple[str, ...] = ()) -> Parameter:
    """Return a text parameter of a fault with a *default*; *choices* are its values, () any; *help_* describes it."""
    return Parameter(name=name, type="str", default=default, help=help_, choices=choices)


DELAY = number("delay_ms", 300.0, "added delay, milliseconds; under 1 ms nobody could tell it from noise", 1)
