"""What is spent: cached tokens at their own price, in limits, in run.json, of any API."""

from __future__ import annotations

from collections import Counter

import pytest

from opsassay.evals.runner.gateway import _tokens_of_call
from opsassay.solvers.agents.limits import Limits, Meter, Price
from opsassay.solvers.agents.models.base import Reply
from solvers.proxy.streams import COUNTED, PATHS, Said, exchange, stream

PRICE = Price(input=3.0, output=15.0, cached=0.3, cache_write=3.75)
USAGE = {"input_tokens": 1_000_000, "output_tokens": 100_000, "cached_tokens": 800_000, "cache_write_tokens": 100_000}


@pytest.mark.parametrize(
    ("price", "usd"),
    [
        (PRICE, 0.1 * 3 + 0.8 * 0.3 + 0.1 * 3.75 + 0.1 * 15),
        (Price(input=3.0, output=15.0), 3 + 1.5),  # a price that says nothing of caches
        (Price(input=3.0, output=15.0, cached=0.0), 0.2 * 3 + 1.5),
    ],
)
def test_each_kind_of_tokens_has_its_price(price, usd):
    meter = Meter(Limits(), price)
    meter.count(USAGE)
    assert meter.money_usd == pytest.approx(usd)
    assert meter.spent()["money_usd"] == pytest.approx(usd)


def test_a_limit_of_tokens_counts_cached_ones_and_one_of_money_their_price():
    reply = Reply(**USAGE)
    by_tokens, by_money = Meter(Limits(tokens=1_100_000), PRICE), Meter(Limits(money_usd=2.5), PRICE)
    for meter in (by_tokens, by_money):
        meter.count(reply.usage)
    assert by_tokens.exhausted() == "tokens"
    assert by_money.exhausted() is None
    by_money.count(reply.usage)
    assert by_money.exhausted() == "money_usd"


@pytest.mark.parametrize("api", PATHS)
def test_what_a_program_spends_through_the_proxy_is_priced_alike(api):
    kind = api.split(maxsplit=1)[0]
    counts = Counter(COUNTED[kind])
    meter = Meter(Limits(), Price(input=10.0, output=100.0, cached=1.0, cache_write=12.0))
    meter.count(_tokens_of_call(exchange(api, stream(api, Said("Let me see", (), 3, "numbered")))))
    apart = counts["cached_tokens"] + counts["cache_write_tokens"]
    usd = 10 * (counts["input_tokens"] - apart) + counts["cached_tokens"] + 12 * counts["cache_write_tokens"]
    assert apart > 0
    assert meter.money_usd * 1e6 == pytest.approx(usd + 100 * counts["output_tokens"])
