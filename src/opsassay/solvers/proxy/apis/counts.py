"""The names of token counts in each API, and which counts include which.

In OpsAssay *input_tokens* and *output_tokens* are totals. *cached_tokens* (read from a cache), *cache_write_tokens*,
*tool_tokens* (added by hosted tools) and *audio_input_tokens* are parts of the input, *reasoning_tokens* and
*audio_output_tokens* parts of the output.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from opsassay.core.schema.files import packaged_yaml
from opsassay.solvers.proxy.apis.base import fields, list_objects

COUNTS: Mapping[str, Mapping[str, str]] = packaged_yaml(__package__, "counts.yaml")
"""By API or format: our count's name to theirs; ``a + b`` is a sum, ``a | b`` the first present, ``a/b`` b within a."""


def usage_of(api: str, counts: Any) -> dict[str, int]:
    """Return the token counts in *counts*, named as by *api*, by OpsAssay's names; missing ones are left out."""
    found = {}
    for ours, theirs in COUNTS[api].items():
        values = [_first_count(counts, names.split(" | ")) for names in theirs.split(" + ")]
        if known := [value for value in values if value is not None]:
            found[ours] = sum(known)
    return found


def usage_by_total(api: str, counts: Any) -> dict[str, int]:
    """Return the token counts by OpsAssay's names; tokens that only the total includes are added to input or output.

    They are tokens of a cache, or of reasoning at xAI. In inspect_ai a smaller total means an input with cached tokens.
    """
    found, total = usage_of(api, counts), _first_count(counts, ["total_tokens"])
    if total is None or not {"input_tokens", "output_tokens"} <= found.keys():
        return found
    apart = total - found["input_tokens"] - found["output_tokens"]
    cached = found.get("cached_tokens", 0) + found.get("cache_write_tokens", 0)
    if apart > 0 or (api == "inspect" and apart == -cached):
        found["input_tokens" if abs(apart) == cached else "output_tokens"] += apart
    return found


def messages_usage(counts: Any) -> dict[str, int]:
    """Return the token counts of an Anthropic message by OpsAssay's names, those of its ``iterations`` added."""
    found = Counter(usage_of("messages", _with_cache_writes(fields(counts))))
    for one in list_objects(fields(counts).get("iterations")):
        if one.get("type") != "message":
            found.update(usage_of("messages", _with_cache_writes(one)))
    return dict(found)


def _with_cache_writes(counts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *counts* with the cache writes summed where only counts per cache are given."""
    name, each = "cache_creation", fields(counts.get("cache_creation"))
    if _count_at(counts, [f"{name}_input_tokens"]) is not None or not each:
        return counts
    return {**counts, f"{name}_input_tokens": sum(_count_at(each, [one]) or 0 for one in each)}


def inspect_counts(usage: Mapping[str, int]) -> dict[str, int]:
    """Return *usage* by the names of inspect_ai's ModelUsage, whose input excludes cached and cache-write tokens."""
    cached, written = usage.get("cached_tokens", 0), usage.get("cache_write_tokens", 0)
    given, said = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    found = {"input_tokens": max(given - cached - written, 0), "output_tokens": said, "total_tokens": given + said}
    return found | named_usage(
        "inspect", {key: usage[key] for key in usage if key not in ("input_tokens", "output_tokens")}
    )


def named_usage(api: str, usage: Mapping[str, int]) -> dict[str, int]:
    """Return *usage* by the names that *api* gives these counts; those without a name there are left out."""
    return {re.split(r" [|+] ", COUNTS[api][ours])[0]: usage[ours] for ours in COUNTS[api] if ours in usage}


def _first_count(counts: Any, names: list[str]) -> int | None:
    """Return the count at the first of *names* that has one, None when none has; "a/b" is a nested key."""
    return next((value for name in names if (value := _count_at(counts, name.split("/"))) is not None), None)


def _count_at(value: Any, path: list[str]) -> int | None:
    """Return the whole number at the nested keys *path*, also from text; None when there is none."""
    for name in path:
        if isinstance(value, list):  # Gemini: [{"modality": "AUDIO", "tokenCount": 3}, ...]
            value = next(
                (one.get("tokenCount") for one in value if isinstance(one, dict) and one.get("modality") == name), None
            )
        else:
            value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str) and value.isdecimal():
        return int(value)
    is_count = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 and value == value // 1
    return int(value) if is_count else None
