"""Send a task to an agent by A2A, with the official SDK, wait until it is done, and print its answer.

``python a2a_task.py URL PROMPT_FILE``: the agent's card is below URL.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx
from a2a.client.client import Client, ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.client.errors import A2AClientError
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types.a2a_pb2 import GetTaskRequest, Role, SendMessageRequest, Task, TaskState
from a2a.utils.errors import A2AError

PAUSE_S = 0.5
_WORKING = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_UNSPECIFIED)


def main() -> None:
    """Send the prompt file (second argument) to the agent at the URL (first argument), and print its answer."""
    url, prompt = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8")
    try:
        print(asyncio.run(ask_agent(url, prompt)))
    except (A2AClientError, A2AError, httpx.HTTPError, ValueError) as error:
        sys.exit(f"The agent at {url} did not answer: {error}")


async def ask_agent(url: str, prompt: str) -> str:
    """Send *prompt* to the A2A agent below *url*; return its answer. Raises ValueError for a failed task."""
    async with httpx.AsyncClient(timeout=None) as http:  # noqa: S113 - the limit is that of the run
        config = ClientConfig(streaming=False, polling=True, httpx_client=http)
        client = await ClientFactory(config).create_from_url(url)
        request = SendMessageRequest(message=new_text_message(prompt, role=Role.ROLE_USER))
        async for reply in client.send_message(request):
            if reply.HasField("message"):
                return get_message_text(reply.message)
            if reply.HasField("task"):
                return _task_text(await _wait_until_done(client, reply.task))
    raise ValueError("it sent neither a message nor a task")


async def _wait_until_done(client: Client, task: Task) -> Task:
    """Poll *task* every `PAUSE_S` seconds until it has ended, and return it."""
    while task.status.state in _WORKING:
        await asyncio.sleep(PAUSE_S)
        task = await client.get_task(GetTaskRequest(id=task.id))
    return task


def _task_text(task: Task) -> str:
    """Return the text of the artifacts of *task*, else of its last message; raises ValueError unless it completed."""
    said = "\n".join(get_artifact_text(artifact) for artifact in task.artifacts)
    message = get_message_text(task.status.message) if task.status.HasField("message") else ""
    if task.status.state != TaskState.TASK_STATE_COMPLETED:
        raise ValueError(f"its task ended as {TaskState.Name(task.status.state)}: {message}")
    return said or message


if __name__ == "__main__":
    main()
