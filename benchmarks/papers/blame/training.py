"""Labelled traces as training data for attribution: the question of ``all-at-once``, and the label as its answer.

A task is held out as a whole, in every system that tried it, by a hash of its instruction: no task is in both splits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from opsassay.analysis.blame.settings import BlameSettings, observed
from opsassay.analysis.blame.techniques.prompting import whole_question
from opsassay.core.schema.trajectory import LabelledTrace


def training_items(
    cases: Sequence[LabelledTrace], settings: BlameSettings, held_out: float = 0.2
) -> list[dict[str, Any]]:
    """Return an item for each of *cases*: id, subset, split (train or test), messages, label, agents, steps and notes.

    *settings* say what of a trace is shown. Notes name what is odd about a label, so that it can be left out.
    """
    return [_item(case, settings, held_out) for case in cases]


def _item(case: LabelledTrace, settings: BlameSettings, held_out: float) -> dict[str, Any]:
    instructions, question = whole_question(observed(case.trace, settings))
    label = {"agent": case.label.agent_name, "step": case.label.step_id, "reason": case.label.reason}
    said = json.dumps(label, ensure_ascii=False)
    turns = (("system", instructions), ("user", question), ("assistant", said))
    task = case.trace.task_instruction or case.id
    drawn = int.from_bytes(hashlib.sha256(task.encode("utf-8", "replace")).digest()[:8], "big") / 2**64
    return {
        "id": case.id, "subset": case.subset, "split": "test" if drawn < held_out else "train",
        "messages": [{"role": role, "content": content} for role, content in turns],
        "label": label, "agents": list(case.trace.agents()), "steps": len(case.trace.steps), "notes": list(case.notes),
    }  # fmt: skip
