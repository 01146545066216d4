"""An artefact that an injector would leave in a view is found: each is planted in packs whose rows are those of all others."""

from __future__ import annotations

import json
import random

import polars as pl
import pytest

from opsassay.telemetry.content import ENV
from telemetry.packs import make_pack

from .artefacts import artefacts, classified
from .view import most_telling

CLASS = "26 artefacts of injectors"
COUNT, CHANCE = 16, 0.05


def table(change, name="abnormal_traces.parquet"):
    """Return what writes *change* of the table *name* in a folder."""

    def plant(folder):
        path = folder / name
        change(pl.read_parquet(path)).write_parquet(path)

    return plant


def told(folder):
    path = folder / ENV
    path.write_text(json.dumps({**json.loads(path.read_text()), "host": {"cores": 3}}))


PLANTED = {
    "a column more": table(lambda frame: frame.with_columns(pl.lit("x").alias("attr.more"))),
    "times of whole milliseconds": table(lambda frame: frame.with_columns(pl.col("time").dt.truncate("1ms"))),
    "rows in another order": table(lambda frame: frame.reverse()),
    "a column without values": table(
        lambda frame: frame.with_columns(pl.lit(None, pl.String).alias("attr.k8s.pod.name"))
    ),
    "longer ids": table(lambda frame: frame.with_columns(pl.col("span_id") + "0")),
    "bytes behind the rows": lambda folder: pad(folder / "abnormal_logs.parquet"),
    "a fact of the machine": told,
    "nothing": lambda _folder: None,
}


def pad(path):
    """Write the table at *path* so that it takes more bytes."""
    pl.read_parquet(path).write_parquet(path, compression="uncompressed")


def planted(folder, what):
    """Return labels and artefacts of packs of two types, in those of one of which *what* is planted."""
    labels, views = ["NetworkDelay", "PodKill"] * (COUNT // 2), []
    random.Random(1).shuffle(labels)
    for number, label in enumerate(labels):
        pack = make_pack(folder / str(number), seed=str(number), traces=20, seconds=20).path
        if label == "PodKill":
            PLANTED[what](pack)
        views.append(artefacts(pack, 10.0, folder))
    return labels, views


@pytest.mark.sampled
@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_for_one_type_is_found(tmp_path, what):
    found = most_telling(*planted(tmp_path, what))
    assert (found.p <= CHANCE) is (what != "nothing"), found


@pytest.mark.slow
@pytest.mark.parametrize("what", ["longer ids", "nothing"])
def test_a_classifier_finds_it_too(tmp_path, what):
    assert (classified(*planted(tmp_path, what)) <= CHANCE) is (what != "nothing")
