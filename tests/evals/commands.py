"""External agents that misbehave, each in one way: a YAML and a Python file of the standard library."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

GOOD = {
    "root_causes": [
        {
            "service": "cart",
            "fault_kind": "http_aborted",
            "evidence": [{"kind": "trace", "sql": "SELECT count(*) FROM abnormal_traces WHERE service_name = 'cart'"}],
        }
    ],
    "propagation": [],
}


def agent(folder: Path, code: str, *, needs=(), seconds=60, command=None, name="made", readable=()) -> Path:
    """Write an agent whose program is *code*, with GOOD and its arguments at hand, and return its YAML."""
    folder.mkdir(parents=True, exist_ok=True)
    head = f"import json, os, sys, time\nfrom pathlib import Path\nGOOD = json.loads({json.dumps(GOOD)!r})\n"
    head += "prompt, answer, view, mcp = map(Path, sys.argv[1:])\n"
    (folder / "main.py").write_text(head + textwrap.dedent(code))
    told = {
        "agent": name,
        "command": command or ["{python}", "{agent}/main.py", "{prompt}", "{answer}", "{view}", "{mcp}"],
        "files": ["main.py"],
        "needs": list(needs),
        "readable": [str(path) for path in readable],
        "limits": {"seconds": seconds},
    }
    (folder / "agent.yaml").write_text(json.dumps(told))
    return folder / "agent.yaml"
