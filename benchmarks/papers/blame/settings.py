"""How techniques are compared: how often, how it is scored, and what it may cost."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from opsassay.analysis.blame.settings import BlameSettings
from opsassay.solvers.agents.limits import Price

Scorer = Literal["exact", "whoandwhen", "traceelephant"]


class BenchSettings(BlameSettings):
    """A comparison: beside the settings of techniques, how often, how it is scored, and what tokens cost."""

    runs: int = Field(default=3, ge=1, description="runs of techniques that ask a model")
    scorer: Scorer = Field(default="exact", description="exact, or by substring as the code of a paper does")
    repeats: int = Field(default=20, ge=1, description="further runs of a system, for `spectrum`")
    alike: float = Field(default=1.0, ge=0, le=1, description="share of words from which two actions are one, there")
    factors: bool = Field(default=False, description="whether the agent's factors of Famas count, there")
    prices: dict[str, Price] = Field(default_factory=dict, description="USD per million tokens, by model")
    answer_tokens: int = Field(
        default=4_096, ge=16, description="most tokens of one answer, asked for when there is a budget"
    )
    retries: int = Field(default=2, ge=0, description="further tries of a call that failed in passing")
    pause_s: float = Field(default=1.0, ge=0, description="pause before the first of them, doubling")

    def asking(self) -> BlameSettings:
        """Return the settings that change what a model is asked."""
        asked = set(BlameSettings.model_fields) - {"continuations"}
        return BlameSettings.model_validate(self.model_dump(include=asked))

    @property
    def arm(self) -> str:
        """What of `asking` is not by default, as ``reference=false, tolerance=2``; '' where nothing is."""
        usual = BlameSettings().model_dump(mode="json")
        asked = self.asking().model_dump(mode="json")
        return ", ".join(f"{name}={json.dumps(value)}" for name, value in asked.items() if value != usual[name])
