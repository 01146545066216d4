"""An agent command for an agent that works elsewhere: reports its tools and prompt, then waits to be released.

``python waiting_agent.py SOCKET TOOLS PROMPT WORK``. It is copied into the files of an agent, so it imports the standard
library only.
"""

import json
import socket
import sys
from pathlib import Path


def main(place: str, tools: str, prompt: str, work: str) -> None:
    """Send the paths of tools, prompt and work folder to the Unix socket *place*, then wait until it closes."""
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(place)
    opening = {"tools": tools, "prompt": Path(prompt).read_text(encoding="utf-8"), "folder": str(Path(work).parent)}
    waiting.sendall(json.dumps(opening).encode() + b"\n")
    while waiting.recv(1):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
