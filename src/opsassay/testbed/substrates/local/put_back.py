"""A running compose project as it was: written down when OpsAssay attaches to it, and put back when that ends.

    python -m opsassay.testbed.substrates.local.put_back FILE

puts back what is written in FILE. It is what the guard of an attached system runs, also after `kill -9`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from opsassay.core.errors import OperationError
from opsassay.testbed.kernel.cgroups import memberships, mounted_groups
from opsassay.testbed.kernel.heal import heal
from opsassay.testbed.kernel.namespaces import inside
from opsassay.testbed.kernel.netfilter import LATE_PACKETS, remove_tables
from opsassay.testbed.kernel.network import peer_of
from opsassay.testbed.workload.engine import ContainerEngine, ContainerState

LIMITS = (
    "cpu.max", "memory.max", "memory.swap.max", "cpu.cfs_period_us", "cpu.cfs_quota_us", "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
)  # fmt: skip
"""Files of a control group that say what its container may use, of both versions."""
ATTEMPTS, AGAIN_AFTER_S = 5, 1.0
"""What ends with a killed supervisor may take a moment."""


def written_down(engine: Sequence[str], containers: Sequence[ContainerState]) -> dict[str, Any]:
    """Return what `put_back` restores: limits of running *containers*, and how they take late packets."""
    limits = {one.id: {path.name: path.read_text().strip() for path in _limit_files(one.pid)} for one in containers}
    late = {one.id: inside(_namespace(one.pid), LATE_PACKETS.read_text) for one in containers if LATE_PACKETS.exists()}
    return {"engine": list(engine), "limits": limits, "late": late}


async def put_back(before: Mapping[str, Any]) -> list[str]:
    """Restore the containers in *before* (of `written_down`): start, limits; return a sentence for each failure."""
    engine, problems = ContainerEngine(before["engine"]), list[str]()
    for container, limits in before["limits"].items():
        try:
            await _put_back_one(engine, container, limits, before["late"].get(container))
        except (OSError, OperationError, psutil.Error) as error:
            problems.append(f"Container {container[:12]} is not as it was: {error}")
    return problems


async def _put_back_one(engine: ContainerEngine, container: str, limits: Mapping[str, str], late: str | None) -> None:
    """Start and resume *container*, heal its network and write *limits* (file to text) and *late* packets again.

    Raises OperationError when a limit cannot be written.
    """
    state = await engine.inspect(container)
    if not state.running:
        await engine.run("start", container)
        state = await engine.inspect(container)
    first = psutil.Process(state.pid)
    for process in (first, *first.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    namespace = _namespace(state.pid)
    await asyncio.to_thread(lambda: heal(namespace, peer_of(namespace)))
    await asyncio.to_thread(inside, namespace, partial(_lead_nowhere, late))
    for _ in limits:  # of two limits that bound each other, one has to be written before the other
        for path in _limit_files(state.pid):
            if path.read_text().strip() != limits[path.name]:
                with contextlib.suppress(OSError):
                    path.write_text(limits[path.name])
    if changed := [path.name for path in _limit_files(state.pid) if path.read_text().strip() != limits[path.name]]:
        raise OperationError(f"{', '.join(changed)} cannot be written.")


def _lead_nowhere(late: str | None) -> None:
    """Redirect nothing any more, and treat *late* packets as before, in the namespace of this thread."""
    with contextlib.suppress(OperationError):  # what a process owns goes with it
        remove_tables("ip", owner_timeout_s=0)
    if late is not None:
        LATE_PACKETS.write_text(late)


def _namespace(pid: int) -> str:
    """Return the path of the network namespace of the process *pid*."""
    return f"/proc/{pid}/ns/net"


def _limit_files(pid: int) -> Iterator[Path]:
    """Yield the control group files with CPU and memory limits of the container with first process *pid*."""
    groups, inside = mounted_groups(), memberships(Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8"))
    for controller, parent in groups.parents.items() if groups is not None else ():
        folder = parent / inside.get(controller, inside.get("", "/")).strip("/")
        yield from (
            folder / name for name in LIMITS if name.partition(".")[0] == controller and (folder / name).exists()
        )


def main() -> None:
    """Restore what the JSON file in the first argument says, with retries; exit with a message on failures."""
    before = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for _ in range(ATTEMPTS):
        if not (problems := asyncio.run(put_back(before))):
            return
        time.sleep(AGAIN_AFTER_S)
    sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
