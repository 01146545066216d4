"""How long drawn queries of PromQL take beside Debian's Prometheus, over the same samples, both warm and over HTTP.

The queries are those that the tests compare, over an hour of 140 services (about 2,200 series, a sample every 15 s): at an
instant, and over the hour at a step of 15 s. Of each query the ratio of the two medians counts; the bar is 0.7 for the
median of all ratios and 3 for the worst.

Run: ``python -m benchmarks.promql.speed [--queries N] [--repeats N] [--services N] [--slowest N]``
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from .grammar import Grammar
from .samples import HOUR_S, START_S, STEP_S, made, served_by_prometheus, served_by_us

KINDS = {
    "query": {"time": START_S + HOUR_S - 0.5},
    "query_range": {"start": START_S + 0.5, "end": START_S + HOUR_S - 0.5, "step": STEP_S},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("queries", 500), ("repeats", 5), ("services", 140), ("slowest", 5), ("seed", 20)):
        options.add_argument(f"--{name}", type=int, default=default)
    chosen = options.parse_args()
    series, grammar = made(chosen.services), Grammar(chosen.seed)
    queries = [grammar.query() for _ in range(chosen.queries)]
    print(f"{len(series)} series, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with served_by_us(folder / "ours", series) as ours, served_by_prometheus(folder / "theirs", series) as theirs:
            for path, parameters in KINDS.items():
                found: list[tuple[float, float, float, str]] = []
                for query in queries:
                    given = {"query": query, **parameters}
                    mine, other = (median_ms(url, path, given, chosen.repeats) for url in (ours, theirs))
                    if mine is not None and other is not None:
                        found.append((mine / other, mine, other, query))
                found.sort(reverse=True)
                ratios = [ratio for ratio, *_ in found]
                print(f"{path}: {len(found)} queries, median {statistics.median(ratios):.2f}, worst {ratios[0]:.2f}")
                for ratio, mine, other, query in found[: chosen.slowest]:
                    print(f"  {ratio:6.2f}  {mine:7.1f} ms beside {other:7.1f} ms  {query}")
    print(f"load {os.getloadavg()[0]:.1f}")


def median_ms(url: str, path: str, parameters: dict[str, object], repeats: int) -> float | None:
    """Return how long the answer takes until it is read, once the server is warm; None for a query that is refused."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(f"{url}/api/v1/{path}?{urlencode(parameters)}") as answer:
                answer.read()
        except urllib.error.HTTPError:
            return None
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
