"""Command line of the native cluster: build, start, stop, status."""

from __future__ import annotations

import argparse
import json
import os
import sys

from tests.kubernetes.native.build import build
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.cluster import Cluster, ClusterError


def main() -> None:
    """Run the command that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.native", description=__doc__)
    parser.add_argument("command", choices=("build", "start", "stop", "status", "node"))
    parser.add_argument("arguments", nargs="*", help="node NAME OP [UNIT], see `Cluster.node`")
    parser.add_argument("--name", default="test", help="name of the cluster")
    parser.add_argument("--workers", type=int, default=4, help="how many nodes")
    given = parser.parse_args()
    cluster = Cluster(Cache.default(), given.name)
    try:
        if given.command == "build":
            os.nice(19 - os.nice(0))
            build(cluster.cache)
        elif given.command == "start":
            print(json.dumps(cluster.start(given.workers, on_progress=lambda line: print(line, file=sys.stderr))))
        elif given.command == "stop":
            cluster.stop()
        elif given.command == "node":
            cluster.node(*given.arguments)
        else:
            print(json.dumps(cluster.status()))
    except ClusterError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
