#!/usr/bin/env bash
# Package: statsmodels
# Version: 0.15.0
# Date: 2026-11-28
# Happens: The same fractional logit has three McFadden R2. GLM(Binomial) and Logit give the same coefficients for a score
#   between 0 and 1, but GLM reports 0.225, Logit 0.250, and the likelihood that both maximise gives 0.163. GLM adds a
#   term with gamma functions of the score, which is 0 for 0 and 1 alone; Logit takes log F((2y - 1) Xb). What Logit
#   reports as its log-likelihood is not even greatest at its own estimate: coefficients half as large again have more.
# Guessed: Two ways to fit one model, with equal coefficients, report equal fit, and a maximum of the likelihood maximises
#   the log-likelihood that is printed beside it. No warning says otherwise.
# Matters: Scores of agents are often fractions. R2, AIC and likelihood-ratio tests taken from `llf`, `prsquared` or
#   `pseudo_rsquared` depend on the class that was used. Compute y log p + (1 - y) log(1 - p) by hand. (The
#   likelihood-ratio statistic of GLM is right, since its term cancels; that of Logit is not.)
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 500 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check statsmodels==0.15.0

cat >"$dir/see.py" <<'PY'
import warnings

import numpy as np
import statsmodels.api as sm

warnings.simplefilter("error")  # so that a warning, should there be one, ends this
x = sm.add_constant(np.arange(8.0))


def by_hand(y, p):
    """The log-likelihood of a fractional logit (Papke and Wooldridge), which is Bernoulli's for 0 and 1."""
    return float((y * np.log(p) + (1 - y) * np.log1p(-p)).sum())


def fits(y):
    glm = sm.GLM(y, x, family=sm.families.Binomial()).fit()
    logit = sm.Logit(y, x).fit(disp=0)
    assert np.allclose(glm.params, logit.params, atol=1e-6), "the coefficients differ now"
    r2 = {
        "GLM": glm.pseudo_rsquared("mcf"),
        "Logit": logit.prsquared,
        "by hand": 1 - by_hand(y, glm.mu) / by_hand(y, np.full(8, y.mean())),
    }
    ratio = {
        "GLM": 2 * (glm.llf - glm.llnull),
        "Logit": logit.llr,
        "by hand": 2 * (by_hand(y, glm.mu) - by_hand(y, np.full(8, y.mean()))),
    }
    return logit, r2, ratio


def line(values):
    return ", ".join(f"{name} {value:.4f}" for name, value in values.items())


logit, r2, ratio = fits(np.array([0, 0, 1, 0, 1, 0, 1, 1.0]))
print("scores of 0 and 1:  R2", line(r2))
assert np.ptp(list(r2.values())) < 1e-9, "they differ for 0 and 1, too"

logit, r2, ratio = fits(np.array([0.1, 0.2, 0.3, 0.35, 0.5, 0.55, 0.7, 0.8]))
print("fractional scores:  R2", line(r2))
print("                    likelihood ratio", line(ratio))
assert np.allclose(list(r2.values()), [0.2250166, 0.2502318, 0.1630012], atol=1e-6), "other figures now"
assert np.allclose(list(ratio.values()), [1.7873128, 2.6314137, 1.7873128], atol=1e-6), "other figures now"

at, beyond = logit.model.loglike(logit.params), logit.model.loglike(1.5 * logit.params)
print(f"log-likelihood by Logit: {at:.4f} at its estimate, {beyond:.4f} at 1.5 times its estimate")
assert logit.mle_retvals["converged"]
assert beyond > at + 0.5, "the estimate is the maximum now"
PY
timeout 120 "$dir/venv/bin/python" "$dir/see.py"
echo "As described."
