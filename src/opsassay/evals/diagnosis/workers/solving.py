"""The work of a worker process: runs a command that diagnoses, or a Python agent."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError, StartError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.evals.diagnosis.workers.answers import read_worker_answer
from opsassay.evals.runner.tool_servers import started_servers
from opsassay.solvers.agents.asking import Asker, LimitError
from opsassay.solvers.agents.base import Exam, agent_named
from opsassay.solvers.agents.cluster_tools import toolbox_of
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Limits, Meter, Price
from opsassay.solvers.agents.models.base import ModelError
from opsassay.solvers.agents.models.named import model_named
from opsassay.solvers.agents.ready import external_agent
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tools import MAX_ROWS
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.sql import LockedSql

WRITTEN, PRINTED = "diagnosis.json", "printed.json"


def ask_command(words: Sequence[str], incident: Path) -> dict[str, Any]:
    """Run the command *words* plus the folder *incident*; return {"diagnosis": answer} or {"error": text}.

    The answer is the file ``diagnosis.json`` in the current folder, else standard output. It must have ``root_causes``;
    an empty list there is the only way to answer that nothing is wrong.
    """
    try:
        with Path(PRINTED).open("wb") as out:
            done = subprocess.run([*words, str(incident)], stdin=subprocess.DEVNULL, stdout=out, check=False)
    except OSError as error:
        return {"error": f"the command cannot be started: {error.strerror}"}
    if done.returncode:
        how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"ended with {done.returncode}"
        return {"error": f"the command {how}"}
    written = Path(WRITTEN)
    answer = read_worker_answer(written if written.exists() or written.is_symlink() else Path(PRINTED))
    if isinstance(answer, str):
        return {"error": answer}
    known = {field.alias or name for name, field in Diagnosis.model_fields.items()}
    if unknown := sorted(answer.keys() - known):
        return {"error": f"the answer has no meaning for {', '.join(unknown[:5])}; known: {', '.join(sorted(known))}"}
    if "root_causes" not in answer:
        return {"error": "the answer has no root_causes; [] says that nothing is wrong"}
    return {"diagnosis": answer}


def solve(job: dict[str, Any], incident: Datapack) -> dict[str, Any]:
    """Run the Python agent of *job* on *incident*; return "diagnosis" or "error", "spent" and "limits_hit".

    With an error, "world" is True when the model's endpoint or an MCP server failed, False when the agent did.
    """
    limits = Limits.model_validate(job["limits"])
    meter = Meter(limits, Price.model_validate(job["price"]))
    payload: dict[str, Any] = {}
    try:
        agent = agent_named(job["name"])
        model = model_named(job["model"], retries=0, timeout_s=min(limits.seconds, 300.0))
        planned = [external_agent(Path(file)) for file in job["servers"]]
        joining = started_servers(planned, incident.path.absolute(), Path.cwd(), limits.seconds, sealed=job["sealed"])
        with LockedSql(incident, timeout_s=limits.query_seconds, max_rows=MAX_ROWS) as sql, joining as servers:
            asker = Asker(model, meter, AgentRecorder(Path.cwd()), temperature=job["temperature"])
            tools = toolbox_of(sql, incident.incident)
            tools.join(servers)
            answer = agent.solve(Exam(incident.incident, tuple(incident.candidates()), tools, asker, meter))
        payload["notes"] = [server.gone for server in servers if server.gone]
        payload["diagnosis"] = answer.diagnosis.model_dump(mode="json", by_alias=True)
    except (ModelError, StartError) as error:
        payload |= {"error": str(error), "world": isinstance(error, StartError) or error.passing}
    except (AnswerError, LimitError) as error:
        payload["error"] = f"no answer by the contract: {error}"
    except OpsAssayError as error:
        payload["error"] = str(error)
    except Exception as error:  # noqa: BLE001 - whatever the agent raises is its result
        traceback.print_exc()
        payload["error"] = f"{type(error).__name__}: {error}"
    return payload | {"spent": meter.spent(), "limits_hit": meter.hit}
