"""Sentences of the audit report that do not depend on the numbers."""

from __future__ import annotations

INCLUSION = "A method takes part if it has a score on every case. This is decided before any score is read."
LEAD = "Lead: best method over the next one. Cases needed: at which that lead would be found with power 0.8."
EFFECTS = (
    "First method minus second, in percentage points. An asterisk marks a paired bootstrap interval that excludes zero; "
    "cells within {near:.0f} pp have no colour."
)
MULTIPLICITY = (
    "Multiplicity: {stars} of {cells} intervals exclude zero at {level:g}%, unadjusted; about {chance:.1f} would if no "
    "method differed anywhere."
)
ZERO_VARIANCE = (
    "In {count} of these cells the differences do not vary at all (ties throughout, or one case). They get the variance "
    "of two added cases, one won and one lost, instead of zero, and an interval that follows from it."
)
HETEROGENEITY = (
    "Random effects over systems: τ² by Paule-Mandel (DerSimonian-Laird beside it), interval of the mean by "
    "Hartung-Knapp-Sidik-Jonkman with t(k − 1), prediction interval for another system with t(k − 2). Where it holds "
    "zero, the better method on average may well be the worse one on the next system."
)
REGRET = (
    "Each system is held out in turn; the method that wins on the others is used on it. Regret is what the better "
    "method would have gained there. Bars name the method that was chosen. "
    "Pooling by the mean of system means comes first; by cases, large systems decide."
)
REGRET_INTERVALS = (
    "Intervals are percentiles under resampling of cases. Noise makes reversals too, so they lie above the observed "
    "mean where effects are small."
)
FAMILIES = (
    "One family is held out at a time. With {count} families this is a diagnosis, not an estimate. Between families: "
    "share of the sum of squares of the effects."
)
INTERACTION = (
    "Is the difference between methods the same on all systems? Likelihood ratio of fractional logits with and "
    "without method x system. It takes the scores of two methods on one case as independent; the Wald test with "
    "cases as clusters and the permutation test do not."
)
HOLM = "P-values of the main test are adjusted over {pairs} (Holm); the other columns are unadjusted."
LEFT_OUT = "Left out of Wald tests where a method is at 0 or 1 or two methods agree throughout: {systems}."
POWER = (
    "Simulated audits of {systems} systems in {families} families with these numbers of cases, when the paired "
    "difference of a case has standard deviation {deviation:.0f} pp (the median here). Shares of runs; at a gap of 0 the "
    "first three columns are false alarms. Where families share their effect, systems are not independent and the "
    "interval over systems is too narrow."
)
METHOD = (
    "{resamples:,} resamples, {permutations:,} permutations, {simulations:,} simulations, seed {seed}; variances with "
    "ddof = {ddof}, divided by n; confidence {level:g}%; trimmed means drop {trim:g}% at each end; pooled winner: "
    "{winner}. Every table is in tables/ as CSV and JSON, every figure in figures/ as SVG, everything in audit.json. "
    "Formulas, sources and the cases in which intervals do not cover: docs/audit.md."
)
