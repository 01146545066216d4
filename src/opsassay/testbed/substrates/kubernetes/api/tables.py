"""Objects as the tables that kubectl prints: a server computes the cells, since kubectl knows no kind by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from opsassay.core.schema.files import packaged_yaml
from opsassay.testbed.substrates.kubernetes.api.client import Object

Cell = Callable[[Object], Any]

NONE, UNKNOWN = "<none>", "<unknown>"
WIDE = 1
"""The priority of a column that only `-o wide` shows."""


def table(kind: str, items: Sequence[Object], version: str) -> dict[str, Any]:
    """Return *items* of *kind* as a Table of ``meta.k8s.io/v1``; *version* is the list's resourceVersion or ''."""
    columns = [("Name", lambda item: item["metadata"]["name"], 0), *COLUMNS.get(kind, (("Age", CELLS["age"], 0),))]
    definitions = [
        {
            "name": name,
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": wide,
        }
        for name, _, wide in columns
    ]
    rows = [{"cells": [_text(cell, item) for _, cell, _ in columns], "object": _metadata_alone(item)} for item in items]
    metadata = {"resourceVersion": version} if version else {}
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {**head, "columnDefinitions": definitions, "rows": rows}


def age(since: Any, now: datetime | None = None) -> str:
    """Return the time from *since* (ISO 8601) to *now* (default: the present) as kubectl writes it: "3d4h", "12s"."""
    try:
        began = datetime.fromisoformat(since)
        seconds = int(((now or datetime.now(UTC)) - began.astimezone(UTC)).total_seconds())
    except (ValueError, TypeError):
        return UNKNOWN
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    years = days // 365
    for within, text in (
        (seconds < 120, f"{seconds}s"),
        (minutes < 10, _join_two_units(minutes, "m", seconds % 60, "s")),
        (hours < 3, f"{minutes}m"),
        (hours < 8, _join_two_units(hours, "h", minutes % 60, "m")),
        (hours < 48, f"{hours}h"),
        (days < 8, _join_two_units(days, "d", hours % 24, "h")),
        (years < 2, f"{days}d"),
        (years < 8, _join_two_units(years, "y", days % 365, "d")),
    ):
        if within:
            return text
    return f"{years}y"


def _join_two_units(large: int, large_unit: str, small: int, small_unit: str) -> str:
    """Return *large* and *small* with their units as an age, "3d4h"; without the smaller one when it is 0."""
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


def _text(cell: Cell, item: Object) -> str:
    """Return the text of *cell* for *item*: `<none>` for None, `<unknown>` where the object has an unusual form."""
    try:
        value = cell(item)
    except (TypeError, AttributeError, LookupError, ValueError):
        return UNKNOWN
    return NONE if value is None else str(value)


def _metadata_alone(item: Object) -> dict[str, Any]:
    """Return the PartialObjectMetadata of *item*, which rows of a table carry."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


def cell_at(*path: str, absent: Any = None) -> Cell:
    """Return a function from object to the value at *path* in it, *absent* where there is none."""

    def cell(item: Object) -> Any:
        found: Any = item
        for name in path:
            found = found.get(name) if isinstance(found, Mapping) else None
        return absent if found is None else found

    return cell


def _comma_list(words: Iterable[Any]) -> str | None:
    """Return *words* joined by commas, None when there are none."""
    return ",".join(str(word) for word in words) or None


def _pairs_at(*path: str) -> Cell:
    """Return a function from object to the mapping at *path* as "key=value,..."."""
    return lambda item: _comma_list(f"{key}={value}" for key, value in (cell_at(*path)(item) or {}).items())


def _each(field: str, *path: str) -> Cell:
    """Return a function from object to the values of *field* of the containers at *path*, joined by commas."""
    return lambda item: _comma_list(one[field] for one in cell_at(*path, "containers")(item) or ())


def _container_statuses(item: Object) -> list[Any]:
    """Return the container statuses of the pod *item*, [] without any."""
    return cell_at("status", "containerStatuses")(item) or []


def _count_ready(item: Object) -> str:
    """Return "ready/all" containers of the pod *item*."""
    count = sum(bool(one.get("ready")) for one in _container_statuses(item))
    return f"{count}/{len(cell_at('spec', 'containers')(item) or ())}"


def _status_word(item: Object) -> str:
    """Return the status of a pod in one word, as kubectl prints it."""
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    for one in _container_statuses(item):
        state = one.get("state") or {}
        for reason in ((state.get(word) or {}).get("reason") for word in ("waiting", "terminated")):
            if reason:
                return str(reason)
    return str(cell_at("status", "reason")(item) or cell_at("status", "phase", absent=UNKNOWN)(item))


def _ready_of_desired(item: Object) -> str:
    """Return "ready/desired" replicas of *item*, such as ``1/2``."""
    return f"{cell_at('status', 'readyReplicas', absent=0)(item)}/{cell_at('spec', 'replicas', absent=1)(item)}"


def _list_roles(item: Object) -> str | None:
    """Return the roles of the node *item*, sorted, None without one."""
    prefix = "node-role.kubernetes.io/"
    return _comma_list(sorted(key.removeprefix(prefix) for key in item["metadata"].get("labels", {}) if prefix in key))


def _node_status(item: Object) -> str:
    """Return Ready, NotReady or Unknown for the node *item*, and SchedulingDisabled when it is cordoned."""
    ready = [one["status"] for one in cell_at("status", "conditions")(item) or () if one["type"] == "Ready"]
    words = ["Ready" if ready == ["True"] else "NotReady" if ready else "Unknown"]
    return ",".join(words + ["SchedulingDisabled"] * bool(cell_at("spec", "unschedulable")(item)))


def _list_ports(item: Object) -> str | None:
    """Return the ports of the service *item*, as "80:30080/TCP"; None without ports."""
    ports = cell_at("spec", "ports")(item) or ()
    node = {id(one): f":{one['nodePort']}" if one.get("nodePort") else "" for one in ports}
    return _comma_list(f"{one['port']}{node[id(one)]}/{one.get('protocol', 'TCP')}" for one in ports)


def _list_hosts(item: Object) -> str:
    """Return the hosts of the ingress *item*, "*" without one."""
    hosts = [rule["host"] for rule in cell_at("spec", "rules")(item) or () if rule.get("host")]
    return ",".join(hosts) or "*"


def _ingress_ports(item: Object) -> str:
    """Return the ports of the ingress *item*: "80", or "80, 443" if it has TLS."""
    return "80, 443" if cell_at("spec", "tls")(item) else "80"


def _role_of_binding(item: Object) -> str:
    """Return "KIND/NAME" of the role that the binding *item* grants."""
    return f"{item['roleRef']['kind']}/{item['roleRef']['name']}"


def _list_subjects(kind: str) -> Cell:
    """Return a function from role binding to the names of its subjects of *kind*."""

    def subject_text(one: Mapping[str, Any]) -> str:
        return f"{one['namespace']}/{one['name']}" if kind == "ServiceAccount" else str(one["name"])

    return lambda item: ", ".join(subject_text(one) for one in item.get("subjects") or () if one["kind"] == kind)


def _count_completions(item: Object) -> str:
    """Return "succeeded/desired" completions of the job *item*."""
    return f"{cell_at('status', 'succeeded', absent=0)(item)}/{cell_at('spec', 'completions', absent=1)(item)}"


def _data_count(item: Object) -> int:
    """Return the number of entries of a config map or secret."""
    return len(item.get("data") or ()) + len(item.get("binaryData") or ()) + len(item.get("stringData") or ())


def _last_schedule(item: Object) -> str | None:
    """Return the time since the CronJob *item* last ran, as kubectl writes ages; None if it never did."""
    since = cell_at("status", "lastScheduleTime")(item)
    return age(since) if since else None


CELLS: Mapping[str, Cell] = {
    "age": lambda item: age(item["metadata"].get("creationTimestamp")),
    "last seen": lambda item: age(item.get("lastTimestamp")),
    "last schedule": _last_schedule,
    "pod ready": _count_ready,
    "pod status": _status_word,
    "restarts": lambda item: sum(one.get("restartCount", 0) for one in _container_statuses(item)),
    "node status": _node_status,
    "roles": _list_roles,
    "external IPs": lambda item: _comma_list(cell_at("spec", "externalIPs")(item) or ()),
    "ports": _list_ports,
    "data": _data_count,
    "secrets": lambda item: len(item.get("secrets") or ()),
    "ready of desired": _ready_of_desired,
    "completions": _count_completions,
    "suspend": lambda item: bool(cell_at("spec", "suspend")(item)),
    "active": lambda item: len(cell_at("status", "active")(item) or ()),
    "hosts": _list_hosts,
    "nothing": lambda _: "",
    "ingress ports": _ingress_ports,
    "role": _role_of_binding,
    "users": _list_subjects("User"),
    "groups": _list_subjects("Group"),
    "service accounts": _list_subjects("ServiceAccount"),
    "involved": lambda item: f"{item['involvedObject']['kind'].lower()}/{item['involvedObject']['name']}",
}
"""Cells that take more than what stands at one place, by what `columns.yaml` calls them."""


_WIDE_CELLS = ("users", "groups", "service accounts")


def _column(heading: str, definition: Any) -> Column:
    """Return (heading, cell function, priority) of a column in `columns.yaml`; *definition* is of CELLS, or a path."""
    if isinstance(definition, str):
        return heading, CELLS[definition], WIDE * (definition in _WIDE_CELLS)
    path, wide = definition["at"].split("."), WIDE * definition.get("wide", False)
    if "each" in definition:
        return heading, _each(definition["each"], *path), wide
    if definition.get("pairs"):
        return heading, _pairs_at(*path), wide
    return heading, cell_at(*path, absent=definition.get("absent")), wide


Column = tuple[str, Cell, int]
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    kind: tuple(_column(heading, written) for heading, written in columns.items())
    for kind, columns in packaged_yaml(__package__, "columns.yaml").items()
}
"""Kind to its columns after the name: heading, cell, and whether only `-o wide` shows it; else there is the age."""
