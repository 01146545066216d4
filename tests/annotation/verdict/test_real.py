"""Real TrainTicket faults (Nezha): no status codes, no span kinds, a baseline of three minutes."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from opsassay.annotation.verdict.annotate import annotate
from opsassay.core.schema.incident import Fault, Label
from opsassay.telemetry.datapack import Datapack

PACKS = [
    "nezha-2023-01-29-0903-ts-basic-service-return",
    "nezha-2023-01-29-1136-ts-price-service-exception",
    "nezha-2023-01-29-1449-ts-food-service-cpu-contention",
]


def _open(folder):
    told = json.loads((folder / "injection.json").read_text())
    start, end = (int(datetime.fromisoformat(told[k]).timestamp()) * 10**9 for k in ("start_time", "end_time"))
    target = told["engine_config"][0]
    fault = Fault(type=target["chaos_type"], service=target["app"], start_ns=start, end_ns=end)
    return Datapack.open(folder), fault


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKS)
def test_no_bystander_of_a_real_fault_is_attributed(real_data, name):
    pack, fault = _open(real_data / "nezha-datapacks" / name)
    neighbours = [
        "ts-gateway-service",
        "ts-travel-service",
        "ts-basic-service",
        "ts-preserve-service",
        "ts-seat-service",
    ]
    for service in sorted({*neighbours} - {fault.service}):
        assert annotate(pack, [fault], root=service).label is not Label.ATTRIBUTED, service


def test_a_real_starved_processor_is_seen_at_its_place(real_data):
    pack, fault = _open(real_data / "nezha-datapacks" / PACKS[2])
    found = annotate(pack, [fault])
    assert "cpu of ts-food-service went from" in found.reason
