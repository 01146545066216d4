"""Give a first guess with the tools of the run: the names of the fields from the question, and no anomaly."""

import json
import re
import subprocess
import sys
from pathlib import Path

prompt, work = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
fields = re.findall(r"^- (\w+): ([^,]+)", prompt, re.MULTILINE)
row = {name: {"number": 0, "text YYYY-MM-DD": "2026-01-01"}.get(kind, "unknown") for name, kind in fields}
answer = "anomalies=[]" if "anomalies" in prompt else f"rows={json.dumps([row])}"
subprocess.run([sys.executable, work / "opsassay_tool.py", "submit", answer], check=True)
