"""What the right repairs of a scenario change: the only settings that a repair may leave other than before the fault."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from opsassay.core.schema.scenario import Scenario
from opsassay.testbed.operations.protection import EMPTIED, PROCESS

_WORD = re.compile(r"[A-Za-z0-9{][A-Za-z0-9_.{}-]*")

ENDING, REQUESTS = frozenset({"restart", "release", "scale"}), frozenset({"exec curl", "exec_curl"})
"""Verbs that end processes of a service, and those that send a request."""
REPLICAS = " replicas"
"""So ends the name of a number that is right or not, and not near it."""
FIREWALL = "firewall"
"""What stands for every rule of a firewall: a scenario leaves the names of rules open."""
Values = tuple[str | None, ...]


@dataclass(frozen=True)
class RightChanges:
    """The changes of right repairs: of the oracles that must be certified.

    *values* is setting to the values that oracles give it (None: unset), *names* the settings that each oracle changes,
    *calls* service or URL to the most restarts or requests by one oracle. On a cluster, where oracles run kubectl,
    *words* are the words of each oracle's commands; *named* are the entities of the truth.
    """

    values: Mapping[str, Values]
    names: tuple[frozenset[str], ...]
    words: tuple[frozenset[str], ...] = ()
    named: frozenset[str] = frozenset()
    calls: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_scenario(cls, scenario: Scenario) -> RightChanges:
        """Return the changes by those oracles of *scenario* that must be certified."""
        right = [oracle.steps for oracle in scenario.oracles.values() if oracle.certified]
        changes = [[changed_setting(step.verb, step.arguments) for step in steps] for steps in right]
        values: dict[str, Values] = {}
        for name, value in (one for each in changes for one in each if one is not None):
            values[name] = (*values.get(name, ()), value)
        names = tuple(frozenset(one[0] for one in each if one is not None) for each in changes)
        calls: Counter[str] = Counter()
        for steps in right:
            calls |= Counter(one for step in steps if (one := aim_of(step.verb or "", step.arguments)) is not None)
        if scenario.cluster is None:
            return cls(values, names, calls=calls)
        words = tuple(frozenset(_words_in([step.arguments for step in steps])) for steps in right)
        return cls(values, names, words, scenario.named_entities(), calls)

    def concerns(self, name: str) -> bool:
        """Return whether a right repair changes the setting *name* or, on a cluster, mentions the setting's object."""
        owner = _owner_of_setting(name)
        return _kind_of_name(name) in self.values or owner in self.named or any(owner in words for words in self.words)

    def values_of(self, name: str) -> Values | None:
        """Return the values that right repairs give the setting *name* (None: unset), None where not known.

        For a replica count on a cluster, these are all numbers in the right repairs' commands.
        """
        if self.words and name.endswith(REPLICAS):
            return tuple(word for words in self.words for word in words if word.isdigit())
        return self.values.get(_kind_of_name(name))

    def releases(self, service: str, version: str) -> bool:
        """Return whether a right repair releases *version* of *service*; on a cluster, whether one mentions it."""
        stated = version in self.values.get(f"{service} release", ())
        return stated or any(version in words for words in self.words)

    def needs(self, name: str) -> bool:
        """Return whether every right repair changes the setting *name*."""
        said = bool(self.words) and all(_owner_of_setting(name) in words for words in self.words)
        return said or (bool(self.names) and all(_kind_of_name(name) in one for one in self.names))


def aim_of(verb: str, arguments: Mapping[str, Any]) -> str | None:
    """Return the service of which *verb* ends processes, or the address that it sends a request to; else None."""
    if verb not in ENDING and verb not in REQUESTS:
        return None
    return str(next((arguments[key] for key in ("service", "target", "url") if key in arguments), ""))


def split_url(url: str) -> SplitResult:
    """Return *url* with path and query unquoted; of a text that is none, as a refused call may have, all is the path."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")
    return parts._replace(path=unquote(parts.path), query=unquote(parts.query))


def changed_setting(verb: str | None, given: Mapping[str, Any]) -> tuple[str, str | None] | None:
    """Return the (name, value) of the setting that *verb* changes with the arguments *given*, value None if unset.

    None when it changes none.
    """
    match verb:
        case "config set" | "config unset":
            return f"{given['target']} {given['key']}", str(given["value"]) if verb == "config set" else None
        case "scale":
            return f"{given['service']} replicas", str(given["replicas"])
        case "restart":
            return f"{given['target']} {EMPTIED}", "1"  # of a store that holds all in memory
        case "kill" | "firewall delete":
            return f"{given['target']} {PROCESS} {given['process']}" if verb == "kill" else FIREWALL, None
        case "release":
            return f"{given['service']} release", str(given["version"])
    return None


def _kind_of_name(name: str) -> str:
    """Return FIREWALL for the name of a firewall rule, any other name unchanged."""
    return FIREWALL if f" {FIREWALL} " in name else name


def _owner_of_setting(name: str) -> str:
    """Return the object in a setting's name: `orders` in "orders app limits.cpu" and "Deployment orders template"."""
    first, *rest = name.split()
    return rest[0] if rest and first[0].isupper() else first


def _words_in(value: object) -> set[str]:
    """Return the distinct words of a text, or of another value's JSON."""
    text = value if isinstance(value, str) else json.dumps(value)
    return set(_WORD.findall(text))
