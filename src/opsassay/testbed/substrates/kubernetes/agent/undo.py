"""What takes an injection back from within the cluster when its time is up: a dead laptop cleans nothing.

    python -m opsassay.testbed.substrates.kubernetes.agent undo

Runs in pods that were there before the injection. Each reads, from a mounted file, the requests that undo it and the
deadline, waits, and sends them with the rights of its service account, which has those and no others. Whoever is done first
removes the order: a pod that was away, on a node that came back, finds none and touches nothing that was changed since.
Only the standard library is imported.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from opsassay.core.logs import Log

_log = Log(__name__)
ORDER_FILE = Path("/etc/opsassay/undo/order.json")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ROUNDS, PAUSE_S, TIMEOUT_S = 60, 2.0, 10.0
ENDED_BY_SIGNAL = 128 + signal.SIGTERM
GONE = 404
"""There is nothing left to do: the object is gone."""
CONFLICT = 409
"""Others wrote to the object meanwhile, and the server gave up: nothing was done."""


def main() -> None:
    """Wait until the deadline of the order, undo, and exit with 0 if that succeeded; SIGTERM exits at once, not with 0.

    A job makes no new pod once one has succeeded, so that an evicted pod must not count as that.
    """
    signal.signal(signal.SIGTERM, lambda *_: os._exit(ENDED_BY_SIGNAL))
    order = json.loads(ORDER_FILE.read_text())
    while (left := order["deadline"] - time.time()) > 0:
        time.sleep(min(left, 5.0))
    done = undone(order)
    _log.info("undone" if done else "not undone", requests=len(order["requests"]))
    sys.exit(0 if done else 1)


def undone(order: dict[str, Any]) -> bool:
    """Send the undo requests of *order* repeatedly until all are done or no longer needed; return whether they are."""
    left = list(order["requests"])
    for _ in range(ROUNDS):
        standing = _status({"method": "GET", "path": order["path"]})
        if standing == GONE:
            return True
        if standing:
            left = [request for request in left if not _is_undone(_status(request))]
            if not left and _is_undone(_status({"method": "DELETE", "path": order["path"]})):
                return True
        time.sleep(PAUSE_S)
    return False


def _is_undone(status: int) -> bool:
    """Return whether the HTTP *status* of an undo request is 404 or a success."""
    return status == GONE or 200 <= status < 300


def _status(request: dict[str, Any]) -> int:
    """Send *request* {method, path, body} to the API server; return the HTTP status, 0 without an answer."""
    try:
        return _send_request(request)
    except urllib.error.HTTPError as error:
        if error.code != GONE:
            answer = error.read().decode(errors="replace")[:200]
            _log.warning(
                "request failed", method=request["method"], path=request["path"], status=error.code, answer=answer
            )
        return error.code
    except OSError as error:
        _log.warning("not reached", method=request["method"], path=request["path"], reason=str(error))
        return 0


def _send_request(request: dict[str, Any]) -> int:
    """Send *request* {method, path, body} to the API server with this pod's token; return the HTTP status."""
    sent = urllib.request.Request(server() + request["path"], method=request["method"])  # noqa: S310 - https
    sent.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text().strip()}")
    sent.add_header("User-Agent", "kubectl")
    data = None
    if request.get("body") is not None:
        data = json.dumps(request["body"]).encode()
        sent.add_header("Content-Type", request["content_type"])
    with urllib.request.urlopen(sent, data, timeout=TIMEOUT_S, context=trust()) as answer:  # noqa: S310
        answer.read()
        return int(answer.status)


def server() -> str:
    """Return the URL of the API server by this pod's environment variables."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def trust() -> ssl.SSLContext | None:
    """Return the TLS context that trusts the cluster's certificate authority, None without its file."""
    return ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
