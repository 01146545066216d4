"""The daemons of a cluster by name: in a node's namespaces or the control plane's; started, stopped, frozen."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path


class Daemons:
    """Starts daemons that log into *logs*."""

    def __init__(self, logs: Path, environment: dict[str, str]) -> None:
        logs.mkdir(parents=True)
        self.logs, self.environment = logs, environment
        self._commands: dict[str, tuple[str, ...]] = {}
        self._inherited: dict[str, tuple[int, ...]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: Sequence[str], *, inside: int | None = None, inherit: tuple[int, ...] = ()
    ) -> int:
        """Start *command* as *name*, in the namespaces of process *inside*; return its pid."""
        entering = (
            ()
            if inside is None
            else ("nsenter", f"--net=/proc/{inside}/ns/net", f"--mount=/proc/{inside}/ns/mnt", "--")
        )
        self._commands[name], self._inherited[name] = (*entering, *command), inherit
        self.start_again(name)
        return self._processes[name].pid

    def start_again(self, name: str) -> None:
        """Start the daemon *name* as it was started first, unless it runs."""
        if name in self._processes and self._processes[name].poll() is None:
            return
        with (self.logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._commands[name], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment,
                pass_fds=self._inherited[name],
            )  # fmt: skip

    def stop(self, name: str) -> None:
        """End the daemon *name* as a service manager does; one that does not go is killed."""
        process = self._processes[name]
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def freeze(self, name: str) -> None:
        """Stop the daemon *name* in its tracks."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let the daemon *name* go on."""
        self._processes[name].send_signal(signal.SIGCONT)

    def tell(self, name: str, number: int) -> None:
        """Send the daemon *name* the signal *number*."""
        self._processes[name].send_signal(number)

    def check(self) -> None:
        """Raise RuntimeError, with the end of its log, when a daemon has ended by itself."""
        for name, process in self._processes.items():
            if (status := process.poll()) not in (None, 0, -signal.SIGTERM):
                tail = (self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-8:]
                raise RuntimeError(f"{name} ended with status {status}:\n" + "\n".join(tail))


def run(*command: str) -> str:
    """Run a short *command* and return what it printed; raises RuntimeError with what it complained of."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def wait_for(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll *condition* until it holds; raises TimeoutError that names *what* was waited for."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not {what} after {timeout_s:g} s")
        time.sleep(0.1)
