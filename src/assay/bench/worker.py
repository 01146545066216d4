"""The process in which one method sees one incident: started by `runner`, ``python -m assay.bench.worker``.

Arguments: the method's name and the file for the answer; the incident is the folder ``incident`` in the current one.
The file gets one JSON object, ``{"diagnosis": ...}`` or ``{"error": "..."}``. Whatever else happens (exit, signal, a
file that is no JSON) is for the runner to name; it trusts nothing of this process.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.methods.base import method_named
from assay.model.diagnosis import Diagnosis
from assay.telemetry.datapack import Datapack

INCIDENT_FOLDER = "incident"


def end_with_the_runner() -> None:
    """Exit when standard input ends: the runner holds its other end, so no worker outlives a runner that was killed."""
    while os.read(0, 1):
        pass
    os._exit(1)


def main(method_name: str, answer_file: str) -> int:
    """Diagnose the incident with the method and write what came of it."""
    told: dict[str, Any]
    try:
        answer: Any = method_named(method_name).diagnose(Datapack.open(Path(INCIDENT_FOLDER)))
    except AssayError as error:
        told = {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever the method raises is its result, recorded by the runner
        traceback.print_exc()
        told = {"error": f"{type(error).__name__}: {error}"}
    else:
        if isinstance(answer, Diagnosis):
            told = {"diagnosis": answer.model_dump(mode="json", by_alias=True)}
        else:
            told = {"error": f"the answer is not a Diagnosis but {type(answer).__name__}"}
    Path(answer_file).write_text(json.dumps(told), encoding="utf-8")
    return 0


if __name__ == "__main__":
    threading.Thread(target=end_with_the_runner, daemon=True).start()
    sys.exit(main(*sys.argv[1:]))
