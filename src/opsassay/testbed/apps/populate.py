"""Furnishes the skeleton of a generated system: steps, stores, hosts, protections, load, and benign distractors."""

from __future__ import annotations

import random
from typing import Any

from opsassay.core.schema.system import System
from opsassay.testbed.apps.topology_generator import Draft, Routine, Target, calls_below

CALLS_PER_S, RATE_LIMIT_RPS = 80.0, 20.0
"""The rate of the load follows from what a request costs: about 2 ms of CPU a call, all processes together."""

SERVICES_PER_DATABASE = 24
"""Of pools of at most six: what the 200 connections of one server hold."""

LEVEL_TIMEOUT_S = 1.5
"""A caller waits this much longer than its callee does, so that the deepest one gives up first."""

PARALLEL = {"layered": 0.4, "wide": 0.9, "chain": 0.2, "hub": 0.5}
"""How likely an operation with several calls makes them at the same time."""

ROWS, OWNERS, CENTS, KEYS = 1000, 200, 9000, 200
SETUP = (
    "CREATE TABLE {table} (id bigserial PRIMARY KEY, owner int NOT NULL, cents int NOT NULL)",
    "INSERT INTO {table} (owner, cents) SELECT n % {owners} + 1, n FROM generate_series(1, {rows}) AS n",
    "CREATE INDEX {table}_by_owner ON {table} (owner)",
)
STATEMENTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "insert": ("INSERT INTO {table} (owner, cents) VALUES ($1, $2)", (OWNERS, CENTS)),
    "update": ("UPDATE {table} SET cents = $2 WHERE id = $1", (ROWS, CENTS)),
    "one": ("SELECT owner, cents FROM {table} WHERE id = $1", (ROWS,)),
    "range": ("SELECT id, cents FROM {table} WHERE id BETWEEN $1 AND $1 + 9", (ROWS,)),
    "owner": ("SELECT id, cents FROM {table} WHERE owner = $1 LIMIT 10", (OWNERS,)),
    "count": ("SELECT count(*) FROM {table}", ()),
}
READS = ("one", "range", "owner")


def furnish(name: str, shape: str, drafts: list[Draft], chance: random.Random) -> System:
    """Return the system *name* made of *drafts*, the first of which is the entry; details are drawn from *chance*."""
    return System.model_validate(_Populator(name, shape, drafts, chance).system())


class _Populator:
    """Draws everything beside the skeleton; one instance furnishes one system."""

    def __init__(self, name: str, shape: str, drafts: list[Draft], chance: random.Random) -> None:
        self.name, self.shape, self.drafts, self.chance = name, shape, drafts, chance
        self.depth = max(draft.level or 0 for draft in drafts)
        self.hosts = [f"host-{letter}" for letter in "abcdef"[: 1 + len(drafts) // 8]]
        deepest = [draft for draft in drafts if draft.level == self.depth]
        tables = [d.name for d in drafts if d in deepest or (d.level != 0 and chance.random() < 0.6)]
        self.databases = {name: f"db{index // SERVICES_PER_DATABASE + 1}" for index, name in enumerate(tables)}
        self.replicated = chance.choice(deepest).name
        leaves = [(d.name, route) for d in drafts for route, routine in d.operations.items() if not routine.calls]
        self.slow = chance.choice(leaves)
        self.heavy = chance.choice([(d.name, route) for d in drafts if d.level for route in d.operations])
        calls = [(d.name, target) for d in drafts for routine in d.operations.values() for target in routine.calls]
        self.guarded = chance.choice(calls)
        self.jobs = self._jobs(tables)

    def system(self) -> dict[str, Any]:
        """Return the whole system as the content of a system YAML file."""
        services = {draft.name: self._draw_service(index, draft) for index, draft in enumerate(self.drafts)}
        load = self._draw_load()
        return {
            "system": self.name,
            "description": f"A generated system of {len(self.drafts)} services.",
            "hosts": self.hosts,
            "stores": self._draw_stores(services),
            "services": services,
            "load": load,
            "slo": {"latency_p99_ms": 1000.0 + 100.0 * self.depth},
        }

    def _draw_service(self, index: int, draft: Draft) -> dict[str, Any]:
        """Return the service of *draft* as the system file describes it; *index* chooses its host."""
        found: dict[str, Any] = {
            "host": self.hosts[index % len(self.hosts)],
            "replicas": 2 if draft.name == self.replicated else 1,
            "cpu_limit": 1.0 if draft.level == 0 else 0.5,
            "pool": self.chance.choice((3, 4, 6)) if draft.level != 0 else 32,
            "operations": {route: {"steps": self._steps(draft, route, r)} for route, r in draft.operations.items()},
            "consumes": {subject: {"steps": self._steps(draft, "", r)} for subject, r in draft.consumes.items()},
            "periodic": self.jobs.get(draft.name, {}),
        }
        return {key: value for key, value in found.items() if value}

    def _steps(self, draft: Draft, route: str, routine: Routine) -> list[dict[str, Any]]:
        """Return the steps of the operation *route* of *draft*, or of its consumer when *route* is empty."""
        chance, database = self.chance, self.databases.get(draft.name)
        cached = database is not None and route.startswith("GET") and chance.random() < 0.5
        key = f"{draft.name}:{{int:{KEYS}}}"
        steps: list[dict[str, Any]] = (
            [{"cache": "get", "key": key, "store": "cache", "timeout_s": 1.0}] if cached else []
        )
        steps += self._draw_calls(draft, routine)
        if database is not None:
            steps.append(self._draw_statement(draft.name, route, database))
        steps += self._draw_work(draft, route)
        if cached:
            ttl_s = chance.choice((20, 60, 120))
            steps.append({"cache": "set", "key": key, "ttl_s": ttl_s, "store": "cache", "timeout_s": 1.0})
        steps += [{"publish": subject, "store": "queue"} for subject in routine.publishes]
        if not route or chance.random() < 0.3:
            steps.append({"log": f"{route.partition('/')[2] or 'message'} done"})
        return steps

    def _draw_calls(self, draft: Draft, routine: Routine) -> list[dict[str, Any]]:
        """Return the calls of *routine* as steps, one after another or all in parallel."""
        calls = [self._draw_call(draft, target) for target in routine.calls]
        at_once = len(calls) > 1 and self.chance.random() < PARALLEL[self.shape]
        return [{"parallel": calls}] if at_once else calls

    def _draw_call(self, draft: Draft, target: Target) -> dict[str, Any]:
        """Return one call of *target* as a step, perhaps with retries, a circuit breaker, or optional."""
        chance = self.chance
        level = self.depth if draft.level is None else draft.level
        step: dict[str, Any] = {"call": " ".join(target), "timeout_s": LEVEL_TIMEOUT_S * max(1, self.depth - level)}
        guarded = (draft.name, target) == self.guarded
        if retries := max(chance.choices((0, 1, 2), (6, 3, 1))[0], int(target[0] == self.replicated)):
            step["retries"] = retries
        if chance.random() < 0.12 or guarded:
            step |= {"breaker_failures": chance.choice((5, 8, 12)), "breaker_open_s": chance.choice((3.0, 5.0))}
        if chance.random() < 0.08 or guarded:
            step["optional"] = True
        return step

    def _draw_statement(self, service: str, route: str, database: str) -> dict[str, Any]:
        """Return a step with an SQL statement that fits *route*, on the table of *service*."""
        by_verb = {"POST /create": "insert", "PUT /change": "update", "": "insert"}
        sql, sizes = STATEMENTS[by_verb.get(route) or self.chance.choice(READS)]
        return {
            "sql": sql.format(table=_name_of_table(service)),
            "args": [f"int:{n}" for n in sizes],
            "store": database,
        }

    def _draw_work(self, draft: Draft, route: str) -> list[dict[str, Any]]:
        """Return random steps of work for *route* of *draft*."""
        chance, place = self.chance, (draft.name, route)
        if place == self.slow:
            return [{"wait_ms": float(chance.randrange(60, 121, 10)), "tail": 0.15}]
        if place == self.heavy:
            return [{"compute_ms": 1.5, "tail": 0.8}]
        if draft.level is None:
            return [{"wait_ms": float(chance.randrange(5, 60, 5)), "tail": 0.3}]
        return [{"compute_ms": round(chance.uniform(0.2, 1.2), 1), "tail": chance.choice((0.2, 0.3, 0.5, 0.6))}]

    def _jobs(self, tables: list[str]) -> dict[str, dict[str, Any]]:
        """Return service to periodic jobs: one computes, others log a harmless warning at their end."""
        chance = self.chance
        computing = chance.choice(self.drafts).name
        work = [{"compute_ms": float(chance.randrange(30, 70, 5)), "tail": 0.2}, {"log": "index rebuilt"}]
        jobs: dict[str, dict[str, Any]] = {
            computing: {"rebuild-index": {"every_s": chance.randrange(11, 25), "steps": work}}
        }
        for service in chance.sample(tables, 1 + len(tables) // 20):
            rows = {
                "sql": STATEMENTS["count"][0].format(table=_name_of_table(service)),
                "store": self.databases[service],
            }
            warning = {"log": "nightly report finished, 2 rows skipped", "level": "WARN"}
            report = {"every_s": chance.randrange(11, 25), "steps": [rows, warning]}
            jobs.setdefault(service, {})["report"] = report
        return jobs

    def _draw_stores(self, services: dict[str, Any]) -> dict[str, Any]:
        """Return the stores that *services* use; each database gets the tables of its services."""
        stores: dict[str, Any] = {}
        for service, database in self.databases.items():
            store = stores.setdefault(database, {"engine": "postgresql", "setup": []})
            store["setup"] += [s.format(table=_name_of_table(service), owners=OWNERS, rows=ROWS) for s in SETUP]
        operations = [o for service in services.values() for o in service.get("operations", {}).values()]
        if any("cache" in operation["steps"][0] for operation in operations):
            stores["cache"] = {"engine": "valkey"}
        if any("consumes" in service for service in services.values()):
            stores["queue"] = {"engine": "nats"}
        return stores

    def _draw_load(self) -> dict[str, Any]:
        """Return the load: a mix of the entrance's operations at a rate that the calls behind them allow."""
        entry = self.drafts[0]
        cost = calls_below(self.drafts)
        weights = {route: self.chance.randint(1, 6) for route in entry.operations}
        mean = sum(cost[entry.name, route] * weight for route, weight in weights.items()) / sum(weights.values())
        return {
            "rate_rps": round(min(RATE_LIMIT_RPS, CALLS_PER_S / mean), 1),
            "timeout_s": LEVEL_TIMEOUT_S * self.depth + 2,
            "mix": [{"request": f"{entry.name} {route}", "weight": weight} for route, weight in weights.items()],
        }


def _name_of_table(service: str) -> str:
    return f"{service}_rows"
