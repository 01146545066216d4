"""The agent's side of a compliance task: a workspace, tools that imitate kyverno, opa, kubectl, ansible, and submit.

External agents call the tools by MCP and as commands. The agent's own code (fetcher, playbook, kubectl) runs in a
sandbox with an example cluster or host, or with the unlabelled target.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import Field

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.core.schema.trajectory import ToolCall
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld
from opsassay.evals.compliance.evidence_collection.cluster import FETCHER, fetch_on_cluster
from opsassay.evals.compliance.evidence_collection.evidence import EVIDENCE, LIMITS, collected_in
from opsassay.evals.compliance.evidence_collection.host import PLAYBOOK, play_on_host
from opsassay.evals.compliance.files.submitted import read_files, write_files
from opsassay.evals.compliance.files.workspace import Workspace, begin
from opsassay.evals.compliance.hosts.worlds import HostWorld
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import judge_objects
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, read_policies
from opsassay.evals.compliance.rego.judging import judge_by_rego
from opsassay.evals.compliance.tasks import ANSIBLE, KUBECTL, POLICY, TARGET, ComplianceTask
from opsassay.evals.runner.generated_run import FolderEnvironment
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tool_sessions import SUBMIT, CountedToolSession
from opsassay.solvers.agents.tools import MAX_CHARACTERS, NOTED, Status, Think, Toolbox, tool_specs
from opsassay.solvers.sandbox import Ended

_WORLD = Field(default=TARGET, description=f"name of a world: an example's, such as violating-1, or {TARGET}")


class ListFiles(Written):
    """List the files of the workspace, examples included."""


class ReadFile(Written):
    """Read a file of the workspace."""

    path: str


class WriteFile(Written):
    """Write a file of the workspace; what was there is replaced."""

    path: str
    content: str


class KyvernoLint(Written):
    """Read all policies of the workspace, as `kyverno lint` would, and say what is wrong with them."""


class KyvernoApply(Written):
    """Judge the objects of a world by the policies of the workspace, as `kyverno apply` would."""

    world: str = _WORLD


class OpaCheck(Written):
    """Parse policy.rego, as `opa check` does."""


class OpaEval(Written):
    """Evaluate policy.rego on a JSON file of the workspace, as `opa eval` does: true, false, undefined or an error."""

    input: str = Field(default=EVIDENCE, description="path of the input")


class KubectlWords(Written):
    """Run kubectl before a world, which only lets read."""

    words: tuple[str, ...] = Field(min_length=1, max_length=60, description="its arguments, each by itself")
    world: str = _WORLD


class RunFetcher(Written):
    """Run fetcher.sh of the workspace before a world; what it collects is put into collected_data.json."""

    world: str = _WORLD


class RunPlaybook(Written):
    """Run ansible-playbook with playbook.yml of the workspace on a host; collected_data.json is what it collects."""

    world: str = _WORLD


class GitWords(Written):
    """Run git in the workspace: add, commit, diff, log, restore, show, status."""

    words: tuple[str, ...] = Field(min_length=1, max_length=60, description="its arguments, each by itself")


_FILES: Mapping[str, type[Written]] = {"list_files": ListFiles, "read_file": ReadFile, "write_file": WriteFile}
_ENFORCED: Mapping[str, type[Written]] = {
    "kyverno_lint": KyvernoLint,
    "kyverno_apply": KyvernoApply,
    "kubectl": KubectlWords,
}
_REGO: Mapping[str, type[Written]] = {"opa_check": OpaCheck, "opa_eval": OpaEval}
_OWN: Mapping[str, Mapping[str, type[Written]]] = {
    KUBECTL: {"kubectl": KubectlWords, "run_fetcher": RunFetcher, **_REGO},
    ANSIBLE: {"ansible_playbook": RunPlaybook, **_REGO},
}


def tools_of(task: ComplianceTask) -> Mapping[str, type[Written]]:
    """Return the request model of each tool that the class of *task* offers, by tool name."""
    return {**_FILES, **_OWN.get(task.task_class, _ENFORCED), "git": GitWords, "think": Think}


class ComplianceToolbox(Toolbox):
    """The tools of *task* over the workspace *folder*, by the task's class; *examples*: number per label."""

    def __init__(self, task: ComplianceTask, folder: Path, examples: int) -> None:
        self._task, self.workspace = task, Workspace(folder)
        self._folder, self._worlds = folder, task.open_worlds(examples)
        self.tools = tools_of(task)

    @property
    def world_names(self) -> list[str]:
        """The names of the test clusters or hosts that the tools accept."""
        return list(self._worlds)

    def _run_tool(self, request: Written) -> tuple[str, Status]:  # noqa: PLR0911 - a line for each tool
        """Run the tool of the validated *request*; return its output for the agent, and "ok" or "error"."""
        match request:
            case Think():
                return NOTED
            case ListFiles():
                return "\n".join(self.workspace.listed()) or "(none)", "ok"
            case ReadFile():
                return self.workspace.read(request.path).decode("utf-8", "replace")[:MAX_CHARACTERS], "ok"
            case WriteFile():
                self.workspace.write(request.path, request.content.encode("utf-8", "replace"))
                return "Written.", "ok"
            case KyvernoLint():
                return f"{len(self._read_policies())} policies are read.", "ok"
            case KyvernoApply():
                return self._apply_policies(request.world)
            case OpaCheck():
                problem = judge_by_rego(self.workspace.read(POLICY), []).required().problem
                return (f"Error: {POLICY}: {problem}", "error") if problem else ("It is a policy.", "ok")
            case OpaEval():
                return self._evaluate_policy(request.input)
            case KubectlWords():
                return self._run_kubectl(request)
            case GitWords():
                return self.workspace.git(request.words) or "(nothing)", "ok"
        assert isinstance(request, RunFetcher | RunPlaybook)
        return self._collect_evidence(request.world)

    def _require_world(self, name: str) -> ComplianceWorld | HostWorld:
        """Return the test cluster or host *name*; raises NotFoundError for one that the agent may not query."""
        if name not in self._worlds:
            raise NotFoundError("world", name, self._worlds)
        return self._worlds[name]

    def _read_policies(self) -> list[KyvernoPolicy]:
        """Return the Kyverno policies in the workspace; raises UserError for missing or invalid files."""
        try:
            return read_policies(read_files(self._folder, self._task))
        except (AnswerError, UnsupportedError) as error:
            raise UserError(str(error)) from error

    def _apply_policies(self, name: str) -> tuple[str, Status]:
        """Judge the objects of test cluster *name*; return a line per rule and object, and "ok" or "error"."""
        world = self._require_world(name)
        assert isinstance(world, ComplianceWorld)
        try:
            found = judge_objects(self._task.applicable_policies(self._read_policies()), world.objects)
        except UnsupportedError as error:
            return f"Error: {error}", "error"
        lines = [f"{one.object}: {one.result} by {one.policy}/{one.rule}" for one in found]
        kept_out = any(one.result == "fail" and one.enforced for one in found)
        return "\n".join([*lines, "The world is kept out." if kept_out else "The world is let in."]), "ok"

    def _evaluate_policy(self, path: str) -> tuple[str, Status]:
        """Evaluate the workspace's Rego policy on the JSON file *path*; return the outcome, and "ok" or "error"."""
        found = judge_by_rego(self.workspace.read(POLICY), [self.workspace.read(path)])
        if found.problem:
            return f"Error: {POLICY}: {found.problem}", "error"
        (outcome,) = found.outcomes
        return (f"Error: {outcome.reason}", "error") if outcome.reason else (outcome.kind, "ok")

    def _run_kubectl(self, request: KubectlWords) -> tuple[str, Status]:
        """Run the kubectl words of *request* against its test cluster; return the output, and "ok" or "error"."""
        world = self._require_world(request.world)
        assert isinstance(world, ComplianceWorld)
        with TemporaryDirectory(prefix="opsassay-cluster-") as made:
            end, _ = fetch_on_cluster(f"exec kubectl {shlex.join(request.words)}".encode(), world, Path(made), LIMITS)
        return _format_output(end), "ok" if end.exit_code == 0 else "error"

    def _collect_evidence(self, name: str) -> tuple[str, Status]:
        """Run the agent's collector on test cluster or host *name* and write its evidence into the workspace."""
        world = self._require_world(name)
        with TemporaryDirectory(prefix="opsassay-world-") as made:
            if isinstance(world, HostWorld):
                end, work = play_on_host(self.workspace.read(PLAYBOOK), world, Path(made))
            else:
                end, work = fetch_on_cluster(self.workspace.read(FETCHER), world, Path(made))
            found = collected_in(work, end)
        if found.data is None:
            return f"Error: {found.problem}\n{_format_output(end)}", "error"
        self.workspace.write(EVIDENCE, found.data)
        return (
            f"Collected {len(found.data)} bytes into {EVIDENCE}:\n{found.data[:4000].decode('utf-8', 'replace')}",
            "ok",
        )


def _format_output(end: Ended) -> str:
    """Return the tail of stdout and stderr, or the reason why the command ended when it printed nothing."""
    return f"{end.stdout_tail}\n{end.stderr_tail}".strip()[-MAX_CHARACTERS:] or end.reason


def session_specs(task: ComplianceTask) -> tuple[ToolSpec, ...]:
    """Return the tool specifications that an agent sees for *task*, submit last."""
    about = "Hand in what lies in the workspace now. A later submission takes the place of an earlier one."
    empty = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return (*tool_specs(tools_of(task)), ToolSpec(name=SUBMIT, description=about, parameters=empty))


class ComplianceToolSession(CountedToolSession):
    """The tools of one task, and submit, which marks the present content of the workspace as the answer."""

    def __init__(self, task: ComplianceTask, toolbox: ComplianceToolbox, meter: Meter, recorder: AgentRecorder) -> None:
        super().__init__(toolbox, meter, recorder)
        self._task, self._toolbox = task, toolbox
        self.is_submitted = False

    def own_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tool specifications that the agent sees, submit last."""
        return session_specs(self._task)

    def places(self) -> str:
        """Return the text for the agent on where its workspace is and which clusters or hosts it can query."""
        worlds = ", ".join(self._toolbox.world_names)
        return f"Your workspace holds the files that list_files lists. Tools run before these worlds: {worlds}.\n"

    def replace_files(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Delete all files of the workspace and write *files*, (relative path, content) pairs."""
        for path in self._toolbox.workspace.files():
            path.unlink()
        write_files(files, self._toolbox.workspace.folder)

    def problem(self, _given: Mapping[str, Any]) -> str | None:
        """Return the sentence why the workspace cannot be submitted now, None when it can; ignores its argument."""
        try:
            read_files(self._toolbox.workspace.folder, self._task)
        except AnswerError as error:
            return f"{error}."
        return None

    def submitted(self, arguments: dict[str, Any]) -> ToolCall:
        """Mark the workspace as submitted if it has the required files; return the logged call, an error otherwise."""
        if (problem := self.problem(arguments)) is not None:
            return ToolCall(tool=SUBMIT, arguments=arguments, output=f"Error: {problem}", status="error")
        self.is_submitted = True
        return ToolCall(tool=SUBMIT, arguments=arguments, output="Taken.")


class WorkspaceEnvironment(FolderEnvironment[ComplianceToolSession]):
    """A workspace for the tools of *task*, and a view with *examples* of each label for an external agent."""

    def __init__(self, task: ComplianceTask, run_dir: Path, meter: Meter, examples: int) -> None:
        super().__init__(run_dir, meter)
        self._task, self._examples = task, examples

    @property
    def workspace(self) -> Path:
        """The folder that the agent's tools read and write."""
        return self.folder / "workspace"

    def prepare(self) -> None:
        """Write the examples into the read-only view, and create the workspace as a git repository."""
        super().prepare()
        write_files(self._task.files(self._examples).items(), self.view)
        self.workspace.mkdir()
        begin(self._task.files(self._examples), self.workspace)

    def session(self) -> ComplianceToolSession:
        """Return a session with the tools of the workspace; its calls are logged in the run folder."""
        toolbox = ComplianceToolbox(self._task, self.workspace, self._examples)
        return ComplianceToolSession(self._task, toolbox, self.meter, AgentRecorder(self.run_dir))
