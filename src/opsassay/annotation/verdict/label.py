"""The label of an injection, from four facts."""

from __future__ import annotations

from opsassay.core.schema.incident import Label


def decide(*, drifted: bool, shown: str | None, alarms: int, paths: int, unseen: str = "") -> tuple[Label, str]:
    """Return the label and its reason in a sentence.

    *shown* says how the fault's own signature was seen (None: it was not, and *unseen* says what was found instead),
    *alarms* counts violated nodes of the surface, *paths* accepted paths to them.
    """
    if drifted:
        return (
            Label.DRIFTED,
            "The normal window was not normal: its second half raises too many alarms against its first.",
        )
    if shown is not None and alarms and paths:
        return Label.ATTRIBUTED, f"The fault shows ({shown}) and {_paths(paths)} it to the surface."
    if shown is not None and alarms:
        return (
            Label.UNEXPLAINED,
            f"The fault shows ({shown}) and the surface is violated, but no path carries it there.",
        )
    if shown is not None:
        return Label.ABSORBED, f"The fault shows ({shown}), but nobody at the surface feels it."
    if alarms:
        return Label.UNEXPLAINED, f"The surface is violated, but the fault does not show at its place: {unseen}."
    return Label.NO_EFFECT, f"Nothing happened that the telemetry shows: {unseen}."


def _paths(count: int) -> str:
    return "1 verified path carries" if count == 1 else f"{count} verified paths carry"
