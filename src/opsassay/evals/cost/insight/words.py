"""Sentences that questions share, so that every rule is stated in the same words wherever it holds."""

from __future__ import annotations

from opsassay.evals.cost.insight.question import Terms

USD = "All amounts are USD: multiply by UsdPerUnit of the BillingCurrency (table exchange_rates)."
APPLICATION = (
    "The application of a row is the value of the key `application` (exactly so written) in Tags; a row whose Tags are "
    "NULL or the text 'NULL', that lacks the key, or whose value is empty or the text 'NULL' has no application."
)
NO_NEGATIVE = "Leave out rows with a negative BilledCost."
CREDITS = "Rows of every ChargeCategory count, taxes and credits too."
CENT = "Give amounts to the cent or finer."
PERCENT = "Give percentages as numbers from 0 to 100 with two decimals or more."
ANY_PERCENT = "Give percentages as numbers with two decimals or more."


def between(terms: Terms) -> str:
    """Return the window in words; a day is one of its zone, by the start of the charge period."""
    return (
        f"from {terms.first} to {terms.last}, both days included (by ChargePeriodStart; days are those of {terms.zone})"
    )


def ties(top: int | None) -> str:
    """Return how ties are broken."""
    return f"Give exactly {top} rows, the highest first; of equal ones at the cut any may be given."
