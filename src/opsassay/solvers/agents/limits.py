"""Limits of an agent's run, and the meter that counts what the run spends and which limits it reached."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from pydantic import Field

from opsassay.core.schema.base import Written
from opsassay.solvers.agents.models.base import COUNTED


class Limits(Written):
    """Limits of one run; the defaults of tool calls are those of OpenRCA 2.0, F.2."""

    tool_budget: int = Field(default=50, ge=0, description="tool calls that the prompt recommends")
    tool_calls: int = Field(default=100, ge=0, description="tool calls after which the runtime ends the investigation")
    model_calls: int = Field(default=150, ge=1, description="requests to the model, repeated ones included")
    tokens: int | None = Field(default=None, ge=1, description="input and output tokens together")
    money_usd: float | None = Field(default=None, gt=0, description="needs prices")
    seconds: float = Field(default=900.0, gt=0, description="wall clock of the run; it is killed then")
    query_seconds: float = Field(default=30.0, gt=0, description="wall clock of one SQL")
    repairs: int = Field(default=2, ge=0, description="times that an invalid answer is asked for again")
    retries: int = Field(
        default=5, ge=0, description="further tries of a request that failed with 429, 5xx or no answer"
    )
    pause_s: float = Field(default=1.0, ge=0, description="pause before the first of them; it doubles each time")
    memory_mb: int = Field(default=2048, ge=64, description="memory of a sealed agent")
    processes: int = Field(default=256, ge=1, description="processes of a sealed agent")


class Price(Written):
    """The price of a model in USD per million tokens."""

    input: float = Field(default=0.0, ge=0)
    output: float = Field(default=0.0, ge=0)
    cached: float | None = Field(default=None, ge=0, description="input that a cache had; as input when left out")
    cache_write: float | None = Field(
        default=None, ge=0, description="input written to a cache; as input when left out"
    )

    def cost_of(self, usage: Mapping[str, float]) -> float:
        """Return the price in USD of *usage*, token counts by names of `COUNTED`; input_tokens includes cached tokens."""
        tokens = [usage.get(name, 0) for name in COUNTED]
        plain = max(0, tokens[0] - tokens[2] - tokens[3])
        cached, written = (self.input if one is None else one for one in (self.cached, self.cache_write))
        return (plain * self.input + tokens[1] * self.output + tokens[2] * cached + tokens[3] * written) / 1e6


SYNTHESIS_SHARE = 0.8
"""The share of time, tokens and money for the investigation; the rest is for writing the answer."""


class Meter:
    """Counts what one run spends; *hit* lists the limits that it reached, in that order."""

    def __init__(self, limits: Limits, price: Price | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits, self.price, self._clock = limits, price or Price(), clock
        self._began = clock()
        self.tool_calls = self.model_calls = self.retries = self.repairs = 0
        self.usage: Counter[str] = Counter()
        self.hit: list[str] = []

    @property
    def seconds(self) -> float:
        """The seconds since the run began."""
        return self._clock() - self._began

    @property
    def money_usd(self) -> float:
        """The cost of the tokens so far, USD."""
        return self.price.cost_of(self.usage)

    def count(self, usage: Mapping[str, int]) -> None:
        """Add the token counts of *usage*, by names of `COUNTED`, to what the run has used."""
        self.usage.update({name: usage[name] for name in COUNTED if usage.get(name)})

    def exhausted(self, share: float = 1.0) -> str | None:
        """Record and return the first limit of which the run has used *share* (0 to 1) or more; None if there is none."""
        limits = self.limits
        used = (
            ("model_calls", self.model_calls, float(limits.model_calls) if share == 1 else limits.model_calls - 1),
            (
                "tokens",
                self.usage["input_tokens"] + self.usage["output_tokens"],
                limits.tokens and limits.tokens * share,
            ),
            ("money_usd", self.money_usd, limits.money_usd and limits.money_usd * share),
            ("seconds", self.seconds, limits.seconds * share),
        )
        for name, spent, most in used:
            if most is not None and spent >= most:
                self.note(name)
                return name
        return None

    def note(self, limit: str) -> None:
        """Add the name of a *limit* to `hit`, unless it is there."""
        if limit not in self.hit:
            self.hit.append(limit)

    def spent(self) -> dict[str, float]:
        """Return what the run has used, by names in run.json: calls, tokens, money_usd, retries, repairs, seconds."""
        return {
            "tool_calls": self.tool_calls,
            "model_calls": self.model_calls,
            **{name: self.usage[name] for name in COUNTED if self.usage[name] or name in COUNTED[:2]},
            "money_usd": round(self.money_usd, 6),
            "retries": self.retries,
            "repairs": self.repairs,
            "seconds": round(self.seconds, 3),
        }
