"""opsassay incident audit-labels."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from opsassay.cli.output import echo, json_option, print_json, print_table, say
from opsassay.core.text import plural
from opsassay.evals.runner.tables import percent


@click.command("audit-labels")
@click.argument("suite", type=click.Path(exists=True, path_type=Path, file_okay=False))
@click.option("-a", "--annotator", help="Serve the pages to this annotator, until Ctrl-C.")
@click.option("--sample", type=click.IntRange(min=1), help="Judge this many cases, drawn at random; all when left out.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Draw of the sample; the same for both annotators."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on this machine; a free one when left out."
)
@json_option
def command(suite: Path, annotator: str | None, sample: int | None, seed: int, port: int, *, as_json: bool) -> None:
    """Serve the causal graphs of SUITE to annotator -a, to be judged blind; without -a, report how far two agree."""
    if annotator:
        _serve_labels(suite, annotator, sample, seed, port)
        return
    from opsassay.annotation.suites.agreement import agreement

    found = agreement(suite)
    kappa = "undefined: both gave one and the same answer throughout" if found.kappa is None else f"{found.kappa:.3f}"
    if as_json:
        print_json(
            "incident audit-labels",
            list(found.disagreements),
            **{k: v for k, v in asdict(found).items() if k != "disagreements"},
        )
        return
    one, two = found.annotators
    echo(
        f"{one} and {two} judged {plural(found.cases, 'case')}: raw agreement {percent(found.raw)}, Cohen's kappa {kappa}."
    )
    echo(f"Both find the cascade valid in {found.valid} of {found.cases} ({percent(found.valid / found.cases)}).")
    rows = [(d["case"], *(_format_flags(d[name]) for name in found.annotators)) for d in found.disagreements]
    print_table("Disagreements", ("case", one, two), rows)


def _format_flags(flags: dict[str, object]) -> str:
    """Return an annotator's objections to a label, from its JSON: wrong nodes, wrong edges, missing parts, or "agree"."""
    if flags["agree"]:
        return "agree"
    edges = flags["edges"]
    assert isinstance(edges, dict)
    parts = [*flags["nodes"], *(f"{edge}: {', '.join(why)}" for edge, why in edges.items())]  # type: ignore[misc]
    return "; ".join([*parts, *(f"missing {part}" for part in flags["missing"])])  # type: ignore[attr-defined]


def _serve_labels(suite: Path, annotator: str, count: int | None, seed: int, port: int) -> None:
    """Serve web pages on which *annotator* judges *count* labels of *suite*, drawn by *seed*; None takes all."""
    from opsassay.annotation.suites.agreement import audit_file, sample
    from opsassay.core.errors import UserError
    from opsassay.telemetry.tree import Tree
    from opsassay.ui.labels import LabelAudit, labels_app
    from opsassay.ui.loopback import serve_on_loopback

    audit_file(suite, annotator)
    tree = Tree(suite)
    cases = sample([id_ for id_ in tree.ids() if tree.annotation(id_)], count, seed)
    if not cases:
        raise UserError(f"{suite} holds no annotated case; make a suite with `opsassay incident curate`.")
    app = labels_app(LabelAudit(suite, annotator, tuple(cases)))
    serve_on_loopback(
        app, port, lambda at: say(f"opsassay: {plural(len(cases), 'case')} for {annotator} at {at} (Ctrl-C ends)")
    )
