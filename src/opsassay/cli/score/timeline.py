"""opsassay score timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import json_option, print_json, print_table, say

if TYPE_CHECKING:
    from opsassay.core.schema.trajectory import PhaseName

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Instant(click.ParamType[int]):
    """A time of RFC 3339, or seconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return *value*, a time as the user wrote it, as nanoseconds since 1970 (UTC); anything else is a usage error."""
        from opsassay.evals.remediation.foreign.instants import instant_ns

        try:
            return instant_ns(value)
        except ValueError:
            self.fail(f"{value!r} is no time; write 2026-11-29T03:04:05Z or seconds since 1970.", param, ctx)


@click.command("timeline")
@click.argument("scenario_name", metavar="SCENARIO")
@click.option("--watch", "watches", multiple=True, type=FILE, help="Log of `kubectl get KIND -w -o json`.")
@click.option("--prometheus", "ranges", multiple=True, type=FILE, help="Answer of query_range.")
@click.option("--records", type=FILE, help="Records of *Side Effects*, one JSON object a tick, instead of both.")
@click.option("--actions", type=FILE, help="Actions of the agent, as the actions.jsonl of a run.")
@click.option("--fault", type=Instant(), help="When the fault was applied.")
@click.option("--agent-start", type=Instant(), help="When the agent began.")
@click.option("--agent-end", type=Instant(), help="When the agent ended.")
@click.option("--profile", type=click.Choice(["default", "paper"]), help="Instead of the committed one.")
@json_option
def command(
    scenario_name: str, watches: tuple[Path, ...], ranges: tuple[Path, ...], records: Path | None, actions: Path | None,
    fault: int | None, agent_start: int | None, agent_end: int | None, profile: Any, *, as_json: bool,
) -> None:  # fmt: skip
    """Judge a run made without OpsAssay by the checks of SCENARIO; a check without evidence does not apply.

    Evidence is --watch (logs of kubectl get -w) and --prometheus (range queries), or --records (JSON, one object a
    tick), and --actions (the agent's). --fault, --agent-start and --agent-end are times (RFC 3339 or seconds since
    1970); --profile replaces the scenario's grading profile.
    """
    from opsassay.core.errors import UserError
    from opsassay.evals.remediation.foreign.judging import ForeignRun
    from opsassay.testbed.scenarios import load_scenario

    if (records is None) == (not watches and not ranges):
        raise UserError("Name the record: --watch and --prometheus, or --records without them.")
    named: tuple[tuple[PhaseName, int | None], ...] = (
        ("triggered", fault),
        ("agent_started", agent_start),
        ("agent_ended", agent_end),
    )
    run = ForeignRun(
        load_scenario(scenario_name), watches=watches, ranges=ranges, records=records, actions=actions,
        phases=[(name, at) for name, at in named if at is not None],
    )  # fmt: skip
    if run.ranges.unused:
        say(f"opsassay: no predicate reads {', '.join(run.ranges.unused)}.")
    verdict = run.judge_record(profile)
    items = [one.model_dump(mode="json") for one in verdict.judgements]
    if as_json:
        validity = verdict.validity.model_dump(mode="json")
        print_json("score timeline", items, scenario=verdict.item, profile=verdict.profile, validity=validity)
    else:
        rows = [(one["predicate"], one["status"], one["reason"]) for one in items]
        print_table(f"{verdict.item}, {verdict.profile}", ("predicate", "says", "why"), rows)
