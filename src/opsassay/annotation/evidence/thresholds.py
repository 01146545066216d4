"""Every number of the screens and signatures, as settings give them and as an annotation carries them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opsassay.annotation.evidence.detectors import TAIL_FACTORS, Z_LEVELS, AdaptiveLatency
from opsassay.annotation.reading.log_templates import StatementThresholds
from opsassay.core.schema.base import Written


class SignatureThresholds(Written):
    """When a fault is seen at its place: time that rose, and links that show it."""

    z: float = Field(default=4.0, gt=0, description="z score from which on a time rose")
    z_backed: float = Field(
        default=3.0, gt=0, description="the same where a resource or restarts show the fault already"
    )
    added_ms: float = Field(default=10.0, ge=0, description="and by how much at least, ms")
    ratio: float = Field(default=1.5, ge=1, description="and how many times its usual at least")
    link_share: float = Field(default=0.8, gt=0, le=1, description="share of the links that tell that must agree")


class LinkThresholds(Written):
    """When the calls over links tell of a network fault, and what its direction has to explain."""

    tells: float = Field(
        default=3.0, gt=0, description="log of how many times likelier one explanation of a link is: 20 to 1"
    )
    suspicious: float = Field(
        default=0.05, gt=0, lt=1, description="Fisher's p from which on a link may say which share of calls is hit"
    )
    chance: float = Field(
        default=1e-3, gt=0, lt=1, description="Fisher's p of all hits of a class, from which on they are no chance"
    )
    most_hit: float = Field(default=0.95, gt=0, lt=1, description="share of calls hit at most: something escapes")
    least_hit_by_delay: float = Field(
        default=0.3, ge=0, lt=1, description="and at least by a delay, which lets no packet through in time"
    )
    smallest_part: float = Field(
        default=0.25, ge=0, le=1, description="of one delay links pay one to three times; less is another cause's"
    )
    prior_calls: int = Field(default=20, ge=0, description="calls of all links' baseline that stand beside one link's")
    most_of_one_link: float = Field(default=10.0, gt=0, description="what one link may add to the support")
    resent_ms: float = Field(default=100.0, ge=0, description="what a call with a lost packet waits at least, ms")
    one_way: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="share of the added time after the callee's end that is none: requests alone",
    )


class ResourceThresholds(Written):
    """When a resource rose: processor and memory of a service or host."""

    z_levels: tuple[float, float, float] = Field(
        default=Z_LEVELS, description="z scores above which a level is moderate, warning and critical, which counts"
    )
    dominance: float = Field(default=0.5, ge=0, le=1, description="share of the system's largest rise, at least")
    cpu_cores: float = Field(default=0.1, ge=0, description="rise of the processor at least, cores")
    cpu_ratio: float = Field(default=2.0, ge=1, description="and how many times its usual")
    memory_mb: float = Field(default=32.0, ge=0, description="rise of memory at least, MiB")
    memory_ratio: float = Field(default=1.2, ge=1, description="and how many times its usual")
    utilisation: float = Field(default=0.8, gt=0, lt=1, description="share of the limit above which it is used up")


class LoadThresholds(Written):
    """When more work came, so that time is compared in moments no busier than before."""

    grew: float = Field(default=1.5, ge=1, description="how many times as many requests reach the root")
    idle: float = Field(default=0.1, ge=0, description="share of a moment up to which nobody waits for another")
    moment_s: float = Field(default=5.0, gt=0, description="length of a moment at least, s")


class Thresholds(Written):
    """Every number of the screens and signatures; an annotation carries them."""

    minimum_samples: int = Field(default=5, ge=1, description="calls that a window must hold by its baseline rate")
    z_critical: float = Field(default=3.0, gt=0, description="z score from which on a mean is critical")
    minimum_ratio: float = Field(default=1.5, ge=1, description="how many times its baseline a slow mean is at least")
    minimum_added_ms: float = Field(default=10.0, ge=0, description="how much longer a slow mean is at least, ms")
    error_share: float = Field(default=0.05, gt=0, lt=1, description="share of failures beyond the baseline's")
    error_counts: Literal["chance", "percentile"] = Field(
        default="chance", description="failures beyond chance, or a window's count beyond the baseline's percentiles"
    )
    minimum_errors: int = Field(default=2, ge=1, description="failures below which nothing is erroring")
    chance: float = Field(default=0.01, gt=0, lt=1, description="probability below which failures are no chance")
    prior_calls: float = Field(default=20.0, gt=0, description="weight of the whole system's failure rate, in calls")
    expected_when_missing: float = Field(default=6.0, gt=0, description="calls expected in a window that misses all")
    tail_samples: int = Field(default=200, ge=100, description="calls that a P99 needs on both sides")
    tail_factors: tuple[float, float, float] = Field(
        default=TAIL_FACTORS, description="times the P99 that are moderate, warning and critical"
    )
    drift: float = Field(default=0.1, gt=0, le=1, description="share of false alarms above which a baseline drifted")
    adaptive: AdaptiveLatency = AdaptiveLatency()
    signature: SignatureThresholds = SignatureThresholds()
    links: LinkThresholds = LinkThresholds()
    resources: ResourceThresholds = ResourceThresholds()
    pace: LoadThresholds = LoadThresholds()
    statements: StatementThresholds = StatementThresholds()
