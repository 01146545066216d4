"""Twenty faults that OpsAssay had, put back one by one: which suite of tests turns red.

``python benchmarks/suite_faults.py [--only NAME] [--json FILE]``. Each fault is a change of one file, made in a copy of the
checkout and never in the checkout itself. Its tests run by the selection of `make test`, and while they are green by those
of the further suites. A suite is red when a test fails twice with the fault and passes without it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]
SRC = "src/opsassay/"
OUTSIDE_CI = "not faults and not long and not kubernetes"
SUITES: tuple[tuple[str, str], ...] = (
    ("make test", f"not system and not live and not browser and not slow and {OUTSIDE_CI}"),
    ("make test", "system"),
    ("make test-slow", f"slow and not alone and not browser and {OUTSIDE_CI}"),
    ("make test-live", f"live and not alone and not browser and not slow and {OUTSIDE_CI}"),
    ("make test-live", f"alone and not browser and {OUTSIDE_CI}"),
    ("make test-browser", f"browser and {OUTSIDE_CI}"),
)
"""Targets of the Makefile in the order in which they are tried, each with what it selects."""
MARKER = "OPSASSAY_SUITE_FAULTS"
"""Names the copy in the environment of all that is started, so that it is found and ended."""
PASSED, FAILED, NOTHING = 0, 1, 5
LIMIT_S, ENOUGH = 900.0, 15
"""How long one run of tests may take, and how many of the faults `make test` alone has to find."""


@dataclass(frozen=True)
class PastFault:
    """A change that puts a fault back: *text*, which *file* has once, becomes *changed*; *tests* ought to find it."""

    name: str
    says: str
    file: str
    text: str
    changed: str
    tests: str


# fmt: off
FAULTS: tuple[PastFault, ...] = (
    PastFault("roots-alone", "An incident that names its roots and no fault counts as one without a fault.",
              SRC + "core/schema/incident.py", " or any(label.service for label in self.roots):", ":",
              "tests/core/schema/test_incident.py"),
    PastFault("late-span", "A span that begins long after its root has ended lies in the window of the root.",
              SRC + "telemetry/otlp/seal.py",
              'return pl.when(late.fill_null(value=False)).then(pl.col("time")).otherwise(whole)', "return whole",
              "tests/telemetry/otlp/test_otlp_seal.py"),
    PastFault("moment-in-floats", "A call on the step of a moment is counted in the moment before.",
              SRC + "annotation/evidence/load_normalisation.py", 'return ((pl.col("time_ns") - start_ns) // width_ns)',
              'return ((pl.col("time_ns") - start_ns) / 1e9 / (length_ns / 1e9) * count).floor()',
              "tests/annotation/evidence/test_windows_of_time.py"),
    PastFault("void-graded", "A case whose fault had no effect is graded.",
              SRC + "scoring/void.py", "if truth.broken is False or annotation is None", "if truth or annotation is None",
              "tests/evals/diagnosis/test_void.py"),
    PastFault("bin-in-floats", "A sample on the step of a bin is read in the bin before.",
              SRC + "solvers/methods/signals.py", 'place = (pl.col("time").dt.epoch("ns") - window.start_ns) // width_ns',
              'place = ((pl.col("time").dt.epoch("ns") - window.start_ns) / 1e9 / (width_ns / 1e9)).floor().cast(pl.Int64)',
              "tests/solvers/methods/test_readings.py"),
    PastFault("locks-shared", "A sealed agent shares file locks with the machine.",
              SRC + "solvers/sandbox/init.py",
              "if not (is_folder and _mount_layered(source, target)):", "if source.exists():",
              "tests/solvers/sandbox/test_attempts.py"),
    PastFault("logged-first", "The log names a run before the file of the run is there.",
              SRC + "evals/runner/store.py",
              '        write_noun(cell / str(attempt) / RUN, numbered)\n'
              '        self._log_attempt("begun", numbered, pid=os.getpid(), '
              'process_started=psutil.Process().create_time())\n',
              '        self._log_attempt("begun", numbered, pid=os.getpid(), '
              'process_started=psutil.Process().create_time())\n'
              '        write_noun(cell / str(attempt) / RUN, numbered)\n',
              "tests/evals/runner/test_store.py"),
    PastFault("undo-interrupted", "A second Ctrl-C interrupts the undoing that the first one began.",
              SRC + "core/parallel.py", "signal.signal(each, lambda *_: None)",
              "signal.signal(each, signal.default_int_handler)", "tests/core/test_parallel.py"),
    PastFault("no-last-look", "A trial ends with a last look that nothing is compared with.",
              SRC + "evals/remediation/environment.py",
              "changed = changed_since(self._read_evidence(), committed, looked_ns) or (",
              'changed = "" and (',
              "tests/evals/remediation/test_last_look.py"),
    PastFault("no-policy", "Compliance files without any policy are graded as an answer.",
              SRC + "evals/compliance/score.py", "    if not policies:\n", "    if policies is None:\n",
              "tests/evals/compliance/test_tasks.py"),
    PastFault("secret-seen", "An agent whose folder holds the secret of held-out seeds takes part in cost tasks.",
              SRC + "evals/runner/generated_run.py", "in run.commands}.values():\n        require_apart(",
              "in ()}.values():\n        require_apart(", "tests/evals/cost/test_runs.py"),
    PastFault("packed-upload", "An upload that is a packed tar is expanded.",
              SRC + "server/artefacts.py", "with open_tar(io.BytesIO(content)) as archive",
              "with tarfile.open(fileobj=io.BytesIO(content)) as archive", "tests/hostile/test_bundles.py"),
    PastFault("killed-run-goes-on", "A run that is killed before the log names it is shown as running for ever.",
              SRC + "ui/browsing/watching.py", "else is_held(self.root, attempt[0]):", "else True:",
              "tests/ui/test_browsing.py"),
    PastFault("apis-end", "opsassay incident serve-apis ends at a Ctrl-C that it was started to ignore.",
              SRC + "cli/incident/serve_apis.py", "while True:  # an interruption", "if True:  # an interruption",
              "tests/cli/test_apis_command.py"),
    PastFault("owned-rules", "Packet rules whose owner is about to end fail the undoing with EPERM.",
              SRC + "testbed/kernel/netfilter.py",
              "if error.code == errno.EPERM:\n                    owned.append(name)\n                elif error",
              "if error",
              "tests/testbed/kernel/test_packets.py"),
    PastFault("image-without-examples", "The image for a cluster lacks a folder that the wheel is built from.",
              SRC + "testbed/substrates/kubernetes/manifests/Dockerfile", "COPY examples /src/examples\n", "",
              "tests/core/test_extras.py"),
    PastFault("role-no-text", "The proxy fails at a request whose role is a list.",
              SRC + "solvers/proxy/apis/chat.py", 'in ("system", "developer")]', 'in {"system", "developer"}]',
              "tests/solvers/proxy/test_apis.py"),
    PastFault("outage-rejects", "An outage of the model while a step is tried again acquits the step.",
              SRC + "analysis/blame/techniques/dynamic_agentic.py", "if run.outage is not None:", 'if run.outage == "":',
              "tests/analysis/blame/test_reruns.py"),
    PastFault("few-cases-pass", "A comparison of fewer than six cases passes a gate.",
              SRC + "analysis/audit/compare.py", "too_few = cases < fewest or detectable > 1", "too_few = False",
              "tests/analysis/audit/test_compare.py"),
    PastFault("hint-of-an-index", "The hint for a missing extra names a package index, which lacks OpsAssay.",
              SRC + "core/extras.py", "    origin = _find_install_origin()\n",
              "    return f\"run `pip install '{__package__}[{extra}]'`\"\n    origin = _find_install_origin()\n",
              "tests/core/test_extras.py"),
)
# fmt: on


@dataclass(frozen=True)
class Found:
    """Which suite turned red with a fault ('' for none), by which test, and the seconds that all runs of it took."""

    name: str
    says: str
    file: str
    suite: str
    test: str
    seconds: float


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return 1 when a fault turns no suite red, or too few of all turn `make test` red."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", choices=[fault.name for fault in FAULTS], help="this fault; repeatable"
    )
    parser.add_argument("--json", type=Path, help="write the table into this file, too")
    asked = parser.parse_args(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # undo all on the way out
    chosen = [fault for fault in FAULTS if asked.only is None or fault.name in asked.only]
    rows: list[Found] = []
    with checkout_copied() as copy:
        for fault in chosen:
            rows.append(row := look_for(fault, copy))
            print(f"{row.name:24} {row.suite or 'NONE':18} {row.seconds:6.1f} s  {row.test}", flush=True)
            if asked.json is not None:
                asked.json.write_text(json.dumps([asdict(one) for one in rows], indent=2) + "\n", encoding="utf-8")
    early, found = sum(row.suite == SUITES[0][0] for row in rows), sum(bool(row.suite) for row in rows)
    print(f"red in make test: {early} of {len(rows)}; in any suite: {found}")
    return int(found < len(rows) or (asked.only is None and early < ENOUGH))


@contextmanager
def checkout_copied() -> Iterator[Path]:
    """Yield a copy of what git knows of the checkout; end what was started in it, and remove it, however the block ends."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="opsassay-faults-", ignore_cleanup_errors=True) as folder:
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, target)
        try:
            yield Path(folder)
        finally:
            end_all(folder)


def look_for(fault: PastFault, copy: Path) -> Found:
    """Put *fault* back in *copy*, run its tests suite by suite until one turns red, and take it out again."""
    began, red, test = time.monotonic(), "", ""
    for suite, selection in SUITES:
        shutil.rmtree(copy / ".pytest_cache", ignore_errors=True)
        with put_back(fault, copy):
            status, said = run_tests(fault, selection, copy)
            if status == FAILED:  # a test that fails at times only has not found the fault
                status, said = run_tests(fault, selection, copy, "--last-failed")
        if status == FAILED:
            test = next((line.split()[1] for line in said.splitlines() if line.startswith(("FAILED ", "ERROR "))), "?")
            red = suite if run_tests(fault, selection, copy, "--last-failed")[0] == PASSED else ""
            test += "" if red else " fails without the fault, too, so that it says nothing"
            break
        if status not in (PASSED, NOTHING):
            raise SystemExit(f"{fault.name}: the tests could not be run (pytest ended with {status}).\n{said[-2000:]}")
    return Found(fault.name, fault.says, fault.file, red, test, round(time.monotonic() - began, 1))


@contextmanager
def put_back(fault: PastFault, copy: Path) -> Iterator[None]:
    """Have the fault in *copy* for the block; raises SystemExit where its text is not there exactly once."""
    path = copy / fault.file
    sound = path.read_text(encoding="utf-8")
    if (times := sound.count(fault.text)) != 1:
        raise SystemExit(f"{fault.name}: its text is {times} times in {fault.file}, not once; write the row anew.")
    path.write_text(sound.replace(fault.text, fault.changed), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(sound, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):  # of a file of that size and second
            compiled.unlink()


def run_tests(fault: PastFault, selection: str, copy: Path, *more: str) -> tuple[int, str]:
    """Return how pytest ended and what it printed; nothing that it started runs any longer."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "--tb=no", "-m", selection, *more, fault.tests]
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), MARKER: str(copy), "COLUMNS": "400"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        running = subprocess.Popen(
            command, cwd=copy, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = running.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            status = -1
        finally:
            if running.poll() is None:
                running.send_signal(signal.SIGINT)  # fixtures undo what they did
                with suppress(subprocess.TimeoutExpired):
                    running.wait(60)
            end_all(str(copy))
        said.seek(0)
        return status, said.read()


def end_all(copy: str) -> None:
    """End every process that was started with *copy* in its environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARKER) == copy:
                process.kill()


if __name__ == "__main__":
    sys.exit(main())
