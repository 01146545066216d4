"""What can be said of a playbook before it is run: Ansible reads it for itself, in the seal."""

from __future__ import annotations

import yaml

from opsassay.core.schema.files import YAML_LOADER

MAX_DEPTH = 60


def playbook_problem(text: str) -> str | None:
    """Return why *text* is no playbook, None when it is a list of plays. Nothing in it is built or expanded."""
    try:
        if _is_too_deep(text):
            return f"it nests deeper than {MAX_DEPTH}"
        found = yaml.compose(text, Loader=YAML_LOADER)
    except (yaml.YAMLError, ValueError) as error:
        return f"it is no YAML: {' '.join(str(error).split())[:300]}"
    if not isinstance(found, yaml.SequenceNode) or not found.value:
        return "it is no list of plays"
    for play in found.value:
        keys = [key.value for key, _ in play.value] if isinstance(play, yaml.MappingNode) else []
        if "hosts" not in keys:
            return f"line {play.start_mark.line + 1}: a play has no hosts"
    return None


def _is_too_deep(text: str) -> bool:
    depth = 0
    for event in yaml.parse(text, Loader=YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return True
    return False
