"""What takes an injection back from within the cluster when its time is up: a dead laptop cleans nothing.

    python -m assay.testbed.kubernetes.pods undo

Runs as a pod that was there before the injection. It reads, from a mounted file, the requests that undo it and the
deadline, waits, and sends them with the rights of its service account, which has those and no others. Only the standard
library is imported.
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

ORDER_FILE = Path("/etc/assay/undo/order.json")
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TRIES, PAUSE_S = 60, 2.0
DONE = frozenset({404, 409})
"""Answers that say that there is nothing left to do: what was to be removed is gone, what was to be made is there."""


def main() -> None:
    """Wait until the deadline, then undo; a pod that is told to end before leaves at once."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    order = json.loads(ORDER_FILE.read_text())
    while (left := order["deadline"] - time.time()) > 0:
        time.sleep(min(left, 5.0))
    sys.exit(0 if all([_send_until_done(request) for request in order["requests"]]) else 1)  # noqa: C419 - each is tried


def _send_until_done(request: dict[str, Any]) -> bool:
    """Send *request* until it is done or nothing more can be hoped for; return whether it is."""
    for _ in range(TRIES):
        try:
            _send(request)
        except urllib.error.HTTPError as error:
            if error.code in DONE:
                return True
            print(f"{request['method']} {request['path']}: {error.code} {error.read().decode(errors='replace')[:200]}")
            if error.code < 500 and error.code != 429:
                return False
        except OSError as error:
            print(f"{request['method']} {request['path']}: {error}")
        else:
            return True
        time.sleep(PAUSE_S)
    return False


def _send(request: dict[str, Any]) -> None:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    if ":" in host:
        host = f"[{host}]"
    sent = urllib.request.Request(f"https://{host}:{port}{request['path']}", method=request["method"])
    sent.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text().strip()}")
    sent.add_header("User-Agent", "kubectl")
    data = None
    if request.get("body") is not None:
        data = json.dumps(request["body"]).encode()
        sent.add_header("Content-Type", request["content_type"])
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(sent, data, timeout=10, context=context) as answer:  # noqa: S310
        answer.read()
