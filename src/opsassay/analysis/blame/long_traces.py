"""Shortens a trace that is longer than the model's context, by the policy in the settings.

Lengths are estimated at one token for three bytes of UTF-8, which is more than most tokenizers make of prose or code.

- refuse: nothing is asked, and the question has failed with the length in its reason
- middle-cut: inputs lose their middles, all above one length alike, then outputs do too, until the trace fits
- windows: consecutive runs of steps that fit are asked about one after the other, then the steps that they named
- summary: the model sums up every input that is longer than its share; what is still too long is cut
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil

from opsassay.analysis.blame.asking import BlameAsker
from opsassay.analysis.blame.rendering import metadata_text, steps_text
from opsassay.analysis.blame.settings import BlameSettings, cut_middle, with_inputs_cut
from opsassay.core.errors import OperationError
from opsassay.core.schema.trajectory import Attribution, ToolCall, Trace, TraceStep

RESERVED = 1_500
"""Tokens of the context for the instructions and the answer."""
_BYTES_PER_TOKEN = 3
_SHORTEST_SUMMARY = 200  # characters; below that a summary tells no more than the ends of the text
_SUM_UP = "You shorten what an agent was given, for somebody who looks for the step at which its run went wrong."

Ask = Callable[[Trace], Attribution]
"""A function that puts the technique's question about a trace, or a part of one, to the model."""


class TooLongError(OperationError):
    """A trace is longer than the context, and the policy is to refuse it, or no shortened form fits."""


def tokens_of(text: str) -> int:
    """Return the estimated number of tokens in *text*."""
    return ceil(len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)


def ask_within(
    ask: Ask, trace: Trace, asker: BlameAsker, settings: BlameSettings, *, in_conversation: bool
) -> Attribution:
    """Return the answer of *ask* on *trace*; a trace that is too long is shortened as *settings* say.

    *in_conversation* halves the room for the trace, since tools show its steps again. Raises TooLongError.
    """
    if settings.context is None:
        return ask(trace)
    room = (settings.context - RESERVED) // (2 if in_conversation else 1)
    if _count_tokens(trace) <= room:
        return ask(trace)
    if settings.long == "refuse":
        raise TooLongError(
            f"The trace needs about {_count_tokens(trace):,} tokens, and there is room for {room:,} in a context of "
            f"{settings.context:,}; choose what to do with long: middle-cut, windows or summary."
        )
    if settings.long == "middle-cut":
        return ask(middle_cut(trace, room))
    if settings.long == "summary":
        return ask(middle_cut(summarised(trace, asker, room), room))
    return _blame_by_windows(ask, trace, room)


def middle_cut(trace: Trace, tokens: int) -> Trace:
    """Return *trace* cut to fit *tokens*: the middles of inputs, then of all texts; TooLongError if it cannot fit."""
    if _count_tokens(trace) <= tokens:
        return trace
    shortened: Callable[[Trace, int], Trace]
    for shortened in (_cut_inputs, _cut_all):
        if _count_tokens(shortened(trace, 0)) <= tokens:
            return shortened(trace, _largest_limit(trace, shortened, tokens))
    raise TooLongError(
        f"The {len(trace.steps)} steps do not fit into {tokens:,} tokens even with nothing but their names."
    )


def windows_of(trace: Trace, tokens: int) -> list[Trace]:
    """Return *trace* split into consecutive parts of at most *tokens* tokens; a longer step is cut."""
    found: list[Trace] = []
    steps: tuple[TraceStep, ...] = ()
    for step in trace.steps:
        if steps and _count_tokens(_with_steps(trace, (*steps, step))) > tokens:
            found.append(_with_steps(trace, steps))
            steps = ()
        steps = (*steps, step)
    return [middle_cut(part, tokens) for part in (*found, _with_steps(trace, steps))]


def summarised(trace: Trace, asker: BlameAsker, tokens: int) -> Trace:
    """Return *trace* with each input that exceeds its share of *tokens* replaced by a summary, written by the model."""
    share = max(_SHORTEST_SUMMARY, _characters_per_input(trace, tokens))
    steps = [
        _with_summary(step, asker, share, tokens) if len(step.input_context) > share else step for step in trace.steps
    ]
    return _with_steps(trace, steps)


def _blame_by_windows(ask: Ask, trace: Trace, room: int) -> Attribution:
    """Ask about each part of *trace* that fits *room* tokens, then about the steps that the answers name."""
    answers = [ask(part) for part in windows_of(trace, room)]
    named = [answer for answer in answers if answer.step_id is not None]
    if len(named) < 2:
        return named[0] if named else Attribution(reason=f"no step was named in any of {len(answers)} windows")
    chosen = {answer.step_id for answer in named}
    last = ask(middle_cut(_with_steps(trace, (step for step in trace.steps if step.step_id in chosen)), room))
    if last.step_id is not None:
        return last
    return named[0].model_copy(update={"reason": f"the first that a window named; {named[0].reason}"})


def _with_summary(step: TraceStep, asker: BlameAsker, share: int, room: int) -> TraceStep:
    """Return *step* with its input summarised to about *share* characters, in pieces that fit *room* tokens."""
    size = room * _BYTES_PER_TOKEN // 4  # characters, of which each may be four bytes
    pieces = [step.input_context[at : at + size] for at in range(0, len(step.input_context), size)]
    words = max(20, share // len(pieces) // 8)
    said = [
        asker.question(
            _SUM_UP,
            f"Sum this up in at most {words} words; keep names, numbers, instructions and errors as they are:\n\n{piece}",
        )
        for piece in pieces
    ]
    return step.model_copy(update={"input_context": "\n".join(["[a summary]", *said])})


def _characters_per_input(trace: Trace, room: int) -> int:
    """Return how many characters per input fit, *room* in tokens; 0 if all other texts are too long."""
    if _count_tokens(_cut_inputs(trace, 0)) > room:
        return 0
    return _largest_limit(trace, _cut_inputs, room)


def _largest_limit(trace: Trace, shortened: Callable[[Trace, int], Trace], room: int) -> int:
    """Return the largest cut length, in characters, at which *shortened*(*trace*, length) fits *room* tokens."""
    low, high = 0, 1
    while _count_tokens(shortened(trace, high)) <= room:
        low, high = high, high * 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if _count_tokens(shortened(trace, middle)) <= room else (low, middle)
    return low


def _cut_inputs(trace: Trace, limit: int) -> Trace:
    """Return *trace* with the input of each step cut to *limit* characters."""
    return _with_steps(trace, (with_inputs_cut(step, limit) for step in trace.steps))


def _cut_all(trace: Trace, limit: int) -> Trace:
    """Return *trace* with each text cut to *limit* characters, and without an agent configuration above that."""
    about = {
        "task_instruction": cut_middle(trace.task_instruction, limit),
        "system_architecture": None
        if trace.system_architecture is None
        else cut_middle(trace.system_architecture, limit),
        "reference_answer": None if trace.reference_answer is None else cut_middle(trace.reference_answer, limit),
        "agent_configuration": {} if len(str(trace.agent_configuration)) > limit else trace.agent_configuration,
    }
    steps = (
        with_inputs_cut(step, limit).model_copy(
            update={
                "output_content": cut_middle(step.output_content, limit),
                "tool_logs": tuple(_cut_call(call, limit) for call in step.tool_logs),
            }
        )
        for step in trace.steps
    )
    return _with_steps(trace.model_copy(update=about), steps)


def _cut_call(call: ToolCall, limit: int) -> ToolCall:
    """Return the call with arguments and output cut to *limit* characters each."""
    long = len(str(call.arguments)) > limit
    arguments = {"cut": cut_middle(str(call.arguments), limit)} if long else call.arguments
    return call.model_copy(update={"arguments": arguments, "output": cut_middle(call.output, limit)})


def _with_steps(trace: Trace, steps: Iterable[TraceStep]) -> Trace:
    """Return *trace* with only *steps*."""
    return trace.model_copy(update={"steps": tuple(steps)})


def _count_tokens(trace: Trace) -> int:
    """Return the estimated tokens of *trace* as text for a model."""
    return tokens_of(metadata_text(trace)) + tokens_of(steps_text(trace.steps))
