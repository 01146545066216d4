"""Generates applications by size and shape from a seed: systems that nobody has seen, for held-out tests."""

from __future__ import annotations

import random
import re
from typing import Literal, get_args

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.system import System
from opsassay.testbed.apps.populate import furnish
from opsassay.testbed.apps.topology_generator import room_for_mutual, sketch

Shape = Literal["layered", "wide", "chain", "hub"]
SHAPES: tuple[str, ...] = get_args(Shape)
SMALLEST, LARGEST = 3, 100
"""Services of a system: an entry with two levels below it; what two cores can hold."""

NAME = re.compile(rf"({'|'.join(SHAPES)})-(\d+)-(\d+)(?:-mutual-(\d+))?")
"""Shape, services, seed and mutual dependencies: the name of a generated system says how to make it again."""

ENTRIES = ("frontend", "gateway", "storefront", "portal", "webapp", "edge")
NOUNS = (
    "account", "address", "advert", "agenda", "agent", "alarm", "archive", "asset", "audit", "auction", "badge",
    "balance", "basket", "billing", "booking", "branch", "budget", "bundle", "calendar", "campaign", "carrier",
    "catalog", "channel", "charge", "claim", "clinic", "comment", "contact", "content", "contract", "coupon",
    "course", "credit", "currency", "customer", "delivery", "deposit", "dispatch", "document", "draft",
    "driver", "event", "export", "feed", "fleet", "forecast", "grade", "group", "guide", "history", "identity",
    "image", "import", "index", "inventory", "invoice", "journal", "label", "ledger", "license", "listing",
    "loan", "location", "locker", "loyalty", "mailbox", "market", "media", "member", "menu", "message", "meter",
    "notice", "offer", "order", "parcel", "partner", "patient", "payroll", "permit", "policy", "price",
    "product", "profile", "promotion", "queue", "quota", "quote", "rating", "receipt", "refund", "region",
    "rental", "report", "review", "reward", "route", "rule", "salary", "schedule", "seat", "session", "shelf",
    "shipment", "shift", "signup", "stock", "story", "supplier", "survey", "tariff", "task", "tax", "team",
    "ticket", "timeline", "token", "tour", "trade", "transfer", "vehicle", "vendor", "venue", "visit",
    "voucher", "wallet", "warehouse",
)  # fmt: skip


def generate(seed: int, services: int = 12, shape: Shape = "layered", *, mutual_pairs: int = 0) -> System:
    """Return a random system of *services* services in *shape*; the same arguments give the same system.

    *mutual_pairs* of services call each other, by different operations. From six services on, one in six is behind a
    queue. Raises UserError for numbers that do not fit, NotFoundError for an unknown shape.
    """
    if shape not in SHAPES:
        raise NotFoundError("shape", shape, SHAPES)
    if not SMALLEST <= services <= LARGEST:
        raise UserError(f"A system has {SMALLEST} to {LARGEST} services, not {services}; choose another size.")
    if not 0 <= mutual_pairs <= (room := room_for_mutual(services, shape)):
        raise UserError(
            f"A {shape} system of {services} services has room for {room} mutual dependencies, not {mutual_pairs}; "
            "choose another number or size."
        )
    name = f"{shape}-{services}-{seed}" + (f"-mutual-{mutual_pairs}" if mutual_pairs else "")
    chance = random.Random(name)  # noqa: S311
    names = [chance.choice(ENTRIES), *chance.sample(NOUNS, services - 1)]
    return furnish(name, shape, sketch(names, shape, mutual_pairs, chance), chance)


def by_name(name: str) -> System | None:
    """Return the generated system that *name* encodes (``layered-20-7``, ``chain-9-1-mutual-2``), None for another name."""
    match = NAME.fullmatch(name)
    if match is None:
        return None
    shape, services, seed, mutual = match.groups(default="0")
    return generate(int(seed), int(services), shape, mutual_pairs=int(mutual))  # type: ignore[arg-type]
