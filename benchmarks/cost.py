"""How long cost data and all its keys take: python benchmarks/cost.py [SEED]...

The bar is 20 s for one seed: more than 100,000 rows, the keys of ten questions by both implementations, the truth of six
anomaly tasks.
"""

from __future__ import annotations

import sys
import time

from opsassay.evals.cost.anomaly.task import ANOMALY_TASKS
from opsassay.evals.cost.focus.generate import cost_data
from opsassay.evals.cost.insight.keys import TEMPLATES, Question

BAR_S = 20.0


def main(seeds: list[int]) -> int:
    slowest = 0.0
    for seed in seeds:
        began, used = time.monotonic(), time.process_time()
        rows = cost_data(seed).tables["costs"].height
        made = time.monotonic()
        required = [len(Question(template, seed).key.required) for template in TEMPLATES.values()]
        planted = [len(make(seed).truth) for make in ANOMALY_TASKS.values()]
        ended = time.monotonic()
        slowest = max(slowest, ended - began)
        print(
            f"seed {seed}: {rows} rows in {made - began:.1f} s, {len(required)} keys twice and {sum(planted)} anomalies "
            f"in {ended - made:.1f} s; {ended - began:.1f} s in all, {time.process_time() - used:.1f} s of CPU"
        )
    print(f"slowest {slowest:.1f} s, bar {BAR_S:g} s")
    return 0 if slowest <= BAR_S else 1


if __name__ == "__main__":
    sys.exit(main([int(one) for one in sys.argv[1:]] or [1]))
