"""Performers for the matrix: what they leave behind is made, how they end is real."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from opsassay.core.errors import StartError
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import ACTIONS, ALERTS, DIAGNOSES, PHASES, TIMELINE
from opsassay.evals.remediation.trial.contract import BASELINE, REPORT
from scoring.verifiers.made import change, diagnosis, probe, recording, timeline


def write(run_dir, made):
    with (run_dir / TIMELINE).open("w") as out:
        out.write(f'{{"boot_id": "b", "cadence_s": {made.timeline.cadence_s}, "schema_version": 2}}\n')
        out.writelines(tick.model_dump_json(exclude_defaults=True) + "\n" for tick in made.timeline.ticks)
    for name, lines in ((PHASES, made.phases), (ACTIONS, made.actions), (ALERTS, made.alerts)):
        for line in lines:
            append_line(run_dir / name, line)


def quick(scenario, agent, arm, *, probes, seed, run_dir):
    """Repair gently, or with an outage in mid-run when the oracle is called harmful; shallow ones leave D3 broken."""
    d1 = [1.0] * 25
    if agent.oracle == "harmful":
        d1[14] = 0.5
    during = [probe("p", 12, took=6.0 if arm == "constrained" else 0.01)] if probes else []
    last = probe("last", 23, reachable=agent.oracle != "shallow")
    made = timeline(d1, probes=[*during, last])
    write(run_dir, recording(made, deployed=0, triggered=4, started=10, ended=20, actions=[change(11)]))
    if (told := os.environ.get("PERFORMED")) is not None:
        with Path(told).open("a") as log:
            log.write(f"{agent.name} {arm} {probes} {seed}\n")


def diagnosing(scenario, agent, arm, *, probes, seed, run_dir):
    """Repair gently; an agent that is no oracle names the cause after 4 s and after 6 s, and a wrong one the third time."""
    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
    if agent.oracle is None:
        said = (diagnosis(14, "cart"), diagnosis(16, "cart"), diagnosis(11, "web"))
        append_line(run_dir / DIAGNOSES, said[seed])


USELESS, REPAIR, HARMFUL = {"service": "web", "replicas": 1}, {"target": "cart"}, {"target": "web"}


def three_changes(scenario, agent, arm, *, probes, seed, run_dir):
    """Scale to what is there, repair, and restart another service, which users notice; a replay does what its steps say."""
    script = scenario.oracles["replayed"].steps if agent.oracle == "replayed" else None
    made = [USELESS, REPAIR, HARMFUL] if script is None else [step.arguments for step in script if step.verb]
    d1 = [1.0] * 25
    if HARMFUL in made:
        d1[16] = 0.5
    recorded = timeline(d1, probes=[probe("last", 23, reachable=REPAIR in made)])
    actions = [
        change(11 + 2 * n).model_copy(update={"tool": "scale" if given == USELESS else "restart", "arguments": given})
        for n, given in enumerate(made)
    ]
    write(run_dir, recording(recorded, deployed=0, triggered=4, started=10, ended=20, actions=actions))


def flaky(scenario, agent, arm, *, probes, seed, run_dir):
    """Fail once in the machinery, then go."""
    if not (first := Path(os.environ["PERFORMED"])).exists():
        first.touch()
        raise StartError("The database did not start.")
    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)


def starving(scenario, agent, arm, *, probes, seed, run_dir):
    """Repair gently on a machine that others keep busy the first time."""
    first = not (told := Path(os.environ["PERFORMED"])).exists()
    told.touch()
    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
    if first:
        busy = {"foreign": 0.9, "foreign_runnable": 9.0, "cpu": 1.0}
        file = run_dir / TIMELINE
        head, *ticks = file.read_text().splitlines()
        file.write_text(
            "\n".join([head, *(json.dumps({**json.loads(tick), "pressure": busy}) for tick in ticks)]) + "\n"
        )


def hanging(scenario, agent, arm, *, probes, seed, run_dir):
    """Never end."""
    time.sleep(600)


def undoing(scenario, agent, arm, *, probes, seed, run_dir):
    """Never end, and tell when everything is undone."""
    try:
        Path(os.environ["PERFORMED"]).write_text("begun\n")
        hanging(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
    finally:
        time.sleep(1.0)
        with Path(os.environ["PERFORMED"]).open("a") as log:
            log.write("undone\n")


def interrupting(scenario, agent, arm, *, probes, seed, run_dir):
    """Interrupt who runs the matrix, as Ctrl-C does, and never end."""
    if agent.oracle == "harmful":
        os.kill(os.getppid(), signal.SIGINT)
    hanging(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)


def meeting(scenario, agent, arm, *, probes, seed, run_dir):
    """End only when three trials are there at once; a failure of the machinery otherwise."""
    with Path(os.environ["PERFORMED"]).open("a") as log:
        log.write(f"{agent.name}\n")
    ends = time.monotonic() + 30
    while len(Path(os.environ["PERFORMED"]).read_text().splitlines()) < 3:
        if time.monotonic() > ends:
            raise StartError("The others did not come.")
        time.sleep(0.05)
    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)


def crowded(scenario, agent, arm, *, probes, seed, run_dir):
    """Fail at the first attempt, once all three are there; log when the second begins and ends."""
    log = Path(os.environ["PERFORMED"])
    if not (tried := log.with_name(agent.oracle)).exists():
        tried.touch()
        meeting(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
        raise StartError("The machine was busy.")
    with log.open("a") as lines:
        print("begun", file=lines, flush=True)
        time.sleep(0.5)
        quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
        print("ended", file=lines, flush=True)


def dying(scenario, agent, arm, *, probes, seed, run_dir):
    """Die without a word."""
    os.kill(os.getpid(), 9)


def kept_apart(scenario, agent, arm, *, probes, seed, run_dir):
    """Say of a command that it was sealed, as the one that ran it does."""
    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
    (run_dir / REPORT).write_text(json.dumps({"sealed": agent.name == "apart"}))


def operating(scenario, agent, arm, *, probes, seed, run_dir):
    """Run the agent for real, with tools at which there is nothing to do; its calls are recorded."""
    from evals.remediation.test_diagnosing import NoTools
    from opsassay.evals.remediation.trial.operators import Assignment, run_operator

    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
    session = NoTools()
    session.record = lambda action: append_line(run_dir / ACTIONS, action)
    run_operator(agent, Assignment(scenario, scenario.prompt(arm), 60.0, seed, run_dir), session)


def seeing(scenario, agent, arm, *, probes, seed, run_dir):
    """Run the command of the agent for real, with tools that see the telemetry of two services."""
    from evals.remediation.test_diagnosing import NoTools
    from opsassay.evals.remediation.trial.external import operate
    from opsassay.evals.remediation.trial.operators import Assignment
    from opsassay.testbed.operations.telemetry_view import TelemetryView
    from testbed.operations.test_masks import Alerting, Given

    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
    session, telemetry = NoTools(), Given()
    telemetry.since_ns = 0
    session.view = TelemetryView(telemetry, Alerting())
    operate(agent, Assignment(scenario, scenario.prompt(arm), 60.0, seed, run_dir), session)


def leaving(scenario, agent, arm, *, probes, seed, run_dir):
    """Repair gently, and leave a namespace behind."""
    quick(scenario, agent, arm, probes=probes, seed=seed, run_dir=run_dir)
    (run_dir / BASELINE).write_text(json.dumps({"verified": False, "left": ["Namespace x is still there"]}))
