"""Converts between runs and logs of inspect_ai: graded runs to scores of ``.eval`` files, logs of our task to runs.

Logs are written by inspect_ai itself, and read without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError, OpsAssayError
from opsassay.core.schema.run import RunStatus, Solver, Verdict
from opsassay.core.schema.task import Task
from opsassay.core.schema.trajectory import Trace
from opsassay.core.untrusted import CAUSED_BY_CONTENT
from opsassay.evals.diagnosis.harnesses.submissions import read_given
from opsassay.evals.diagnosis.results.repeats import success
from opsassay.evals.diagnosis.score import TRACE
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.run import AttemptOutcome, RunSpec, attempt
from opsassay.evals.runner.store import RunStore
from opsassay.scoring.aggregate import is_zero
from opsassay.solvers.proxy.apis.counts import usage_by_total
from opsassay.solvers.proxy.formats.inspect_log import inspect_payload, inspect_traces
from opsassay.solvers.proxy.reading import read_json
from opsassay.telemetry.importers.cases import ImportReport, OnCase

ABOUT = "opsassay"
"""The key in a sample's metadata with the data on the incident that `import_runs` needs (see `about`)."""

SCORES = (
    "any_service", "exact_match", "f1", "precision_at_full_recall", "path_reachability", "edge_f1", "ungrounded",
    "sql_exec", "evidence_relevant",
)  # fmt: skip
"""Metrics that become scores of a sample, after `success`; the others are in the score's metadata."""


def about(item: IncidentItem) -> dict[str, Any]:
    """Return the sample metadata of *item*: id, commitment, system and services, nothing of the truth."""
    task = item.task
    return {
        "item": task.id,
        "commitment": task.commitment,
        "system": task.system,
        "services": item.datapack.candidates(),
    }


def shown_scores(verdict: Verdict) -> tuple[dict[str, float], str]:
    """Return (the scores of *verdict* by name, the reasons of scores without a value as one text).

    Every verdict has the same names. A score without a value is NaN, which inspect_ai leaves out of its means; a run
    without an answer counts as 0 in the metrics in which it does so everywhere.
    """
    right = success(verdict.metrics)
    values = {"success": math.nan if right is None else float(right)}
    for name in SCORES:
        value = 0.0 if is_zero(verdict, name) else verdict.metrics[name].value
        values[name] = math.nan if value is None else value
    reasons = {name: verdict.metrics[name].reason for name in SCORES if verdict.metrics[name].reason}
    return values, "\n".join(f"{name}: {reason}" for name, reason in reasons.items())


def import_runs(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Store each sample of the inspect_ai log of our task at *source* as a run with its trace in the store *out*.

    Stored samples are skipped. The runs have the isolation *unsealed*, so they are graded but not ranked. *on_case* is
    called for each sample; one of another task counts as failed in the report. Raises DatapackError when *source* is no
    log.
    """
    became: dict[str, list[tuple[str, str]]] = {"imported": [], "skipped": [], "failed": []}
    store = RunStore(out)
    for sample in logged_samples(log_payload(source), source):
        try:
            kind, detail = _keep_sample(store, sample)
        except (OpsAssayError, *CAUSED_BY_CONTENT) as error:
            said = str(error) if isinstance(error, OpsAssayError) else f"it cannot be read ({error!r})"
            kind, detail = "failed", said
        became[kind].append((sample.name, detail))
        if on_case is not None:
            on_case(sample.name, f"{kind}: {detail}" if kind == "failed" else kind)
    return ImportReport(**{kind: tuple(cases) for kind, cases in became.items()})


def log_payload(source: Path) -> Any:
    """Return the log at *source* as a JSON object; raises DatapackError."""
    return inspect_payload(source) if source.suffix.lower() == ".eval" else read_json(source)


@dataclass(frozen=True)
class LoggedSample:
    """One *sample* of the log *payload* that was read from *source*; *name* is "id/epoch"."""

    name: str
    payload: Mapping[str, Any]
    sample: Mapping[str, Any]
    source: Path

    def cell(self) -> RunSpec:
        """Return the run spec (task, solver, seed) of the sample; DatapackError for a sample of another task."""
        head = self._require_head()
        task = Task(
            id=str(head["item"]), domain="diagnosis", name=str(head["item"]), stratum=str(head["system"]),
            system=str(head["system"]), goal="", commitment=str(head["commitment"]),
        )  # fmt: skip
        solver = _solver_of_log(self.payload["eval"])
        return RunSpec(task, solver, solver.digest(), seed=int(self.sample.get("epoch", 1)) - 1)

    def trace(self) -> Trace:
        """Return the sample's steps as a trace; raises DatapackError."""
        (trace,) = inspect_traces({**self.payload, "samples": [self.sample]}, self.source)
        return trace

    def outcome(self) -> AttemptOutcome:
        """Return the sample's status, answer and usage; after an error of inspect_ai the status is aborted."""
        sample, services = self.sample, [str(service) for service in self._require_head()["services"]]
        if error := sample.get("error"):
            said = error.get("message", "") if isinstance(error, dict) else error
            return AttemptOutcome(RunStatus.ABORTED, f"inspect_ai: {said}"[:600])
        limit = str((sample.get("limit") or {}).get("type", ""))
        usage = [usage_by_total("inspect", one) for one in (sample.get("model_usage") or {}).values()]
        spent = {key: float(sum(one.get(key, 0) for one in usage)) for key in ("input_tokens", "output_tokens")}
        spent["seconds"] = float(sample.get("total_time") or 0)
        outcome = read_given(str((sample.get("output") or {}).get("completion", "")), services)
        status = RunStatus.TIMEOUT if outcome.diagnosis is None and limit in ("time", "working") else outcome.status
        return AttemptOutcome(status, outcome.error, outcome.diagnosis, (limit,) if limit else (), spent)

    def _require_head(self) -> Mapping[str, Any]:
        """Return the sample's metadata on the incident (see `about`); raises DatapackError for other tasks."""
        head = (self.sample.get("metadata") or {}).get(ABOUT)
        if not isinstance(head, dict) or not {"item", "commitment", "system", "services"} <= head.keys():
            raise DatapackError(
                f"sample {self.name} is no sample of opsassay/diagnosis; its trace can be had by `opsassay trace convert`."
            )
        return head


def logged_samples(payload: Any, source: Path) -> Iterator[LoggedSample]:
    """Yield the samples of the inspect_ai log *payload* from *source*; raises DatapackError when it is no log."""
    samples = payload.get("samples") if isinstance(payload, dict) and isinstance(payload.get("eval"), dict) else None
    if not isinstance(samples, list) or not samples:
        raise DatapackError(f"{source} is no log of inspect_ai with samples; give the .eval file of a run that ended.")
    for number, sample in enumerate(samples, 1):
        of = sample if isinstance(sample, dict) else {}
        yield LoggedSample(f"{of.get('id', number)}/{of.get('epoch', 1)}", payload, of, source)


def _keep_sample(store: RunStore, sample: LoggedSample) -> tuple[str, str]:
    """Store *sample* as a run; return ("imported", its folder), or ("skipped", the folder) if it has a result."""
    cell, trace = sample.cell(), sample.trace()
    if known := store.finished(cell.hash):
        return "skipped", str(known)

    def solve(folder: Path, _: object) -> AttemptOutcome:
        """Write the steps of the sample's trace and return its outcome."""
        write_steps(folder, trace)
        return sample.outcome()

    return "imported", str(attempt(store, cell, solve, limits={}, isolation="unsealed"))


def write_steps(folder: Path, trace: Trace) -> None:
    """Write the steps of *trace* as trace files into the run's *folder*."""
    lines = "".join(step.model_dump_json() + "\n" for step in trace.steps)
    (folder / TRACE).write_text(lines, encoding="utf-8")


def _solver_of_log(spec: Mapping[str, Any]) -> Solver:
    """Return the solver that the log's *spec* describes: inspect_ai's solver and model with their arguments."""
    model, name = str(spec.get("model", "")), spec.get("solver") or "the task's own"
    given = {key: spec.get(key) for key in ("solver_args", "model_args", "model_generate_config", "packages")}
    configuration = {"model": model, "solver": name, **{key: value for key, value in given.items() if value}}
    return Solver(name=f"inspect ({model})", kind="agent", configuration=configuration)
