"""Compliance tasks: goal, initial workspace, and hidden test clusters or hosts.

Two classes ask for policies that a cluster enforces, two for a collector of evidence and a policy that judges it.
Examples are drawn from a stream of their own, so that none of them is a hidden test system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import yaml

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.task import Task
from opsassay.evals.compliance.clusters.controls import ComplianceControl, controls
from opsassay.evals.compliance.clusters.repository import FOLDER, GAPS, gap_of, others_of, policy_name, repository
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld, mutants, worlds
from opsassay.evals.compliance.evidence_collection.evidence import EVIDENCE
from opsassay.evals.compliance.hosts.controls import HostControl, host_controls
from opsassay.evals.compliance.hosts.worlds import HostWorld, host_mutants, host_worlds, shown_files
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy
from opsassay.evals.compliance.rego.worker import PACKAGE, RULE
from opsassay.evals.runner.generated_tasks import PUBLISHED_SEED, GeneratedTask

_JUDGES = (
    f"{{policy}} judges it: Rego v1, package {PACKAGE}, whose rule {RULE} is true where all complies and false, not "
    "undefined, where anything does not. Both files lie in your workspace, under these names.\n"
)
_ON_CLUSTER = (
    f"{{collector}} is run by bash and asks the cluster with kubectl, which finds it by itself; it only reads, and writes "
    f"what it found, as JSON, to {EVIDENCE} in its working folder. "
)
_ON_HOST = (
    "{collector} is a playbook for the group target, with modules of ansible.builtin alone; it only reads, needs no "
    f"privileges, and writes what it found, as JSON, to {EVIDENCE} beside itself, on the controller. "
)
_WHERE = {
    "role": "It is about every Role and every ClusterRole, in every namespace.\n",
    "sshd": "What counts is the configuration that sshd runs with, from all of its files; `sshd -T` prints it.\n",
    "sysctl": "What counts is the running kernel, as `sysctl` prints it, not what files ask for.\n",
    "service": "What counts is the unit's state, as `systemctl` tells it.\n",
    "package": "What counts is the package of just that name, in the database of the package manager.\n",
    "mount": "What counts is what is mounted, as `findmnt` and `mount` print it, not what fstab asks for.\n",
    "setting": "What counts is the line that is in force in {file}; one that is a comment is not.\n",
    "module": "It has both lines, `install {name} /bin/false` (or /bin/true) and `blacklist {name}`, in "
    "/etc/modprobe.d/*.conf, and `lsmod` does not list it.\n",
}
_PODS = (
    "It is about Pods, and about what Deployments, StatefulSets, DaemonSets, Jobs and CronJobs would make pods of, in "
    "every namespace.\n"
)


def collected_goal(control: ComplianceControl | HostControl, collector: str, policy: str) -> str:
    """Return the goal text that asks for the files *collector* and *policy* for *control*."""
    words = f"{control.goal[0].upper()}{control.goal[1:]}"
    if isinstance(control, HostControl):
        where = _WHERE[control.kind].format(name=control.name, file=control.file)
        release = "Ubuntu 24.04" if control.system == "ubuntu" else "RHEL 9"
        how, it = _ON_HOST, f"Whether this holds of a host ({release})"
    else:
        where, how = _WHERE.get(control.scope, _PODS), _ON_CLUSTER
        it = "Whether this holds of a cluster"
    said = f"{where}{how.format(collector=collector)}{_JUDGES.format(policy=policy)}"
    return f"{words}. {it} is to be checked by two files.\n{said}"


DOMAIN = "ciso"
NEW, KUBECTL, ANSIBLE, UPDATE = "new-kyverno", "new-opa-kubectl", "new-opa-ansible", "update-kyverno"
CLASSES = {NEW: "easy", KUBECTL: "medium", ANSIBLE: "medium", UPDATE: "hard"}
COLLECTORS = {KUBECTL: "fetcher.sh", ANSIBLE: "playbook.yml"}
"""The collector's file name, in classes that collect evidence."""
POLICY = "policy.rego"
TARGET = "target"
"""The unlabelled cluster or host that the agent's tools can query."""
GENERATOR = "1"
"""Version of the code that generates test systems and repositories; part of every commitment."""
JUDGED, EXAMPLES, OTHERS = 9, 2, 2
"""Test systems per label: hidden ones, examples, and those of every other control."""
COLLECTED = 3
"""Hidden test systems per label where evidence is collected, which takes a second each."""
AnyWorld = ComplianceWorld | HostWorld
LIMITS = {"agent_timeout_s": 900.0}


class ComplianceTask(GeneratedTask):
    """One task, whose test systems and repository are generated from its seed."""

    BODIES = "compliance_tasks"

    generator: str = GENERATOR

    @cached_property
    def task_class(self) -> str:
        """The prefix of the task's name that says what files it asks for; raises NotFoundError for an unknown name."""
        known = names()
        if self.name not in known:
            raise NotFoundError("compliance task", self.name, known)
        return next(one for one in CLASSES if self.name.startswith(f"{one}-"))

    @property
    def control_name(self) -> str:
        """The name of the control that the agent must enforce or check."""
        return self.name.removeprefix(f"{self.task_class}-")

    @property
    def control(self) -> ComplianceControl:
        """The cluster control that the agent must enforce or check; raises KeyError for host tasks."""
        return controls()[self.control_name]

    @property
    def host_control(self) -> HostControl:
        """The host control that the agent must check; raises KeyError for cluster tasks."""
        return host_controls()[self.control_name]

    @property
    def any_control(self) -> ComplianceControl | HostControl:
        """The cluster or host control that the agent must enforce or check."""
        return self.host_control if self.task_class == ANSIBLE else self.control

    @property
    def collector(self) -> str | None:
        """The file name of the collector that the task asks for, None in classes without one."""
        return COLLECTORS.get(self.task_class)

    @property
    def section(self) -> str:
        """The section of the CIS benchmark that the control comes from."""
        return self.host_control.section if self.task_class == ANSIBLE else f"Kubernetes {self.control.section}"

    @property
    def policy(self) -> str:
        """The name of the Kyverno policy that an `update` task asks to change."""
        return policy_name(self.control_name)

    @property
    def goal(self) -> str:
        """The text of the task that the agent reads."""
        if self.collector is not None:
            return collected_goal(self.any_control, self.collector, POLICY)
        words = f"{self.control.goal[0].upper()}{self.control.goal[1:]}"
        rules = (
            f"Policies are Kyverno ClusterPolicies in {FOLDER}/*.yaml of your workspace, and enforced: what violates is "
            "kept out, by whatever kind of object it comes, made or changed, under whatever name, in every namespace; what "
            "is there already is looked at too. What complies is let in.\n"
        )
        if self.task_class == NEW:
            return f"{words}. Write what enforces this.\n{rules}"
        return (
            f"{words}. The policy {self.policy} in {FOLDER}/ is to enforce this, but {GAPS[gap_of(self.control_name)]}. "
            f"Change that policy alone, under its name; all others stay as they are.\n{rules}"
        )

    @cached_property
    def commitment(self) -> str:
        """The digest of everything that defines the task: seed, goal, control and generator version."""
        return self.committed(self.goal, self.any_control.digest())

    @property
    def task_info(self) -> Task:
        """The description of the task that is published: id, goal, limits, oracles and digest."""
        from opsassay.evals.compliance.scripts.oracles import ORACLES

        return Task(
            id=self.id,
            domain=DOMAIN,
            name=self.name.replace("-", " "),
            description=f"CIS {self.section}: {self.any_control.goal}",
            task_class=self.task_class,
            stratum=CLASSES[self.task_class],
            system="host" if self.task_class == ANSIBLE else "kubernetes",
            goal=self.goal,
            limits=LIMITS,
            oracles=tuple(ORACLES[self.task_class]),
            commitment=self.commitment,
        )

    def files(self, examples: int = EXAMPLES) -> dict[str, bytes]:
        """Return the files that the agent starts with, by path: *examples* of each label, and any repository."""
        found = dict(repository(self.control_name, self.seed)) if self.task_class == UPDATE else {}
        for name, world in self.example_worlds(examples).items():
            if isinstance(world, HostWorld):
                found |= {f"examples/{name}/{path}": text.encode() for path, text in shown_files(world).items()}
            else:
                text = yaml.safe_dump_all(world.objects, sort_keys=False)
                found[f"examples/{name}.yaml"] = text.encode()
        return found

    def example_worlds(self, examples: int = EXAMPLES) -> dict[str, AnyWorld]:
        """Return *examples* compliant and as many violating clusters or hosts, by name such as `compliant-1`."""
        return _name_examples(self._draw_worlds("example", EXAMPLES), examples)

    def open_worlds(self, examples: int) -> dict[str, AnyWorld]:
        """Return the clusters or hosts, by name, that tools can query: *examples* per label, one unlabelled."""
        return {**self.example_worlds(examples), TARGET: self._draw_worlds(TARGET, 1)[self.seed % 2]}

    def _draw_worlds(self, purpose: str, count: int) -> Sequence[AnyWorld]:
        """Return *count* violating, then *count* compliant clusters or hosts, drawn by the seed and *purpose*."""
        if self.task_class == ANSIBLE:
            return host_worlds(self.host_control, self.seed, purpose, count)
        return worlds(self.control, self.seed, purpose, count)

    def judged(self) -> list[ComplianceWorld]:
        """Return the hidden test clusters that the answer is scored on, violating ones first."""
        return worlds(self.control, self.seed, "judged", self._count_judged_worlds())

    def mutants(self) -> list[ComplianceWorld]:
        """Return each hidden test cluster with the opposite label: its violation is added or removed."""
        return list(mutants(self.control, self.seed, "judged", self._count_judged_worlds()))

    def judged_hosts(self) -> list[HostWorld]:
        """Return the hidden test hosts that the answer is scored on, violating ones first."""
        return host_worlds(self.host_control, self.seed, "judged", self._count_judged_worlds())

    def mutant_hosts(self) -> list[HostWorld]:
        """Return each hidden test host with the opposite label: its violation is added or removed."""
        return list(host_mutants(self.host_control, self.seed, "judged", self._count_judged_worlds()))

    def _count_judged_worlds(self) -> int:
        """Return the number of compliant, and of violating, hidden clusters or hosts."""
        return JUDGED if self.collector is None else COLLECTED

    def others(self) -> dict[str, list[ComplianceWorld]]:
        """Return test clusters for each other control of the repository, by control; {} for a new policy."""
        if self.task_class != UPDATE:
            return {}
        return {
            name: worlds(controls()[name], self.seed, f"other {self.control_name}", OTHERS)
            for name in others_of(self.control_name, self.seed)
        }

    def applicable_policies(self, policies: Sequence[KyvernoPolicy]) -> list[KyvernoPolicy]:
        """Return the policies that are scored: all for a new policy, else only the one that was to be changed."""
        return [one for one in policies if self.task_class == NEW or one.name == self.policy]


def _name_examples(worlds: Sequence[AnyWorld], examples: int) -> dict[str, AnyWorld]:
    """Return the first *examples* of each label in *worlds* by name: "compliant-1", "violating-1", ..."""
    return {
        f"{'compliant' if one.compliant else 'violating'}-{n % EXAMPLES + 1}": one
        for n, one in enumerate(worlds)
        if n % EXAMPLES < examples
    }


def names() -> list[str]:
    """Return the names of all compliance tasks: each class with each of its controls."""
    return [f"{one}-{control}" for one in CLASSES for control in (host_controls() if one == ANSIBLE else controls())]


def published() -> Iterator[ComplianceTask]:
    """Yield every compliance task, with the seed that the project publishes."""
    yield from (ComplianceTask(name=name, seed=PUBLISHED_SEED) for name in names())


def kept_task(root: Path, commitment: str) -> ComplianceTask:
    """Return the task with the digest *commitment*, as stored at *root* when its runs started; raises DatapackError."""
    return ComplianceTask.read_kept(root, commitment)
