"""What a hostile agent tries, one function each, run as a program of its own: inside the seal, and outside as the control.

``main`` with NAME and FACTS for arguments prints one JSON object: reached or not, and by what it was held. The attacker
knows all that there is to know: FACTS holds every path, pid, address, port and key of what is outside. An attempt that
is held returns False or raises OSError; anything else is a broken test, told as such.
"""

from __future__ import annotations

import json
import subprocess
import sys

from . import files, network, powers, processes, shared, usage
from .base import ATTEMPTS, LIMITS, ROOT

__all__ = ["ATTEMPTS", "LIMITS", "ROOT", "files", "main", "network", "powers", "processes", "shared", "usage"]


def main():
    name, facts = sys.argv[-2], json.loads(sys.argv[-1])
    try:
        told = {"reached": bool(ATTEMPTS[name](facts))}
    except (OSError, MemoryError, subprocess.CalledProcessError) as error:
        told = {"reached": False, "held": f"{type(error).__name__}: {error}"}
    except BaseException as error:  # noqa: BLE001 - told, and the test is red
        told = {"broken": f"{type(error).__name__}: {error}"}
    print(json.dumps(told), flush=True)
