"""The page with the audit of a domain's graded runs: which solver to choose for which system."""

from __future__ import annotations

import threading
from functools import lru_cache

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.metric_words import word
from opsassay.ui.audit_parts import Section
from opsassay.ui.browsing.rows import Shown, View, board_page, trials_page
from opsassay.ui.browsing.verdicts import DomainStanding
from opsassay.ui.plain import plain

_ONE = threading.Lock()
"""The lock by which one audit runs at a time: it takes seconds, and the next request finds it in the cache."""


def audit_view(state: Shown, domain: str) -> View:
    """Return the page data of the audit of *domain*; without an audit, of the reason why."""
    view: View = {
        "name": plain(domain, 60),
        "board": board_page(domain),
        "trials": trials_page(domain),
        "parts": [],
        "claim": "",
        "audit": None,
    }
    try:
        standing = state.verdicts.standing(state.catalogue, domain)
        with _ONE:
            claim, parts, whole, said = _run_audit(standing)
    except OpsAssayError as error:
        return view | {"answer": f"There is no audit: {plain(str(error), 600)}"}
    return view | {"answer": said, "claim": claim, "parts": parts, "audit": whole}


@lru_cache(8)
def _run_audit(standing: DomainStanding) -> tuple[str, list[Section], View, str]:
    """Audit the graded runs in *standing*; return (headline, sections, JSON data, recommendation); raises UserError."""
    from opsassay.analysis.audit.audit import audit_matched
    from opsassay.analysis.audit.export import as_json
    from opsassay.analysis.audit.matched import match
    from opsassay.analysis.audit.settings import AuditSettings, Columns
    from opsassay.analysis.audit.table import long_scores
    from opsassay.evals.runner.ranking import why_not_ranked
    from opsassay.evals.runner.scores import ScoredAnswer, score_table
    from opsassay.ui.audit_view import sections

    graded = [one for one in standing.graded.counted if not why_not_ranked(one.run)]
    if not graded:
        why = sorted({reason for one in standing.graded.counted for reason in why_not_ranked(one.run)})
        raise UserError(
            f"no run may be ranked ({'; '.join(why)})." if why else "nothing is graded; `opsassay score run` does it."
        )
    name, metric = standing.graded.name, _choose_metric(standing)
    answers = [ScoredAnswer(name(one.run), one.verdict) for one in graded]
    settings, about = AuditSettings(), f"the runs of {standing.board.domain}"
    inclusion = match(long_scores(score_table(answers, metric, {}), Columns(), about), settings, about)
    audit = audit_matched(inclusion.matched, settings, inclusion.ledger, inclusion.remarks)
    advice, whole = "; ".join(advised.text.rstrip(".") for advised in audit.recommendations[:3]), as_json(audit)
    if all(name in standing.entries and standing.entries[name].baseline for name in whole["methods"]):
        advice = (
            f"There is no solver to choose: only baselines have a score on every case ({', '.join(whole['methods'])})"
        )
    return audit.claim, sections(audit), whole, f"{plain(advice, 600)}. Scored by {word(metric).title}."


def _choose_metric(standing: DomainStanding) -> str:
    """Return the first leaderboard metric that every graded run in *standing* has, else the first of all."""
    from opsassay.evals.diagnosis.report import defined_metric

    if standing.board.domain == "diagnosis":
        return defined_metric(one.verdict for one in standing.graded.counted)[0]
    names = [metric.name for metric in standing.board.metrics if not metric.unit and metric.direction == "higher"]
    if not names:
        raise UserError("its domain has no metric that is a share.")
    whole = (name for name in names if all(name in one.verdict.metrics for one in standing.graded.counted))
    return next(whole, names[0])
