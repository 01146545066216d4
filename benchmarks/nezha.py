"""Importing Nezha and diagnosing all its incidents with all methods: `python benchmarks/nezha.py`.

Reads the folder of real data (OPSASSAY_DATA): the 28 packs of nezha-datapacks, and nezha-raw, a slice in the original form.
Commands are those of a user, each a process with all its imports. Printed are wall clock and the processor time that all
processes used: on a busy machine the second tells what the first would be. The bar is 60 s for everything together.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR_S = 60.0


def main() -> int:
    """Measure the commands; 1 when they take longer than the bar, or when one of the runs has no answer."""
    data = Path(os.environ.get("OPSASSAY_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / "nezha-datapacks").is_dir():
        print(f"no Nezha data at {data}; set OPSASSAY_DATA")
        return 0
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        read, *raw_s = timed("import", "nezha", str(data / "nezha-raw"), "-o", f"{folder}/raw")
        copied, *packs_s = timed("import", "rcabench", str(data / "nezha-datapacks"), "-o", f"{folder}/packs")
        ran, *diagnosed_s = timed("diagnose", f"{folder}/packs")
    raw, packs, diagnosed = read["items"], copied["items"], ran["items"]
    failed = [item for item in diagnosed if item["status"] != "done"]
    wall_s, cpu_s = (sum(times) for times in zip(raw_s, packs_s, diagnosed_s, strict=True))
    methods, imported = len({item["method"] for item in diagnosed}), sum(i["status"] == "imported" for i in raw)
    _line(f"import of the original form ({imported} incidents)", *raw_s)
    _line(f"import of the packs ({len(packs)} incidents)", *packs_s)
    _line(f"diagnosis ({len(diagnosed)} runs of {methods} methods)", *diagnosed_s)
    _line("all", wall_s, cpu_s)
    print(f"{cpu_s / cores:.1f} s of processor time per core ({cores}); bar {BAR_S:.0f} s; {len(failed)} runs failed")
    for item in failed[:5]:
        print(f"  {item['case']} {item['method']}: {item['answer']}")
    return 1 if failed or wall_s > BAR_S else 0


def _line(what: str, wall_s: float, cpu_s: float) -> None:
    print(f"{what:<52} {wall_s:>7.1f} s  ({cpu_s:.1f} s of processor time)")


def timed(*arguments: str) -> tuple[dict[str, Any], float, float]:
    """Return what a command prints as JSON, its seconds, and the processor time of all its processes."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("opsassay")), *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print("\n".join(done.stderr.splitlines()[-5:]))
    if not done.stdout:
        raise SystemExit(done.stderr)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed, wall_s, cpu_s


if __name__ == "__main__":
    sys.exit(main())
