"""The stability of a leaderboard: which scores can be trusted for which system, for any matched table of scores.

One function per statistic: `effects`, `resampling`, `pooled`, `selection`, `interaction`, `variants`, `covariates`,
`families`, `sensitivity`, `baselines`, `power`, `advice`; `audit.audit` runs them all. docs/audit.md has the formulas.
"""
