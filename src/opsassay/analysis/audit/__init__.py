"""Which scores may be trusted for which system: the stability of a leaderboard, on any matched table of scores.

One function per statistic: `effects`, `resampling`, `pooled`, `selection`, `interaction`, `variants`, `covariates`,
`families`, `sensitivity`, `baselines`, `power`, `advice`; `audit.audit` runs them all. docs/audit.md has the formulas.
"""
