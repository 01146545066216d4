"""What is added for a namespace that exists, and how the namespace is put back, also when its user process is killed.

    python -m opsassay.testbed.substrates.kubernetes.scenario.attached

is the guard: a process that outlives the trial and puts back when the trial ends without a word. Where the machine itself
dies the cluster undoes the trigger at its deadline, and the next command that looks at the cluster puts back the rest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.system import System
from opsassay.testbed.substrates.kubernetes.actuators.changes import carry_out, clear_cluster_roles
from opsassay.testbed.substrates.kubernetes.api.client import Api, Object
from opsassay.testbed.substrates.kubernetes.manifests.system import INSTANCE_LABEL, watch_of
from opsassay.testbed.substrates.kubernetes.scenario.populating import EXCLUSIVE, PopulatedSystem, SystemPopulation
from opsassay.testbed.substrates.kubernetes.scenario.sharing import ATTACHED
from opsassay.testbed.substrates.kubernetes.scenario.standing import put_back, read_kept

DONE = "done"
PATIENCE_S, PAUSE_S, GONE_WITHIN_S, LOOK_EVERY_S = 900.0, 3.0, 150.0, 0.5
"""For how long the guard tries where the cluster does not answer, and how long the watching namespace takes to go."""
GUARD_ENDS_WITHIN_S = 10.0
LISTED = (
    "the namespace {watch}: a probe, the undo of the trigger, the agent's account, a copy of the objects that are put back",
    "in {name}: roles and their bindings, for the agent and for the undo",
    "cluster roles and their bindings, where a scenario lets the agent see or change nodes",
)
"""All that a trial adds to a cluster."""


def watching_objects(system: System, image: str, *, exclusive: bool = False) -> list[Object]:
    """Return the namespace and pods (of *image*) that observe *system*; *exclusive*: other trials must wait.

    They are the probe's, and of a system that is recorded the receiver's and the load generator's.
    """
    assert system.namespace is not None
    made = PopulatedSystem(system, system.namespace.name, image=image, furnishing=SystemPopulation(stand_ins=True))
    namespace, described = made.namespaces()[1], made.configuration()[0]
    namespace["metadata"]["labels"] |= {ATTACHED: "true", **({EXCLUSIVE: "true"} if exclusive else {})}
    described["metadata"]["namespace"] = made.watch_namespace
    recording = [*made.watchers(), made.load(made.watch_namespace)] if system.programs() else made.probes()
    return [namespace, described, *recording]


def leave(api: Api, name: str) -> None:
    """Restore the namespace *name* and delete what a trial added; may be called repeatedly; raises OpsAssayError."""
    watch = watch_of(name)
    there = api.get("Namespace", watch)
    if there is None or ATTACHED not in there["metadata"]["labels"] or there["status"]["phase"] == "Terminating":
        return
    for kind in ("RoleBinding", "Role"):
        for item in api.list(kind, name, f"{INSTANCE_LABEL}={watch}"):
            api.delete(kind, item["metadata"]["name"], name)
    carry_out(api, watch)
    clear_cluster_roles(api, watch)
    standing = api.get("Namespace", name)  # none, or one that goes, has nothing that could be put back
    if (before := read_kept(api, watch)) is not None and standing and standing["status"]["phase"] == "Active":
        put_back(api, name, before)
    if api.delete("Namespace", watch):
        with suppress(OpsAssayError):
            api.end_pods(watch, grace_s=1)
    deadline = time.monotonic() + GONE_WITHIN_S
    while api.get("Namespace", watch) is not None and time.monotonic() < deadline:
        time.sleep(LOOK_EVERY_S)


@contextmanager
def guarded(api: Api, name: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Call `leave` for *name* at the end of the block; if this process dies, a guard process does, by *settings*."""
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    assert guard.stdin is not None
    guard.stdin.write(json.dumps({**settings, "name": name}) + "\n")
    guard.stdin.flush()
    try:
        yield
    finally:
        try:
            leave(api, name)
        except BaseException:
            guard.stdin.close()  # it goes on with it
            raise
        with suppress(subprocess.TimeoutExpired):
            guard.communicate(f"{DONE}\n", timeout=GUARD_ENDS_WITHIN_S)


def main() -> None:
    """Be the guard process: read the order from stdin; if stdin ends without "done", call `leave` until it succeeds."""
    order = json.loads(sys.stdin.readline())
    if sys.stdin.readline().strip() == DONE:
        return
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            leave(Api.connect(order.get("kubeconfig"), order.get("context")), order["name"])
        except OpsAssayError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)
        else:
            return


if __name__ == "__main__":
    main()
