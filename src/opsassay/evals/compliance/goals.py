"""The goals of tasks that ask for a collector of evidence and a policy that judges it."""

from __future__ import annotations

from opsassay.evals.compliance.controls import ComplianceControl
from opsassay.evals.compliance.evidence_collection.evidence import EVIDENCE
from opsassay.evals.compliance.hosts.controls import HostControl
from opsassay.evals.compliance.rego.worker import PACKAGE, RULE

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
    """Return what the agent reads that is to write *collector* and *policy* for *control*."""
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
