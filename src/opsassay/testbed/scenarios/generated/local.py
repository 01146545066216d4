"""The faults of generated scenarios on a local system, made with the verbs of `ops`, by ITBench's classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opsassay.core.schema.scenario import AlertRule, AlertSignal, OpsCall, OracleStep
from opsassay.core.schema.system import Service
from opsassay.testbed.scenarios.generated.recipes import UNANSWERED, Broken, FaultPlace, Recipe, WrongRepair

OWNED = r"{name}-\d+"
"""Pattern of the names of a service's replicas."""
WRONG_PORT = 9090


def call(verb: str, **arguments: object) -> OpsCall:
    """Return an operator's *verb* with *arguments* as a change by which a scenario breaks its system."""
    return OpsCall(verb=verb, arguments=arguments)


def step(verb: str, **arguments: object) -> OracleStep:
    """Return a step of a repair: the operator *verb* with *arguments*."""
    return OracleStep(verb=verb, arguments=arguments)


def _rolling_restart(service: str) -> OracleStep:
    """Return the step that restarts the replicas of *service* one after another."""
    return step("restart", target=service, rolling=True)


def _wrong_restart(service: str) -> WrongRepair:
    """Return the wrong repair that only restarts *service*, which leaves users without answers."""
    return WrongRepair(
        f"Restarts {service}, whose new processes do the same.", UNANSWERED, (_rolling_restart(service),)
    )


def _unanswered(place: FaultPlace, root: str | None = None) -> Broken:
    """Return a fault with failing user requests, for recipes to complete; its cause is *root*, None: the target."""
    return Broken(
        root=root or place.target,
        edges=place.reach.edges,
        condition="",
        symptom=f"requests to {place.entry} fail",
        alert=AlertRule(service=place.entry, signal="error_rate"),
        technologies=("HTTP",),
        layer="application",
        depth="D3",
        protected=place.entry,
        repair=(),
        wrong=_wrong_restart(place.target),
    )


def feature(key: str, value: str, condition: str, technology: str) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe (place to fault, or None) that sets *key* to *value*, a broken feature, and restarts a service.

    *condition* describes the fault, *technology* is the knowledge that its repair needs. None for a store or without
    callers.
    """

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of the broken feature at *place*; None for a store or without callers."""
        name = place.target
        if name not in place.system.services or not place.callers:
            return None
        return replace(
            _unanswered(place),
            condition=condition,
            technologies=("feature flags", technology, "HTTP"),
            operations=(call("config set", target=name, key=key, value=value), call("restart", target=name)),
            looks=(step("config get", target=name),),
            repair=(step("config unset", target=name, key=key), _rolling_restart(name)),
        )

    return make


def strain(key: str, value: str, condition: str, technology: str) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe as `feature`, with its arguments, for one that uses up resources and fires a saturation alert."""

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of the feature that uses up resources at *place*; None as for `feature`."""
        broken = feature(key, value, condition, technology)(place)
        if broken is None:
            return None
        signal: AlertSignal = "saturation"
        return replace(
            broken,
            edges=(),
            symptom=f"{place.target} uses up what it may use",
            alert=AlertRule(service=place.target, signal=signal),
            technologies=("feature flags", technology),
            wrong=replace(broken.wrong, fails=("alerts_cleared",)),
        )

    return make


def busy(key: str, value: str, condition: str, technology: str) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe as `strain`, with its arguments, for a feature that uses all CPU of the service's replicas."""

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of the feature that uses all CPU at *place*; None as for `feature`."""
        broken = strain(key, value, condition, technology)(place)
        if broken is None:
            return None
        return replace(broken, cores=place.replicas * place.system.services[place.target].cpu_limit)

    return make


def _unbounded_cache(place: FaultPlace) -> Broken | None:
    """Return the fault of a service whose in-memory cache grows without bound; None for one without a cache store."""
    caches = {name for name, store in place.system.stores.items() if store.engine == "valkey"}
    if not any((place.target, cache) in place.system.uses() for cache in caches):
        return None
    return strain("FEATURE_LOCAL_CACHE", "1024", "its cache in memory grows without bound", "caching")(place)


def _wrong_port(place: FaultPlace) -> Broken | None:
    """Return the fault that a service's only caller uses a wrong port for it; None for a store or several callers."""
    if place.target not in place.system.services or len(place.callers) != 1:
        return None
    caller = place.callers[0]
    edges = tuple(edge for edge in place.reach.edges if place.target not in edge)
    key = f"UPSTREAM_{place.target.upper().replace('-', '_')}"
    return replace(
        _unanswered(place, caller),
        edges=edges,
        condition=f"it looks for {place.target} at another port",
        technologies=("HTTP", "configuration"),
        operations=(
            call("config set", target=caller, key=key, value=f"{place.target}:{WRONG_PORT}"),
            call("restart", target=caller),
        ),
        looks=(step("config get", target=caller),),
        repair=(step("config set", target=caller, key=key, value=f"{place.target}:8080"), _rolling_restart(caller)),
        wrong=_wrong_restart(caller),
    )


def firewalled(condition: str, technology: str, **rule: object) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe that blocks or delays packets of a service's only caller; *rule* are options of "firewall add".

    *condition* describes the fault, *technology* is the knowledge that its repair needs. None for a store or several
    callers.
    """

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of the firewall rule at *place*; None for a store or without a sole caller."""
        if place.target not in place.system.services or len(place.callers) != 1:
            return None
        return replace(
            _unanswered(place),
            condition=condition,
            technologies=("firewall", technology, "HTTP"),
            layer="policy",
            entities=place.callers,
            operations=(call("firewall add", service=place.target, client=place.callers[0], **rule),),
            looks=(step("firewall list"),),
            repair=(step("firewall delete", rule="{rule}"),),
        )

    return make


def _scaled_away(place: FaultPlace) -> Broken | None:
    """Return the fault that a service is scaled to zero; None for a store, a single replica or one without callers."""
    count = place.replicas
    if place.target not in place.system.services or count < 2 or not place.callers:
        return None
    return replace(
        _unanswered(place),
        condition="no replica of it runs",
        symptom=f"replicas of {place.target} are missing",
        alert=AlertRule(service=place.target, signal="replicas_missing"),
        technologies=("scaling", "HTTP"),
        layer="scheduling",
        depth="D1",
        operations=(call("scale", service=place.target, replicas=0),),
        looks=(step("ps"),),
        repair=(step("scale", service=place.target, replicas=count),),
        wrong=WrongRepair(
            "Runs one replica less than there were, which is enough for requests to be answered.",
            ("alerts_cleared", "v_no_regression"),
            (step("scale", service=place.target, replicas=count - 1),),
        ),
    )


def credentials(*, empty: bool) -> Callable[[FaultPlace], Broken | None]:
    """Return a recipe that sets a service's database password to a wrong one or, if *empty*, to none at all."""

    def make(place: FaultPlace) -> Broken | None:
        """Return the fault of the wrong password at *place*; None for a service without one or callers."""
        service = place.system.services.get(place.target)
        if service is None or not place.callers:
            return None
        key = next((key for key in sorted(service.config) if key.endswith("_PASSWORD")), None)
        if key is None:
            return None
        # Unset, it would be asked for none: the user that has no password may do everything.
        wrong = call("config set", target=place.target, key=key, value="" if empty else "changed-by-rotation")
        return replace(
            _unanswered(place),
            condition="its database does not let it in",
            symptom=f"containers of {place.target} restart again and again",
            alert=AlertRule(service=place.target, signal="replicas_missing"),
            technologies=("PostgreSQL", "credentials", "HTTP"),
            layer="pod",
            depth="D1",
            operations=(wrong, call("restart", target=place.target)),
            looks=(step("logs", target=place.target, lines=5),),
            repair=(
                step("config set", target=place.target, key=key, value=service.config[key]),
                step("restart", target=place.target),
            ),
            wrong=WrongRepair(
                "Scales the crashing service to nothing.",
                (*place.taken_away, "v_settings") if empty else place.taken_away,
                (step("scale", service=place.target, replicas=0),),
            ),
        )

    return make


def _wrong_token_secret(place: FaultPlace) -> Broken | None:
    """Return the fault of a service whose token secret differs from its callers'; None if it checks no tokens."""
    service = place.system.services.get(place.target)
    if service is None or "TOKEN_MAX_AGE_S" not in service.config:
        return None
    secret = service.config["TOKEN_SECRET"]
    return replace(
        _unanswered(place),
        condition="it refuses its callers' tokens, which another secret has signed",
        technologies=("tokens", "configuration", "HTTP"),
        operations=(
            call("config set", target=place.target, key="TOKEN_SECRET", value="lantern-5"),
            call("restart", target=place.target),
        ),
        looks=(step("config get", target=place.target), step("config get", target=place.callers[0])),
        repair=(
            step("config set", target=place.target, key="TOKEN_SECRET", value=secret),
            _rolling_restart(place.target),
        ),
    )


def _break_by_release(place: FaultPlace) -> Broken | None:
    """Return the fault of a release with failing SQL; None for a store, and without such a release or callers."""
    service = place.system.services.get(place.target)
    if service is None or not service.releases or not place.callers:
        return None
    version = sorted(service.releases)[-1]
    if not _statements(service, version) - _statements(service, service.release):
        return None
    return replace(
        _unanswered(place),
        condition=f"its release {version} asks its database for what is not there",
        technologies=("release management", "PostgreSQL", "HTTP"),
        operations=(call("release", service=place.target, version=version, rolling=False),),
        looks=(step("describe", target=place.target),),
        repair=(step("release", service=place.target, version=service.release),),
    )


def deleted(place: FaultPlace) -> Broken | None:
    """Return the fault that a service's DNS record is deleted; None for a store or a service without callers."""
    if place.target not in place.system.services or not place.callers:
        return None
    return replace(
        _unanswered(place),
        condition="its name leads nowhere, since its record was deleted",
        technologies=("DNS", "service discovery", "HTTP"),
        layer="name_service",
        entities=("names",),
        operations=(call("dns delete", service=place.target),),
        looks=(step("config get", target="names"),),
        repair=(step("config set", target="names", key=place.target, value=place.target),),
    )


def _statements(service: Service, version: str) -> set[str]:
    """Return the SQL statements of all operations of *service* at release *version*."""
    operations = service.at_version(version).operations.values()
    return {step.sql for operation in operations for step in operation.walk() if step.sql is not None}


def _full_store(place: FaultPlace) -> Broken | None:
    """Return the fault that a Valkey store's memory limit is too low for writes; None for other targets."""
    store = place.system.stores.get(place.target)
    if store is None or store.engine != "valkey" or "maxmemory" not in store.config:
        return None
    using = place.callers[0]
    return replace(
        _unanswered(place),
        condition="it refuses writes because its memory is full",
        technologies=("Valkey", "configuration", "HTTP"),
        layer="store",
        operations=(call("config set", target=place.target, key="maxmemory", value="600kb"),),
        looks=(step("config get", target=place.target),),
        repair=(step("config set", target=place.target, key="maxmemory", value=store.config["maxmemory"]),),
        wrong=replace(_wrong_restart(using), fails=(*UNANSWERED, "v_blast_radius")),
    )


DESK, ALL = ("desk",), ("desk", "hotel", "shop")
FAILING = feature("FEATURE_STRICT_INPUT", "1", "its own code raises an exception for every request", "Python")
RECIPES = (
    Recipe("ServiceFailure", FAILING, ALL),
    Recipe("HTTPRequestAbortFault", feature("FEATURE_ADMISSION", "503", "it refuses every request", "admission"), ALL),
    Recipe(
        "HTTPRequestBodyTamperFault",
        feature("FEATURE_COMPRESSION", "1", "the bodies that it sends cannot be read", "encoding"),
        ALL,
    ),
    Recipe("HighCPU", busy("FEATURE_PREFETCH", "1", "a thread of it computes without a pause", "CPU"), DESK),
    Recipe(
        "ManualGarbageCollection",
        busy("FEATURE_EAGER_CLEANUP", "1", "it collects garbage most of the time", "garbage collection"),
        DESK,
    ),
    Recipe(
        "MemoryLeak",
        strain("FEATURE_LOCAL_CACHE", "512", "it keeps what it never reads again", "memory"),
        ("hotel", "shop"),
    ),
    Recipe("CacheFailure", _unbounded_cache, ("hotel", "shop")),
    Recipe(
        "CPUStress",
        busy("FEATURE_PREFETCH", "2", "two threads of it compute without a pause", "CPU"),
        ("hotel", "shop"),
    ),
    Recipe(
        "NetworkDelay",
        firewalled("every packet of its caller is inspected for seconds", "inspection", delay_ms=2500),
        ALL,
    ),
    Recipe("NetworkPartition", firewalled("packets of its caller are dropped", "packet filtering"), ALL),
    Recipe("CorruptDeployment", _break_by_release, DESK),
    Recipe("PortMisconfigure", _wrong_port, ALL),
    Recipe("IncorrectAuthentication", _wrong_token_secret, DESK),
    Recipe("IncorrectAuthentication", credentials(empty=False), DESK),
    Recipe("UnregisterCredentials", credentials(empty=True), DESK),
    Recipe("RedisOOM", _full_store, DESK),
    Recipe("ReplicasetScale", _scaled_away, DESK),
)
DELETED = Recipe("DeletedService", deleted, ALL)
"""A recipe that is drawn separately, so that the other scenarios of a seed stay the same."""
