"""The synthetic company whose costs are generated: accounts, services, commitments and resources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from opsassay.core.schema.files import packaged_yaml
from opsassay.evals.runner.draws import Draws

MICRO = 1_000_000


@dataclass(frozen=True)
class Provider:
    """A cloud provider: names, its terms for accounts, currency of each billing account, services."""

    name: str
    publisher: str
    billing_type: str
    sub_type: str
    currencies: tuple[str, ...]
    subs: int
    regions: tuple[tuple[str, str], ...]
    services: tuple[tuple[str, str, str, str], ...]
    """(service, category, subcategory, pricing unit) of each service."""


def _read_provider(row: dict[str, Any]) -> Provider:
    """Return the cloud provider that one entry of the YAML file describes."""
    tables = {name: tuple(map(tuple, row[name])) for name in ("regions", "services")}
    return Provider(**{**row, "currencies": tuple(row["currencies"]), **tables})


PROVIDERS = tuple(map(_read_provider, packaged_yaml(__package__, "providers.yaml")))


@dataclass(frozen=True)
class SubAccount:
    """A sub-account, and the billing account that pays for it."""

    provider: Provider
    billing_id: str
    currency: str
    sub_id: str
    sub_name: str


@dataclass(frozen=True)
class Commitment:
    """A commitment of one account. *discount*: price that remains, *waste*: unused share, both in permille.

    *hourly_micros* is its cost in micro-USD an hour.
    """

    id: str
    category: str
    kind: str
    account: SubAccount
    discount: int
    waste: int
    hourly_micros: int


@dataclass(frozen=True)
class Resource:
    """A resource that is billed hourly: *base_micros* is its list price in micro-USD an hour at 1000 permille of *profile*.

    The profile follows the clock of *zone*. *negotiated* is the share of the list price that is paid, permille. *area*
    names the anomaly task about it, '' for none.
    """

    account: SubAccount
    service: str
    category: str
    subcategory: str
    unit: str
    region: tuple[str, str]
    name: str
    tags: str | None
    base_micros: int
    profile: str
    zone: str
    negotiated: int
    commitment: Commitment | None = None
    area: str = ""


@dataclass(frozen=True)
class Area:
    """The subject of one anomaly task: a service of one provider, billed in one unit; a slice is a sub-account."""

    name: str
    provider: str
    service: str
    category: str
    subcategory: str
    unit: str
    profile: str
    zone: str = "UTC"
    daily: bool = False


AREAS = {row["name"]: Area(**row) for row in packaged_yaml(__package__, "areas.yaml")}


def profile(name: str, weekday: int, hour: int) -> int:
    """Return the load of profile *name* at a local *hour* and *weekday* (Monday is 0), in permille of the base load."""
    weekend = weekday >= 5
    if name == "office":
        return (600 if weekend else 1000) + (0 if weekend else max(0, 500 - 80 * abs(hour - 13)))
    if name == "evening":
        return 800 + max(0, 700 - 120 * abs(hour - 20)) + (200 if weekend else 0)
    if name == "batch":
        batch = weekday == 6 and 1 <= hour < 4
        return 2600 if batch else 700 + (0 if weekend else max(0, 600 - 100 * abs(hour - 11)))
    return 1000


APPLICATIONS = (
    "atlas", "beacon", "cobalt", "delta", "ember", "falcon", "garnet", "harbor", "indigo", "juniper", "kestrel", "lumen",
)  # fmt: skip
NAMES = (
    "Aurora", "Borealis", "Cascade", "Dune", "Equinox", "Fjord", "Glacier", "Horizon", "Isthmus", "Jetty", "Karst",
    "Lagoon", "Meridian", "Nebula", "Oasis", "Prairie", "Quarry", "Rapids", "Summit", "Tundra", "Umbra", "Vista",
)  # fmt: skip
CLOSED, REFUNDED = "Closed Sandbox", "Refunded Pilot"
"""Sub-accounts that mislead: one with only a refund, one whose credits exceed its charges."""

BACKGROUND = 44


CATEGORIES = ("Compute", "Storage", "Databases")


@dataclass(frozen=True)
class World:
    """The synthetic company and its bills of two whole months; *rates* are micro-USD per unit of a currency."""

    seed: int
    start: datetime
    middle: datetime
    end: datetime
    accounts: tuple[SubAccount, ...]
    resources: tuple[Resource, ...]
    commitments: tuple[Commitment, ...]
    rates: Mapping[str, int]

    @property
    def categories(self) -> tuple[str, ...]:
        """The service categories that occur in the costs of every seed."""
        return CATEGORIES

    @property
    def hours(self) -> int:
        """The number of hours that the cost data spans."""
        return int((self.end - self.start).total_seconds()) // 3600


def make_world(seed: int) -> World:
    """Return the synthetic company of *seed*: its accounts, resources and commitments, whose costs are generated."""
    draws = Draws(seed, "world")
    year, month = draws.integer(2023, 2025), draws.choice((2, 3, 9, 10))  # clocks are changed in one of the two months
    start, middle, end = (datetime(year, month + n, 1, tzinfo=UTC) for n in range(3))
    rates = {
        "USD": MICRO,
        "EUR": 100 * draws.integer(10500, 11900),
        "GBP": 100 * draws.integer(12100, 13700),
        "JPY": draws.integer(6300, 7600),
    }
    accounts = _draw_accounts(draws)
    commitments = tuple(_draw_commitment(draws, account) for account in draws.sample(accounts[:-2], 6))
    resources = [
        _draw_in_area(draws, area, account)
        for area in AREAS.values()
        for account in _open_accounts(area.provider, accounts)
    ]
    paid = [one for one in accounts if one.sub_name != CLOSED]
    for number in range(BACKGROUND):
        committed = commitments[number % 6] if number < 12 else None
        account = committed.account if committed else paid[number % len(paid)]
        resources.append(_draw_background(draws, account, committed))
    return World(seed, start, middle, end, accounts, tuple(resources), commitments, rates)


def _draw_accounts(draws: Draws) -> tuple[SubAccount, ...]:
    """Return random sub-accounts of every provider, then the two misleading ones (refunded, closed)."""
    names = iter(draws.sample(NAMES, len(NAMES)))
    found = []
    for provider in PROVIDERS:
        payers = [(str(draws.integer(10**11, 10**12 - 1)), currency) for currency in provider.currencies]
        for number in range(provider.subs):
            billing_id, currency = payers[number % len(payers)]
            sub_id = str(draws.integer(10**10, 10**11 - 1))
            found.append(SubAccount(provider, billing_id, currency, sub_id, f"{provider.name} {next(names)}"))
    first = found[0]
    traps = (
        SubAccount(first.provider, first.billing_id, first.currency, str(draws.integer(10**10, 10**11 - 1)), name)
        for name in (REFUNDED, CLOSED)
    )
    return (*found, *traps)


def _open_accounts(provider: str, accounts: Sequence[SubAccount]) -> list[SubAccount]:
    """Return the sub-accounts of *provider* without the refunded and the closed one."""
    return [one for one in accounts if one.provider.name == provider and one.sub_name not in {CLOSED, REFUNDED}]


def _draw_commitment(draws: Draws, account: SubAccount) -> Commitment:
    """Return a random savings plan or reserved instance of *account*."""
    spend = draws.integer(0, 1) == 1
    kind = "Savings Plan" if spend else "Reserved Instance"
    return Commitment(
        f"commitment-{draws.integer(10**8, 10**9 - 1)}", "Spend" if spend else "Usage", kind, account,
        draws.integer(550, 800), draws.integer(30, 300), draws.integer(400_000, 2_500_000),
    )  # fmt: skip


def _draw_in_area(draws: Draws, area: Area, account: SubAccount) -> Resource:
    """Return a random resource of *account* in *area*, in which anomalies may be planted."""
    return Resource(
        account, area.service, area.category, area.subcategory, area.unit, draws.choice(account.provider.regions),
        f"{area.service.split()[-1].lower()}-{draws.integer(10**6, 10**7 - 1)}",
        _draw_tags(draws), draws.integer(800_000, 9_000_000), area.profile,
        area.zone, draws.integer(860, 1000), area=area.name,
    )  # fmt: skip


def _draw_background(draws: Draws, account: SubAccount, commitment: Commitment | None) -> Resource:
    """Return a random resource of *account*, of any service, paid under *commitment* unless that is None."""
    service, category, subcategory, unit = draws.choice(account.provider.services)
    return Resource(
        account, service, category, subcategory, unit, draws.choice(account.provider.regions),
        f"{service.split()[-1].lower()}-{draws.integer(10**6, 10**7 - 1)}", _draw_tags(draws),
        draws.integer(50_000, 6_000_000), draws.choice(("flat", "office", "evening")), "UTC", draws.integer(800, 1000),
        commitment,
    )  # fmt: skip


def _draw_tags(draws: Draws) -> str | None:
    """Return random tags as JSON text: complete, incomplete, with empty values, the text NULL, or None."""
    kind = draws.integer(0, 11)
    if kind in (0, 1):
        return None if kind else "NULL"
    tags = {
        "application": draws.choice(APPLICATIONS),
        "environment": draws.choice(("prod", "dev", "test")),
        "business_unit": draws.choice(("Retail", "Data", "Platform")),
        "cost_center": str(draws.integer(1000, 1009)),
    }
    if kind == 2:
        tags = {"Application": tags.pop("application"), **tags}  # another key: tags are case-sensitive
    elif kind == 3:
        tags["application"] = ""
    elif kind == 4:
        del tags["cost_center"]
    elif kind == 5:
        tags["cost_center"] = "NULL"
    elif kind == 6:
        del tags["application"]
    return json.dumps(tags)
