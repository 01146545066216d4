"""The tree of commands: stages of the help, groups, the module of each command, and former names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from opsassay.core.errors import nearest


class CommandEntry(NamedTuple):
    """A command: its line in a listing, and its *place*, ``module:attribute`` below `opsassay.cli`."""

    about: str
    place: str


STAGES = {
    "Break a system": ("demo", "new", "system"),
    "Record incidents": ("incident",),
    "Run agents": ("task", "agent", "run"),
    "Score": ("score", "compare", "audit", "leaderboard"),
    "Look at it": ("view", "report", "trace"),
    "Serve": ("server",),
}
"""The groups and commands of the top level, by the stage of work under which the help lists them."""

GROUPS = {
    "new": "Begin an agent, method, scenario or plan; print JSON Schemas.",
    "system": "Start, stop and watch systems; inject faults.",
    "incident": "Record, import, annotate, curate and publish incidents.",
    "task": "List and check tasks; find faults that fool a verifier.",
    "agent": "List the agents and methods; check an agent of your own.",
    "score": "Score runs, print result tables, ask what-if questions.",
    "trace": "Record and convert agents' traces; find the step that failed.",
    "trace export": "Write runs and traces for other tools.",
    "server": "Run the platform for a team, or ask one: agents, benchmarks, tokens.",
    "server token": "Renew the tokens of a platform's users.",
}
"""Every group that is not a command itself, with its line in a listing."""

COMMANDS = {
    "demo": CommandEntry("Break a real system, explain it, score every method, report.", "demo_command"),
    "new agent": CommandEntry("Write a working example of an agent.", "new.example:agent"),
    "new method": CommandEntry("Write a working example of a method.", "new.example:method"),
    "new scenario": CommandEntry("Write a working example of a remediation scenario.", "new.example:scenario"),
    "new plan": CommandEntry("Write a working example of a plan.", "new.example:plan"),
    "new schema": CommandEntry("Print the JSON Schema of a file that people write, for editors.", "new.schema"),
    "system up": CommandEntry("Start a system and leave it running.", "system.up"),
    "system check": CommandEntry(
        "Say what of a system can be seen and broken, and what does not work.", "system.check"
    ),
    "system attach": CommandEntry("Write a system file of a compose project that runs.", "system.attach"),
    "system down": CommandEntry("Stop running systems.", "system.down"),
    "system status": CommandEntry(
        "Show running systems and isolation levels; clear what was left behind.", "system.status"
    ),
    "system logs": CommandEntry("Show what the processes of a running system have logged.", "system.logs"),
    "system render": CommandEntry("Print a system as Kubernetes manifests.", "system.render"),
    "system render worker": CommandEntry("Print workers of the platform as a Deployment.", "system.render:worker"),
    "system faults": CommandEntry("List the 31 fault types and what this machine can inject.", "system.faults"),
    "system inject": CommandEntry("Inject one fault into a running system, and undo it.", "system.inject"),
    "incident record": CommandEntry("Record one incident as a datapack, with its truth apart.", "incident.record"),
    "incident campaign": CommandEntry("Record many incidents from a plan, resumable.", "incident.campaign"),
    "incident import": CommandEntry("Bring public data into a tree of datapacks.", "incident.import_"),
    "incident import backends": CommandEntry(
        "Bring a past incident from Prometheus, Loki, Tempo or Jaeger.", "incident.import_:backends"
    ),
    "incident annotate": CommandEntry("Find the true cascade of each incident and its label.", "incident.annotate"),
    "incident curate": CommandEntry("Make a stratified, checksummed suite of annotated incidents.", "incident.curate"),
    "incident audit-labels": CommandEntry(
        "Let two annotators judge a suite's cascades, blind.", "incident.audit_labels"
    ),
    "incident fetch": CommandEntry("Download a published suite and check it.", "incident.fetch"),
    "incident export": CommandEntry("Write incidents in the public form of rcabench.", "incident.export"),
    "incident export harbor": CommandEntry(
        "Write incidents or scenarios as tasks of Harbor.", "incident.export:harbor"
    ),
    "incident export dataset": CommandEntry(
        "Write a suite as a data set of the Hugging Face Hub.", "incident.export:dataset"
    ),
    "incident serve-apis": CommandEntry("Serve an incident by APIs of observability backends.", "incident.serve_apis"),
    "task list": CommandEntry("List every task: scenarios that ship, incidents of suites.", "task.list"),
    "task scenarios": CommandEntry("List the remediation scenarios with their complexity.", "task.scenarios"),
    "task show": CommandEntry("Print a remediation scenario as YAML.", "task.show"),
    "task generate": CommandEntry("Make tasks of your own costs or of your own namespace.", "task.generate"),
    "task check": CommandEntry("Validate remediation scenarios and propose depths.", "task.check"),
    "task calibrate": CommandEntry("Measure how often a busy machine makes the verifier err.", "task.calibrate"),
    "task discover": CommandEntry("Search for faults that fool a verifier.", "task.discover"),
    "agent list": CommandEntry("List the agents, and say whether this machine can seal external ones.", "agent.list"),
    "agent check": CommandEntry("Check an agent against the contract without a real model's cost.", "agent.check"),
    "agent methods": CommandEntry("List the methods with source and cost.", "agent.methods"),
    "run": CommandEntry("Run agents over a suite, or a plan of any tasks, and score.", "run_command"),
    "run diagnose": CommandEntry("Run methods or an agent on incidents, without scores.", "run_diagnose_command"),
    "run trials": CommandEntry(
        "Run agents on remediation scenarios and judge the whole trajectory.", "run_trials_command"
    ),
    "run explain": CommandEntry("Say what each change of a trial's agent did, by replaying it.", "run_explain_command"),
    "score run": CommandEntry("Score runs against the truth.", "score.run"),
    "score import": CommandEntry("Read answers that others gave, and score them.", "score.import_"),
    "score what-if": CommandEntry("Score runs again under changed conventions.", "score.what_if"),
    "score table": CommandEntry("Print the result tables of a store of runs.", "score.table"),
    "score trials": CommandEntry("Score trials again, by what was committed before each run.", "score.trials"),
    "score timeline": CommandEntry("Judge a run that was recorded elsewhere.", "score.timeline"),
    "compare": CommandEntry("Compare two score tables or stores of runs, as a CI gate.", "compare_command"),
    "audit": CommandEntry("Report which scores may be trusted for which system.", "audit_command"),
    "audit verify": CommandEntry("Recompute every printed figure from its scores.", "audit_command:verify"),
    "leaderboard": CommandEntry("Rank the solvers of stores of runs, with intervals.", "leaderboard_command"),
    "view": CommandEntry("Show stores of runs in the browser, live, or as files.", "view_command"),
    "report": CommandEntry("Write a self-contained HTML report of runs.", "report_command"),
    "trace proxy": CommandEntry("Record, replay and edit what agents say to models.", "trace.proxy"),
    "trace proxy token": CommandEntry("Print a new token for a session of a proxy.", "trace.proxy:token"),
    "trace convert": CommandEntry("Make a trace of a recorded session or of another tool's file.", "trace.convert"),
    "trace redact": CommandEntry("Write a trace without what should not leave this machine.", "trace.redact"),
    "trace export rewards": CommandEntry(
        "Write a process reward for every step, as TRL reads it.", "trace.export:rewards"
    ),
    "trace export atif": CommandEntry("Write a trace in the agent trajectory interchange format.", "trace.export:atif"),
    "trace export otel": CommandEntry("Write or send scored runs as gen_ai spans.", "trace.export:otel"),
    "trace export inspect": CommandEntry("Write scored runs as logs of inspect_ai.", "trace.export:inspect"),
    "trace blame": CommandEntry("Find the agent and the step that made a run fail.", "trace.blame"),
    "trace blame view": CommandEntry("Write a page that shows a trace.", "trace.blame:view"),
    "trace blame annotate": CommandEntry("Write a page on which to annotate traces.", "trace.blame:annotate"),
    "trace blame agree": CommandEntry("Measure how far annotators agree.", "trace.blame:agree"),
    "server start": CommandEntry(
        "Run the platform: leaderboards, agents and benchmarks for a team, with an API.", "server.start"
    ),
    "server worker": CommandEntry("Run the platform's benchmarks, on any machine.", "server.worker"),
    "server register": CommandEntry("Register an agent with a platform.", "server.client:register"),
    "server benchmark": CommandEntry("Ask a platform to run an agent on a task set.", "server.client:benchmark"),
    "server token renew": CommandEntry("Give a user of a platform a new token.", "server.client:renew"),
    "server verify": CommandEntry("Check that nothing in a platform's chain of events was changed.", "server.verify"),
}
"""Every command by its full name; one that others extend (`run`, `run trials`) takes all other words as arguments."""

RENAMED = {
    "schema": "new schema",
    "up": "system up",
    "down": "system down",
    "logs": "system logs",
    "status": "system status",
    "render": "system render",
    "render system": "system render",
    "faults": "system faults",
    "inject": "system inject",
    "record": "incident record",
    "campaign": "incident campaign",
    "import": "incident import",
    "annotate": "incident annotate",
    "curate": "incident curate",
    "audit-labels": "incident audit-labels",
    "fetch": "incident fetch",
    "export": "incident export",
    "export rcabench": "incident export",
    "export rewards": "trace export rewards",
    "export atif": "trace export atif",
    "export otel": "trace export otel",
    "export inspect": "trace export inspect",
    "apis": "incident serve-apis",
    "tasks": "task list",
    "scenarios": "task scenarios",
    "scenarios show": "task show",
    "scenarios check": "task check",
    "discover": "task discover",
    "agents": "agent list",
    "agents list": "agent list",
    "agents check": "agent check",
    "methods": "agent methods",
    "diagnose": "run diagnose",
    "trials": "run",
    "trials run": "run trials",
    "trials grade": "score trials",
    "trials table": "score table",
    "trials report": "report",
    "grade": "score run",
    "regrade": "score what-if",
    "table": "score table",
    "audit scores": "audit",
    "board": "leaderboard",
    "proxy": "trace proxy",
    "proxy serve": "trace proxy",
    "proxy trace": "trace convert",
    "proxy redact": "trace redact",
    "blame": "trace blame",
    "blame trace": "trace blame",
    "serve": "server start",
    "worker": "server worker",
    "verify-events": "server verify",
}
"""Former to present names, of release 0.1, which work for one more release."""


def children(path: str) -> list[str]:
    """Return the full names of the groups and commands directly below *path*, '' for the first level."""
    if not path:
        return [name for names in STAGES.values() for name in names]
    return [name for name in dict.fromkeys([*COMMANDS, *GROUPS]) if name.rpartition(" ")[0] == path]


def about(path: str) -> str:
    """Return the one-line summary that the help shows for the command or group *path*, such as "incident export"."""
    return COMMANDS[path].about if path in COMMANDS else GROUPS[path]


def renamed_command(words: Sequence[str]) -> tuple[str, str] | None:
    """Return (former name, present name) if *words* begin with a command's former name, else None."""
    return next(
        (
            (old, RENAMED[old])
            for count in (2, 1)
            if (old := " ".join(words[:count])) in RENAMED and len(words) >= count
        ),
        None,
    )


def command_in(words: Sequence[str]) -> str:
    """Return the full name of the command that *words* begin with, '' for none; a former name gives the present one."""
    if found := renamed_command(words):
        words = [*found[1].split(), *words[len(found[0].split()) :]]
    return next((name for count in (3, 2, 1) if (name := " ".join(words[:count])) in COMMANDS), "")


def nearest_command(path: str, word: str) -> str | None:
    """Return the full name of the command that *word* below the group *path* probably means; None when none is close."""
    if word in RENAMED and path:
        return RENAMED[word]
    elsewhere = next((name for name in COMMANDS if name.split()[-1] == word), None)
    if elsewhere:
        return elsewhere
    names = {name.split()[-1]: name for name in reversed([*COMMANDS, *GROUPS])} | RENAMED
    names |= {name.split()[-1]: name for name in children(path)}
    near = nearest(word, names)
    return names[near] if near else None
