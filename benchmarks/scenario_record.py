"""What runs of scenarios came to, kept over many machines and days: one line per run, and how far that is of three each.

    python benchmarks/scenario_record.py [FILE]

`benchmarks/scenarios.py --record FILE` adds lines. A run counts for a scenario as long as the scenario's digest is that of
today: one whose file or recipe was changed since has to be run again, and so has one whose alert has another rule since,
which no digest shows (`RULES_SINCE`). A pair of a scenario and a script is whole when the
last three of its runs came out as expected: one that did not, on a machine or a version of then, takes three more.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from opsassay.cli.output import print_table
from opsassay.core.schema.scenario import CONTROL, Scenario
from opsassay.evals.remediation.controls.scripts import applicable, script_of
from opsassay.scoring.rates import wilson
from opsassay.testbed.scenarios import generated_names, load_scenario, names

RECORD = Path(__file__).with_name("scenario_runs.csv")
WANTED = 3
RULES_SINCE = {"saturation": "2026-11-26T23:06:00Z"}
"""Since when an alert's rule, and what makes it fire, are those of today (UTC): a leak did not fire for a while."""


@dataclass(frozen=True)
class SeenRun:
    """One run that came to a result; *failed* are the predicates that failed, parted by blanks."""

    started: str
    scenario: str
    digest: str
    script: str
    probes: str
    expected: str
    failed: str


def read(path: Path) -> list[SeenRun]:
    """Return the runs that the file at *path* holds, none where there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as lines:
        return [SeenRun(**line) for line in csv.DictReader(lines)]


def add(path: Path, seen: Iterable[SeenRun]) -> int:
    """Write what the file at *path* and *seen* hold, each run once, in the order of time; return how many are new."""
    before = set(read(path))
    every = sorted(before | set(seen), key=lambda run: (run.started, run.scenario, run.script))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(SeenRun)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, every))
    return len(every) - len(before)


def kind_of(scenario: Scenario, script: str) -> str:
    """Return whether *script* is a right oracle, a wrong one or a control."""
    if script.startswith(CONTROL):
        return "control"
    return "right oracle" if script_of(scenario, script).certified else "wrong oracle"


def counts_since(scenario: Scenario) -> str:
    """Return since when runs of *scenario* say what they would today, as far as its alerts are concerned."""
    alerts = scenario.verification.alerts
    return max((RULES_SINCE.get(rule.signal, "") for rule in alerts.triggering), default="") if alerts else ""


def summary(runs: Iterable[SeenRun]) -> list[dict[str, object]]:
    """Return, by group of scenarios and kind of script, how many pairs of both have how many of their runs."""
    by_digest: defaultdict[tuple[str, str], list[SeenRun]] = defaultdict(list)
    for run in runs:
        by_digest[run.scenario, run.digest].append(run)
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for substrate in ("local", "kubernetes"):
        for origin, listed in (("shipped", names), ("generated", generated_names)):
            for name in listed(substrate):
                scenario = load_scenario(name)
                since = counts_since(scenario)
                of_today = [run for run in by_digest[name, scenario.digest()[:12]] if run.started >= since]
                for script in [*scenario.oracles, *(one.name for one in applicable(scenario))]:
                    results = [run.expected == "yes" for run in of_today if run.script == script]
                    row = rows[f"{origin}, {substrate}", kind_of(scenario, script)]
                    row.update(pairs=1, runs=len(results), right=sum(results), begun=bool(results))
                    row.update(whole=len(results) >= WANTED and all(results[-WANTED:]))
    return [_line(*key, row) for key, row in rows.items()]


def _line(group: str, kind: str, row: Counter[str]) -> dict[str, object]:
    low, high = wilson(row["right"], row["runs"]) if row["runs"] else (0.0, 1.0)
    return {
        "scenarios": group,
        "script": kind,
        "pairs": row["pairs"],
        "run at all": row["begun"],
        f"last {WANTED}": row["whole"],
        "runs": row["runs"],
        "as expected": row["right"],
        "95%": f"{low:.0%} to {high:.0%}" if row["runs"] else "",
    }


def main() -> int:
    path = Path(sys.argv[1]) if sys.argv[1:] else RECORD
    runs = read(path)
    lines = summary(runs)
    print_table("Scripts of scenarios", list(lines[0]), [list(line.values()) for line in lines])
    print(f"{len(runs)} runs in {path.name}, those of former forms of a scenario among them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
