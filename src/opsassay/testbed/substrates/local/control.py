"""The supervisor's control socket: one command per connection, JSON lines; closing the connection ends a lease."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from opsassay.core.errors import OpsAssayError
from opsassay.core.logs import Log
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.core.fleet import require_own_rate
from opsassay.testbed.injection.inject import inject
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES
from opsassay.testbed.substrates.local.observation import observation_of, status_of

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor


_log = Log(__name__)


class ControlServer:
    """Serves the commands status, observe, system, inject, operate, flush, rate, keep load log and down."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._busy: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen for commands at the Unix socket in the system's state folder."""
        self._server = await asyncio.start_unix_server(self._serve, self._supervisor.state.socket)
        self._supervisor.state.socket.chmod(0o600)

    async def stop(self) -> None:
        """End every running injection, which undoes its faults, then stop listening."""
        self._server.close()
        for task in self._busy:
            task.cancel()
        if self._busy:
            await asyncio.wait(self._busy, timeout=10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the commands of one client until it closes the connection."""
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)

        async def report(event: Mapping[str, Any]) -> None:
            if not writer.is_closing():
                writer.write(json.dumps(event).encode() + b"\n")
                await writer.drain()

        command: dict[str, Any] = {}
        try:
            command = json.loads(await reader.readline() or b"{}")
            await self._perform(command, reader, report)
        except (OpsAssayError, ValidationError) as error:
            kind = type(error).__name__ if isinstance(error, OpsAssayError) else "UserError"
            _log.warning("command refused", command=command.get("op"), reason=str(error))
            await report({"error": str(error), "kind": kind})
        except ConnectionError:
            return  # the client went away; what it leased has been undone by now
        except (OSError, RuntimeError, TimeoutError) as error:
            await report({"error": f"The supervisor could not finish: {error}.", "kind": "OperationError"})
        except Exception as error:  # noqa: BLE001 - a defect: whoever waits is informed, and the log has the rest
            message = f"The supervisor failed at {command.get('op')!r}: {type(error).__name__}: {error}."
            await report({"error": message, "kind": "OperationError"})
            _log.exception("a command failed", error, command=command.get("op"))
        finally:
            self._busy.discard(task)
            writer.close()

    async def _perform(self, command: dict[str, Any], reader: asyncio.StreamReader, report: Any) -> None:
        """Carry out *command* {op, fields of it} and pass the answer, one or several objects, to *report*."""
        supervisor = self._supervisor
        match command.get("op"):
            case "status":
                await report(status_of(supervisor).payload())
            case "observe":
                await report(observation_of(supervisor))
            case "system":
                await report({"definition": supervisor.system.model_dump(mode="json")})
            case "down":
                await report({"ok": True})
                supervisor.stopping.set()
            case "flush":
                await self._flush()
                await report({"ok": True})
            case "rate":
                require_own_rate(supervisor.system)
                rate_rps = float(command["rate_rps"])
                former = await supervisor.channels.request("loadgenerator", "rate", rate_rps=rate_rps)
                supervisor.rate_rps = rate_rps
                await report({"former": former})
            case "keep load log":
                assert supervisor.own_load is not None, "who asks has seen the command"
                supervisor.own_load.keep_log(Path(command["path"]))
                await report({"ok": True})
            case "inject":
                await self._inject(FaultPlan.model_validate(command["plan"]), reader, report)
            case "operate":
                verb, arguments = command["verb"], command["arguments"]
                _log.info("operation", verb=verb, arguments=arguments)
                await report({"result": await supervisor.operations.perform(verb, arguments)})
            case unknown:
                await report({"error": f"There is no command {unknown!r}.", "kind": "UserError"})

    async def _flush(self) -> None:
        """Make every process of the system send its queued telemetry."""
        channels = self._supervisor.channels
        flushing = [channels.request(name, "flush", timeout_s=10.0) for name in channels.names() if _emits(name)]
        await asyncio.gather(*flushing, return_exceptions=True)  # one that just died has nothing left to send

    async def _inject(self, plan: FaultPlan, reader: asyncio.StreamReader, report: Any) -> None:
        """Inject *plan* and pass its events to *report*; undo it when *reader* ends, since the client hung up."""
        lease = asyncio.Event()

        async def watch() -> None:
            try:
                await reader.read()  # nothing more is sent: this returns when the injector hangs up
            except ConnectionError:
                pass  # it died with something unread, and is gone all the same
            finally:
                lease.set()

        watching = asyncio.create_task(watch())
        try:
            supervisor = self._supervisor
            await inject(supervisor, plan, REPERTOIRES[supervisor.network.level], lease, report)
        finally:
            watching.cancel()


def _emits(name: str) -> bool:
    """Return whether the process *name* sends telemetry; the relay and pressure processes do not."""
    return name != "relay" and not name.startswith("pressure-")
