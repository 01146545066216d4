"""Speed and memory of `opsassay incident import backends`: one hour of 40 services from Prometheus, Loki and Tempo.

The backends are one process that answers in their forms out of data that it makes by rule: 4.8 million samples of 500
metrics, 200,000 log lines, a million spans in 50,000 traces. It shares the cores with the import: the time is an
upper bound.

    .venv/bin/python benchmarks/past_incidents.py [--share 0.1]
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from aiohttp import web

BEGIN_S, SECONDS = 1_767_323_000, 3600
SERVICES, METRICS, STEP_S, SPANS = 40, 500, 15, 20
TIME = "@time@"


def iso(second: int) -> str:
    """Return the time *second* of the hour in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGIN_S + second))


def trace_template(kind: int) -> str:
    """Return a trace of 20 spans as Tempo sends it; its id, and the seconds of its spans, are to be filled in."""
    groups = []
    for n in range(SPANS):
        service = f"service-{(kind + n) % SERVICES}"
        tags = {
            "http.request.method": "GET",
            "http.response.status_code": "200",
            "url.path": f"/items/{n}",
            "peer": service,
        }
        span = {
            "traceId": "@id@", "spanId": base64.b64encode((n + 1).to_bytes(8, "big")).decode(), "name": f"GET /{service}",
            "kind": "SPAN_KIND_SERVER", "startTimeUnixNano": f"{TIME}{n:02d}0000000",
            "endTimeUnixNano": f"{TIME}{n + 5:02d}0000000", "status": {},
            "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in tags.items()],
        } | ({"parentSpanId": base64.b64encode(n.to_bytes(8, "big")).decode()} if n else {})  # fmt: skip
        places = {"service.name": service, "k8s.pod.name": f"{service}-0", "k8s.namespace.name": "shop"}
        resource = [{"key": key, "value": {"stringValue": value}} for key, value in places.items()]
        groups.append({"resource": {"attributes": resource}, "scopeSpans": [{"scope": {}, "spans": [span]}]})
    return json.dumps({"trace": {"resourceSpans": groups}, "metrics": {}})


def application(share: float) -> web.Application:
    """Return the three backends, with *share* of the hour's rows."""
    metrics, lines, traces = round(METRICS * share), round(200_000 * share), round(50_000 * share)
    templates = [trace_template(kind) for kind in range(SERVICES)]
    series = [[json.dumps({"__name__": f"metric_{m}{'_total' * (m % 2)}", "service": f"service-{s}", "pod": f"pod-{s}"})
               for s in range(SERVICES)] for m in range(metrics)]  # fmt: skip

    async def names(_: web.Request) -> web.Response:
        return web.json_response({"data": [f"metric_{m}{'_total' * (m % 2)}" for m in range(metrics)]})

    async def metadata(_: web.Request) -> web.Response:
        return web.json_response({"data": {}})

    async def query(request: web.Request) -> web.Response:
        form = await request.post()
        ms = int(re.findall(r"\[(\d+)ms\]", str(form["query"]))[0])
        end_s = int(float(str(form["time"])))
        ticks = range(-(-(end_s - ms // 1000 + 1) // STEP_S) * STEP_S, end_s + 1, STEP_S)
        found = []
        for m in map(int, re.findall(r"metric_(\d+)", str(form["query"]))):
            values = ",".join(f'[{at},"{(at % 977) * 1.37 + m}"]' for at in ticks)
            found += [f'{{"metric":{labels},"values":[{values}]}}' for labels in series[m]]
        text = f'{{"status":"success","data":{{"resultType":"matrix","result":[{",".join(found)}]}}}}'
        return web.Response(text=text, content_type="application/json")

    async def labels(_: web.Request) -> web.Response:
        return web.json_response({"data": ["service_name", "level"]})

    async def logs(request: web.Request) -> web.Response:
        start, end, limit = (int(request.query[name]) for name in ("start", "end", "limit"))
        every = SECONDS * 10**9 // lines
        first = max(0, -(-(start - BEGIN_S * 10**9) // every))
        streams: dict[int, list[list[str]]] = {}
        for n in range(first, min(lines, first + limit)):
            if (at := BEGIN_S * 10**9 + n * every) < end:
                streams.setdefault(n % SERVICES, []).append(
                    [str(at), f"request {n} took {n % 89} ms, Bearer abcdefgh{n}"]
                )
        result = [
            {"stream": {"service_name": f"service-{s}", "level": "info"}, "values": v} for s, v in streams.items()
        ]
        return web.json_response({"data": {"resultType": "streams", "result": result}})

    async def search(request: web.Request) -> web.Response:
        start, end, limit = (
            int(request.query[name]) - BEGIN_S * (name != "limit") for name in ("start", "end", "limit")
        )
        per_s = traces / SECONDS
        chosen = range(max(0, int(start * per_s)), min(traces, int((end + 1) * per_s)))[:limit]
        return web.json_response({"traces": [{"traceID": f"{n + 1:032x}"} for n in chosen]})

    async def trace(request: web.Request) -> web.Response:
        text = request.match_info["id"]
        n = int(text, 16) - 1
        plain = templates[n % SERVICES].replace("@id@", base64.b64encode(bytes.fromhex(text)).decode())
        plain = plain.replace(TIME, str(BEGIN_S + int(n / traces * SECONDS)))
        return web.Response(text=plain, content_type="application/json")

    app = web.Application()
    app.add_routes([
        web.get("/api/v1/label/__name__/values", names), web.get("/api/v1/metadata", metadata),
        web.post("/api/v1/query", query),
        web.get("/loki/api/v1/labels", labels), web.get("/loki/api/v1/query_range", logs), web.get("/api/search", search),
        web.get("/api/v2/traces/{id}", trace),
    ])  # fmt: skip
    return app


async def serve(share: float) -> None:
    """Serve the backends on a free port, which is printed, until the process is ended."""
    runner = web.AppRunner(application(share), access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


def measure(share: float, folder: Path) -> None:
    """Import *share* of the hour into *folder* and print what it took."""
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", "--share", str(share)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        half = SECONDS // 2
        words = ["--prometheus", url, "--loki", url, "--tempo", url, "--normal", f"{iso(0)}..{iso(half)}",
                 "--abnormal", f"{iso(half)}..{iso(SECONDS)}", "--root", "service-3:http_slow", "-o", str(folder),
                 "-c", "limits.requests_per_s=5000"]  # fmt: skip
        began, load = time.monotonic(), os.getloadavg()[0]
        child = subprocess.Popen([sys.executable, "-m", "opsassay", "incident", "import", "backends", *words])
        _, status, used = os.wait4(child.pid, 0)
        print(
            f"share {share:g}: {time.monotonic() - began:.0f} s ({used.ru_utime + used.ru_stime:.0f} s of processor), "
            f"{used.ru_maxrss / 1024:.0f} MB at most, exit {os.waitstatus_to_exitcode(status)}, load {load:.1f} before, "
            f"{os.getloadavg()[0]:.1f} after"
        )
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(given.share))
    else:
        with tempfile.TemporaryDirectory() as made:
            measure(given.share, Path(made) / "tree")
