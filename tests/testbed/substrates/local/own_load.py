"""A load generator of a team's own, with nothing but Python's library: sends requests until it is stopped, then sums up.

With an argument it ends by itself: ``short`` well after two seconds, ``failing`` at once with status 7.
"""

import os
import pathlib
import signal
import sys
import time
import urllib.request

counts = {"sent": 0, "failed": 0}


def sum_up(*_):
    print(f"summary: {counts['sent']} sent, {counts['failed']} failed", flush=True)
    sys.exit(0)


def send(url):
    trace = {"traceparent": f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"}
    counts["sent"] += 1
    try:
        urllib.request.urlopen(urllib.request.Request(url, headers=trace), timeout=2).read()
    except OSError as error:
        counts["failed"] += 1
        print(f"failed: {error}", file=sys.stderr, flush=True)


signal.signal(signal.SIGTERM, sum_up)
how = sys.argv[1] if len(sys.argv) > 1 else ""
processes = len(list(pathlib.Path("/proc").glob("[0-9]*")))
print(f"user {os.getuid()}, {processes} processes", flush=True)
if how == "failing":
    print("no such scenario", flush=True)
    sys.exit(7)
began = time.monotonic()
while how != "short" or time.monotonic() < began + 2:
    send(os.environ["URL"])
    time.sleep(0.05)
