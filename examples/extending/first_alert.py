#!/usr/bin/env python3
"""A method in any language: it gets the incident's folder as its last argument and prints a diagnosis as JSON.

This one blames the service whose alert fired first. It needs nothing but the standard library.
"""

import json
import sys
from pathlib import Path

incident = json.loads((Path(sys.argv[-1]) / "incident.json").read_text())
fired = sorted(incident["alerts"], key=lambda alert: alert["time_ns"])
services = list(dict.fromkeys(alert["service"] for alert in fired))
answer = {
    "root_causes": [{"service": service} for service in services[:1]],
    "ranking": [{"service": service, "score": -place} for place, service in enumerate(services)],
}
print(json.dumps(answer))
