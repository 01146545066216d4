"""The configuration of Envoy as a sidecar: a bootstrap that never changes, and routes, which are what a fault changes.

Runtime keys could carry two of the fault types: they hold numbers, and an abort by Envoy's fault filter says
"fault filter abort" to the caller. Routes carry all that are here, act from the next request on, also on connections that
are open, and an abort by a route has no mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsassay.testbed.core.networks import LOOPBACK

PORT = 15006
"""Where Envoy takes what was meant for the program's port; below the ports that the kernel gives to callers."""
ADMIN, ROUTES, TIMER = (f"/tmp/sidecar-{name}" for name in ("admin", "routes.json", "timer"))  # noqa: S108 - its own /tmp
SPANS_PATH = "/sidecar/v1/traces"
FLUSH_S = 1.0
SPANS_AT_ONCE = 500
"""By default Envoy sends every fifth span by itself, which triples the latency."""
PROGRAM_IDLE_S = 1
"""Servers close idle connections after some seconds; a request that Envoy sends at that moment would be lost."""
BUFFER_BYTES = 16 << 20
ALL, MANY = {"numerator": 100}, 1 << 30
TIMER_SLACK_MS = 10_000
SCRIPT = Path(__file__).with_name("sidecar.lua")

_TYPES = "type.googleapis.com/envoy."
_FAULT, _LUA, _ROUTER = (f"envoy.filters.http.{name}" for name in ("fault", "lua", "router"))
_FAULT_TYPE = _TYPES + "extensions.filters.http.fault.v3.HTTPFault"


def bootstrap(
    service: str, address: str, port: int, telemetry_port: int, *, everywhere: bool = False
) -> dict[str, Any]:
    """Return Envoy's configuration at *address*, or *everywhere*, in front of *port* of the program of *service*."""
    flushing = {"min_flush_spans": SPANS_AT_ONCE, "flush_interval_ms": round(FLUSH_S * 1e3)}
    return {
        "node": {"id": service, "cluster": service},
        "admin": {"address": {"pipe": {"path": ADMIN, "mode": 0o600}}},
        "layered_runtime": {"layers": [{"name": "static", "static_layer": {"tracing": {"opentelemetry": flushing}}}]},
        "static_resources": {
            "listeners": [_inbound_listener(service, "0.0.0.0" if everywhere else address), _timer()],  # noqa: S104 - that of a container
            "clusters": [
                {**_make_cluster("program", _socket_address(address, port)), **_as_asked()},
                _make_cluster("telemetry", _socket_address(LOOPBACK, telemetry_port)),
                _make_cluster("timer", {"pipe": {"path": TIMER}}),
            ],
        },
    }


def routes(hooks: Sequence[dict[str, Any]], version: int) -> dict[str, Any]:
    """Return Envoy's routes by which *hooks* act, numbered *version*; a hook's `type` is its name in the catalogue."""
    active = {hook["type"]: hook["parameters"] for hook in hooks}
    filters: dict[str, Any] = {}
    if (delay := active.get("delay_request")) is not None:
        held = {"fixed_delay": f"{delay['delay_ms'] / 1e3:.6f}s", "percentage": ALL}
        filters[_FAULT] = {"@type": _FAULT_TYPE, "delay": held}
    if (script := _script(active)) is not None:
        kind = _TYPES + "extensions.filters.http.lua.v3.LuaPerRoute"
        filters[_LUA] = {"@type": kind, "source_code": {"inline_string": script}}
    route = {"match": {"prefix": "/"}, **_action(active), "typed_per_filter_config": filters}
    table = {
        "@type": _TYPES + "config.route.v3.RouteConfiguration",
        "name": "inbound",
        "virtual_hosts": [{"name": "program", "domains": ["*"], "routes": [route]}],
    }
    return {"version_info": str(version), "resources": [table]}


def _action(active: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the route action for the *active* hooks: a direct response, or the program's cluster."""
    if (abort := active.get("abort_request")) is not None:
        return {"direct_response": {"status": abort["code"]}}
    to_program: dict[str, Any] = {"cluster": "program", "timeout": "0s"}
    if (replaced := active.get("replace_path")) is not None:
        path = replaced["new_path"].replace("\\", "\\\\")  # a backslash refers to a group
        to_program["regex_rewrite"] = {"pattern": {"regex": "^.*$"}, "substitution": path}
    return {"route": to_program}


def _script(active: dict[str, dict[str, Any]]) -> str | None:
    """Return the Lua script that applies the *active* hooks to requests and responses, None when none needs it."""
    asked = []
    if (method := active.get("replace_method")) is not None:
        asked.append(f'method = "{method["method"]}"')
    if (delay := active.get("delay_response")) is not None:
        wait_ms = round(delay["delay_ms"])
        asked.append(f'wait_ms = "{wait_ms}", limit_ms = {wait_ms + TIMER_SLACK_MS}')
    if (replaced := active.get("replace_code")) is not None:
        asked.append(f'status = "{replaced["code"]}"')
    if (aborted := active.get("abort_response")) is not None:
        asked.append(f'status = "{aborted["code"]}", empty = true')
    return f"local asked = {{{', '.join(asked)}}}\n{SCRIPT.read_text(encoding='utf-8')}" if asked else None


def _inbound_listener(service: str, address: str) -> dict[str, Any]:
    """Return Envoy's listener for requests to *service* that arrive at *address*."""
    sampling = {
        "@type": _TYPES + "extensions.request_id.uuid.v3.UuidRequestIdConfig",
        "pack_trace_reason": False,
        "use_request_id_for_trace_sampling": False,
    }
    manager = {
        **_connection_manager(
            "inbound", [(_LUA, _TYPES + "extensions.filters.http.lua.v3.Lua"), (_FAULT, _FAULT_TYPE)]
        ),
        "rds": {
            "route_config_name": "inbound",
            "config_source": {
                "path_config_source": {"path": ROUTES, "watched_directory": {"path": str(Path(ROUTES).parent)}},
                "resource_api_version": "V3",
            },
        },
        "tracing": {"random_sampling": {"value": 100}, "spawn_upstream_span": False, "provider": _make_tracer(service)},
        "generate_request_id": False,
        "request_id_extension": {"typed_config": sampling},
        "server_header_transformation": "PASS_THROUGH",
        "skip_xff_append": True,
        "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": service},
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "stream_idle_timeout": "0s",
    }
    return {**_make_listener("inbound", _socket_address(address, PORT), manager), "traffic_direction": "INBOUND"}


def _timer() -> dict[str, Any]:
    """Return a listener that responds after the ms that a header asks for: scripts cannot sleep by themselves."""
    patient = {"@type": _FAULT_TYPE, "delay": {"header_delay": {}, "percentage": ALL}}
    answer = {
        "match": {"prefix": "/"},
        "direct_response": {"status": 204},
        "typed_per_filter_config": {_FAULT: patient},
    }
    manager = {
        **_connection_manager("timer", [(_FAULT, _FAULT_TYPE)]),
        "route_config": {"virtual_hosts": [{"name": "timer", "domains": ["*"], "routes": [answer]}]},
    }
    return _make_listener("timer", {"pipe": {"path": TIMER, "mode": 0o600}}, manager)


def _connection_manager(name: str, filters: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return Envoy's HTTP connection manager *name*; *filters* are the (name, type) pairs before the router."""
    kind = _TYPES + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    router = {"@type": _TYPES + "extensions.filters.http.router.v3.Router", "suppress_envoy_headers": True}
    chain = [{"name": each, "typed_config": {"@type": type_}} for each, type_ in filters]
    return {
        "@type": kind,
        "stat_prefix": name,
        "codec_type": "AUTO",
        "http_filters": [*chain, {"name": _ROUTER, "typed_config": router}],
    }


def _make_listener(name: str, address: dict[str, Any], manager: dict[str, Any]) -> dict[str, Any]:
    """Return Envoy's listener *name* at *address* with the connection manager *manager*."""
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    chains = [{"filters": filters}]
    return {
        "name": name,
        "address": address,
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "filter_chains": chains,
    }


def _make_cluster(name: str, address: dict[str, Any]) -> dict[str, Any]:
    """Return Envoy's cluster *name* with one endpoint at *address*."""
    most = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), MANY)
    endpoint = {"endpoint": {"address": address}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [most]},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


def _as_asked() -> dict[str, Any]:
    """Return the options by which Envoy speaks the caller's protocol to the program: HTTP/1.1, or HTTP/2 for gRPC."""
    options = {
        "@type": _TYPES + "extensions.upstreams.http.v3.HttpProtocolOptions",
        "common_http_protocol_options": {"idle_timeout": f"{PROGRAM_IDLE_S}s"},
        "use_downstream_protocol_config": {"http_protocol_options": {}, "http2_protocol_options": {}},
    }
    return {
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
    }


def _make_tracer(service: str) -> dict[str, Any]:
    """Return the provider that exports Envoy's spans under the name *service*."""
    uri = {"uri": f"http://telemetry{SPANS_PATH}", "cluster": "telemetry", "timeout": "5s"}
    config = {
        "@type": _TYPES + "config.trace.v3.OpenTelemetryConfig",
        "service_name": service,
        "http_service": {"http_uri": uri},
    }
    return {"name": "envoy.tracers.opentelemetry", "typed_config": config}


def _socket_address(address: str, port: int) -> dict[str, Any]:
    """Return an address and port in Envoy's form."""
    return {"socket_address": {"address": address, "port_value": port}}
