from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.scoring.profiles import normalise


@pytest.mark.parametrize(
    ("name", "prefixes", "expected"),
    [
        ("ts-travel-service", ("ts-",), "travelservice"),
        ("TS_TRAVEL_SERVICE", ("ts-",), "travelservice"),
        ("Travel-Service", ("ts-",), "travelservice"),
        ("ts-travel-service", (), "tstravelservice"),
        ("ts-ts-mesh", ("ts-",), "tsmesh"),
        ("ts-otel-cart", ("ts-", "otel-"), "otelcart"),
        ("tsunami", ("ts-",), "tsunami"),
        ("ts-", ("ts-",), "ts"),
        ("redis_cart", ("ts-",), "rediscart"),
    ],
)
def test_a_prefix_comes_off_once_and_case_and_bars_do_not_count(
    name: str, prefixes: tuple[str, ...], expected: str
) -> None:
    assert normalise(name, prefixes) == expected


@given(st.text("aBt-s_", max_size=12))
def test_without_prefixes_normalising_twice_is_normalising_once(name: str) -> None:
    assert normalise(normalise(name)) == normalise(name)
