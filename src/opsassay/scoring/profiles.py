"""Grading profiles: the conventions of a grade as data, named in every verdict, and the normal form of service names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pydantic import Field

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.faults import FaultKind
from opsassay.telemetry.datapack import LOAD_GENERATORS


def normalise(name: str, prefixes: Sequence[str] = ()) -> str:
    """Return *name* without the first of *prefixes* that it starts with, in lower case, without '-' and '_'.

    The prefix is compared regardless of case and of '-' against '_', since answers drift in both. It comes off once,
    and never when nothing would be left.
    """
    folded = _fold_name(name)
    for prefix in prefixes:
        if folded.startswith(_fold_name(prefix)) and len(folded) > len(prefix):
            folded = folded[len(prefix) :]
            break
    return folded.replace("-", "")


def _fold_name(name: str) -> str:
    """Return *name* stripped, in lower case, with "-" for "_"."""
    return name.strip().lower().replace("_", "-")


_POD_KINDS = (FaultKind.POD_FAILURE, FaultKind.POD_UNAVAILABLE)
_LOSS_KINDS = (FaultKind.NETWORK_LOSS, FaultKind.NETWORK_PARTITION)


class Profile(Noun):
    """The conventions of a grade; another convention is another profile, with another name."""

    name: str
    prefixes: tuple[str, ...] = Field(default=("ts-",), description="system prefixes that names may drop")
    equivalent_kinds: tuple[tuple[FaultKind, ...], ...] = Field(default=(), description="kinds that count as equal")
    load_generators: tuple[str, ...] = Field(
        default=tuple(sorted(LOAD_GENERATORS)), description="clients of the test, dropped from both sides of graphs"
    )
    undirected: bool = Field(default=False, description="walk claimed edges in both directions")
    public_graph_rules: bool = Field(
        default=False,
        description="as the public scorer: a correct root that is an alarm is a path of its own even when other alarms "
        "exist; the other end of a claimed edge at a load generator is a claimed node; an alarm of a load generator is "
        "an alarm, though no path reaches it; claims are matched greedily, and only a matched one starts a path",
    )

    most_services: int | None = Field(
        default=3,
        description="services that any_service and paths look at, in the order of the claims: who names all has named "
        "none; the public scorer counts any number",
    )
    counts_vacuous: bool = Field(
        default=False,
        description="sql_exec counts a statement that reads no telemetry or finds only zeros, as the public scorer does",
    )

    def same_kind(self, claimed: FaultKind | None, true: FaultKind | None) -> bool:
        """Return whether the claimed fault kind is the true one, or one that the profile declares equivalent."""
        if claimed is None or true is None:
            return False
        return claimed == true or any(claimed in group and true in group for group in self.equivalent_kinds)

    def service(self, name: str) -> str:
        """Return service *name* in normal form: lower case, without "-", "_" and the profile's prefixes."""
        return normalise(name, self.prefixes)

    def is_load_generator(self, service: str) -> bool:
        """Return whether *service*, in normal form, is a load generator."""
        return service in {self.service(name) for name in self.load_generators}


PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        "default": Profile(name="default"),
        "lenient": Profile(name="lenient", equivalent_kinds=(_POD_KINDS, _LOSS_KINDS)),
        # OpenRCA 2.0 as its Appendix G defines it: any number of claimed services, and directed paths.
        "openrca2": Profile(name="openrca2", equivalent_kinds=(_POD_KINDS,), most_services=None, counts_vacuous=True),
        # The public scorer of OpenRCA 2.0, figure by figure, for comparison with published numbers. Its path
        # reachability ignores the direction of edges; the paper's Equation 10 asks for a directed path.
        "compat": Profile(
            name="compat",
            prefixes=(),
            equivalent_kinds=(_POD_KINDS,),
            undirected=True,
            public_graph_rules=True,
            most_services=None,
            counts_vacuous=True,
        ),
    }
)


def profile_named(name: str) -> Profile:
    """Return the grading profile called *name*; raises NotFoundError."""
    if name not in PROFILES:
        raise NotFoundError("grading profile", name, PROFILES)
    return PROFILES[name]
