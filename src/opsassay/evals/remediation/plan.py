"""The plan of trials: agents x scenarios x variants (arms) x repeats, and checks that each can start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from opsassay.core.errors import RefusedError, UserError, naming
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.scenario import CONTROL, Scenario
from opsassay.evals.remediation.controls.scripts import applicable, script_of
from opsassay.evals.remediation.solve import TrialRun
from opsassay.evals.remediation.trial.contract import CommandSettings, PromptArm, TrialAgent
from opsassay.evals.runner.commands import refusal_to_seal
from opsassay.evals.runner.external_agents import APIS
from opsassay.evals.runner.oracles import oracles_asked
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.tool_servers import PlannedTools
from opsassay.solvers.agents.models.named import model_named, require_endpoint
from opsassay.telemetry.mask import Mask
from opsassay.testbed.operations.noise import require_bystanders
from opsassay.testbed.scenarios import generated_names, load_scenario, names, system_of
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

EVERY_CONTROL = f"{ORACLE}{CONTROL}*"
ALL: dict[str, Callable[[], list[str]]] = {
    "all": lambda: names("local"),
    "all-on-kubernetes": lambda: names("kubernetes"),
    "generated": lambda: generated_names("local"),
    "generated-on-kubernetes": lambda: generated_names("kubernetes"),
}
"""Words that select all packaged scenarios of a substrate, or those generated with the published seed."""


class TrialPlan(Written):
    """A plan of trials. Repeats are the outermost loop, so that an interrupted plan is balanced."""

    scenarios: tuple[str, ...] = Field(
        min_length=1,
        description="names, files beside the plan, `all` (of this machine), `all-on-kubernetes`, `generated` or "
        "`generated-on-kubernetes`",
    )
    agents: tuple[TrialAgent, ...] = Field(
        min_length=1, description="oracle:NAME, oracle:*, oracle:control-*, built-in or external agents"
    )
    tools: tuple[PlannedTools, ...] = Field(default=(), description="MCP servers whose tools agents have besides ours")
    arms: tuple[PromptArm, ...] = Field(default=("baseline",), min_length=1, description="prompt arms")
    probes: tuple[bool, ...] = Field(default=(True,), min_length=1, description="probe arms: on, off")
    masks: tuple[Mask, ...] = Field(
        default=(Mask(),), min_length=1, description="arms of less telemetry for the tools; {} is all of it"
    )
    rollback: tuple[bool, ...] = Field(
        default=(False,), min_length=1, description="arms with and without the tool `undo_last`, on this machine"
    )
    noise: tuple[bool, ...] = Field(
        default=(False,), min_length=1, description="arms with and without background noise, on this machine"
    )
    recommend: tuple[bool, ...] = Field(
        default=(False,),
        min_length=1,
        description="arms in which the agent acts (false), or hands in a plan that a copy carries out (true)",
    )
    repeats: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0, description="of the first repeat; the next ones count up")
    timeout_s: float | None = Field(
        default=None, gt=0, description="a trial that takes longer hangs; generous when left out"
    )
    cluster: ClusterSettings = Field(
        default_factory=ClusterSettings, description="which cluster scenarios for Kubernetes happen on"
    )
    retries: int = Field(default=1, ge=0, description="further attempts of a trial whose machinery failed")
    settings: dict[str, Any] = Field(
        default_factory=dict, description="settings of every external agent; those that an agent has win"
    )

    @field_validator("settings")
    @classmethod
    def _read_commands(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Return *settings* unchanged; raises ValueError if those of commands are invalid."""
        CommandSettings.model_validate(settings)
        return settings

    @model_validator(mode="after")
    def _refuse_repeats(self) -> Self:
        """Return the plan; ValueError for masks with time windows, and for duplicates in a field."""
        if any(mask.normal_s is not None or mask.abnormal_s is not None for mask in self.masks):
            raise ValueError(
                "masks: normal_s and abnormal_s are for recorded incidents; a trial has no windows to shorten"
            )
        for field in ("scenarios", "arms", "probes", "masks", "rollback", "noise", "recommend"):
            if len(set(map(str, given := getattr(self, field)))) < len(given):
                raise ValueError(f"`{field}` names something twice; `repeats` is for that")
        if len({agent.model_dump_json() for agent in self.agents}) < len(self.agents):
            raise ValueError("`agents` names one twice; `repeats` is for that")
        return self


def load_trial_plan(path: Path) -> tuple[TrialPlan, tuple[TrialRun, ...]]:
    """Return the plan in the YAML file *path* and all its trials; raises ConfigError."""
    plan = load_yaml(path, TrialPlan)
    with naming(str(path)):
        return plan, cells_of(plan, path.parent)


def cells_of(plan: TrialPlan, folder: Path = Path()) -> tuple[TrialRun, ...]:
    """Return every trial of *plan*, each once; scenario files are relative to *folder*.

    A variant that would change nothing is left out: a scenario without an addendum has no prompt `constrained`, one
    that commits no probe but the last has one probe variant, and one without telemetry has no mask. Raises
    NotFoundError, ConfigError, UserError.
    """
    scenarios = scenarios_named(plan.scenarios, folder)
    jobs = (
        TrialRun(
            scenario,
            agent,
            arm,
            probes,
            plan.seed + repeat,
            plan.cluster,
            plan.timeout_s,
            plan.retries,
            mask=mask,
            rollback=rollback,
            noise=noise,
            recommend=recommend,
        )
        for repeat in range(plan.repeats)
        for scenario in scenarios
        for agent in _list_agents(plan, scenario, folder)
        for arm in _list_arms(plan, scenario)
        for probes in _list_probe_choices(plan, scenario)
        for mask in _list_masks(plan, scenario)
        for rollback in _list_rollbacks(plan, scenario)
        for noise in _list_noises(plan, scenario)
        for recommend in plan.recommend
    )
    cells = tuple({job.cell.hash: job for job in jobs}.values())
    for cell in cells:
        _require_copy(cell)
    return cells


def scenarios_named(selectors: Iterable[str], folder: Path = Path()) -> list[Scenario]:
    """Return the scenarios of *selectors* (ids, groups, YAML files), each once; raises NotFoundError, ConfigError."""
    names = dict.fromkeys(name for word in selectors for name in (ALL[word]() if word in ALL else [word]))
    return [load_scenario(str(folder / name) if name.endswith((".yaml", ".yml")) else name) for name in names]


def _list_arms(plan: TrialPlan, scenario: Scenario) -> tuple[PromptArm, ...]:
    """Return the prompt variants of *plan* that *scenario* has a text for; raises UserError when there is none."""
    found = tuple(arm for arm in plan.arms if arm == "baseline" or scenario.constrained.strip())
    if not found:
        raise UserError(
            f"{scenario.id} has no `constrained` addendum, so that prompt arm would tell an agent nothing else; "
            "give the scenario one, or add `baseline` to the plan's `arms`."
        )
    return found


def _list_probe_choices(plan: TrialPlan, scenario: Scenario) -> tuple[bool, ...]:
    """Return the probe variants of *plan* (True: on); only one for a scenario without probes."""
    return plan.probes if scenario.verification.probe_every_s is not None else (max(plan.probes),)


def _list_rollbacks(plan: TrialPlan, scenario: Scenario) -> tuple[bool, ...]:
    """Return the variants of *plan* with (True) and without the tool `undo_last`; only False on a cluster."""
    return plan.rollback if scenario.environment.substrate == "local" else (False,)


def _list_noises(plan: TrialPlan, scenario: Scenario) -> tuple[bool, ...]:
    """Return the variants of *plan* with (True) and without background noise; raises RefusedError if impossible."""
    if any(plan.noise):
        require_bystanders(system_of(scenario), scenario)
    return plan.noise


def _require_copy(job: TrialRun) -> None:
    """Raise RefusedError when *job* asks for a recommended plan and no fresh copy of its system is possible."""
    if not job.recommend:
        return
    scenario, why = job.scenario, ""
    if (substrate := scenario.environment.substrate) != "local":
        why = f"{scenario.id} happens on {substrate}, and only systems of this machine have a fresh copy"
    elif (project := system_of(scenario).compose) is not None and project.attached:
        why = f"{scenario.id} happens on the project {project.attached} itself, which has no fresh copy"
    elif job.agent.oracle is not None and job.agent.oracle.startswith(CONTROL):
        why = f"{job.agent.name} is about when somebody acts, and is no plan"
    if why:
        raise RefusedError(f"`recommend`: {why}; leave `recommend` out of this plan.")


def _list_masks(plan: TrialPlan, scenario: Scenario) -> tuple[Mask, ...]:
    """Return the telemetry masks of *plan*; only the empty one when the services send no telemetry."""
    silent = scenario.cluster is not None and scenario.cluster.silent
    return (Mask(),) if silent else plan.masks


def _list_agents(plan: TrialPlan, scenario: Scenario, folder: Path) -> list[TrialAgent]:
    """Return the agents of *plan*, each once; ``oracle:*`` becomes the scenario's oracles, the same for controls."""
    found: list[TrialAgent] = []
    for agent in plan.agents:
        if agent.name == EVERY_CONTROL:
            asked = [control.name for control in applicable(scenario)]
        elif agent.oracle is not None and agent.oracle.startswith(CONTROL):
            script_of(scenario, agent.oracle)
            asked = [agent.oracle]
        else:
            asked = oracles_asked(agent.name, scenario.oracles, scenario.id)
        tools = [str(folder / one.mcp) for one in plan.tools]
        found += [TrialAgent(name=ORACLE + name) for name in asked] or [
            with_tools(_with_settings(agent, plan.settings), tools)
        ]
    return list({agent.model_dump_json(): agent for agent in found}.values())


def _with_settings(agent: TrialAgent, settings: Mapping[str, Any]) -> TrialAgent:
    """Return *agent*, if external, with *settings* as defaults under its own. Raises ValidationError."""
    if not settings or not agent.is_outside:
        return agent
    return TrialAgent.model_validate({**agent.model_dump(), "settings": {**settings, **agent.settings}})


def with_tools(agent: TrialAgent, files: Sequence[str]) -> TrialAgent:
    """Return *agent* with the MCP servers in *files* added, an oracle unchanged; raises ConfigError."""
    if not files or agent.oracle is not None:
        return agent
    joined = agent.model_copy(update={"tools": (*agent.tools, *files)})
    _ = joined.servers  # what is wrong with a file is said before anything runs
    return TrialAgent.model_validate(joined.model_dump())


PERFORMED_ON = ("local", "kubernetes")


def require_sound(jobs: Sequence[TrialRun]) -> None:
    """Raise UserError if one of *jobs* has an unknown system or an agent that cannot start here."""
    for scenario in {job.scenario.id: job.scenario for job in jobs}.values():
        if (substrate := scenario.environment.substrate) not in PERFORMED_ON:
            raise RefusedError(f"{scenario.id} needs {substrate}; {' and '.join(PERFORMED_ON)} are performed here.")
        system_of(scenario)
    for agent in {job.agent.model_dump_json(): job.agent for job in jobs}.values():
        _require_agent(agent)


def _require_agent(agent: TrialAgent) -> None:
    """Raise UserError when the agent's model, package or required sandbox is not available here."""
    asks_model = not agent.is_outside
    if agent.is_outside:
        outside = agent.outside()
        asks_model = outside.asks_model
        if "model" in outside.needs and agent.model is None:
            raise UserError(f"The agent {outside.name} asks a model: name one with `model:` in the plan.")
        if APIS in outside.needs:
            import opsassay.telemetry.backends.serving  # noqa: F401 - what is not installed is missed now
        if agent.sealing == "required" and (refusal := refusal_to_seal("required", remote=agent.remote)) is not None:
            raise UserError(f"The agent {outside.name} is to be sealed, and no seal can be made here: {refusal}")
    if asks_model and agent.model is not None:
        model_named(agent.model)
        require_endpoint(agent.model)
