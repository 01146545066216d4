"""What a worker process does with a method that is a command: a folder goes in, a diagnosis in JSON comes out."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.evals.diagnosis.answers import read_answer

WRITTEN, PRINTED = "diagnosis.json", "printed.json"


def ask_command(words: Sequence[str], incident: Path) -> dict[str, Any]:
    """Return the diagnosis that the command of *words* gives for the folder *incident*, its last argument, or an error.

    The answer is the file ``diagnosis.json`` in the current folder, else what was printed on standard output. It must have
    ``root_causes``, which may be empty: nothing else may pass for the answer that nothing is wrong.
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
    answer = read_answer(written if written.exists() or written.is_symlink() else Path(PRINTED))
    if isinstance(answer, str):
        return {"error": answer}
    known = {field.alias or name for name, field in Diagnosis.model_fields.items()}
    if unknown := sorted(answer.keys() - known):
        return {"error": f"the answer has no meaning for {', '.join(unknown[:5])}; known: {', '.join(sorted(known))}"}
    if "root_causes" not in answer:
        return {"error": "the answer has no root_causes; [] says that nothing is wrong"}
    return {"diagnosis": answer}
