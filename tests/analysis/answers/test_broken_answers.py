"""Broken files of every form among good ones, given to `opsassay score import`: each is named, and the others graded."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from analysis.answers.test_other_forms import ASKED, causes, log, trial
from analysis.answers.test_predictions import TEXT
from analysis.answers.test_rcabench_answers import answer
from opsassay.cli import run
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.store import RunStore
from opsassay.telemetry.importers import IMPORTERS
from telemetry.packs import make_tree
from telemetry.test_frozen_importers import scenario
from telemetry.test_importers import openrca, rcaeval

ODD: list[Any] = [
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "x" * 70_000,
    "\x00",
    "\ud800",
    [],
    [[[]]],
    {},
    {"a": {"b": [None]}},
    ["x", 3],
]
SHARE = 40
"""Files with one odd value each, drawn of all places and values."""


def odd_values(good: Any) -> Iterator[Any]:
    """Yield *good* with each of its values replaced by each odd one, and without it."""
    places = list(good) if isinstance(good, dict) else range(len(good)) if isinstance(good, list) else ()
    for place in places:
        for odd in [*ODD, *odd_values(good[place])]:
            changed = good.copy()
            changed[place] = odd
            yield changed
        changed = good.copy()
        del changed[place]
        yield changed


def broken_texts(good: str) -> list[bytes]:
    """Return JSON texts that are no JSON, or not what they were, made of the text *good*."""
    whole = good.encode()
    return [
        b"",
        b"\x00",
        b"null",
        b"[]",
        b"3",
        b'"x"',
        b"NaN",
        b"[NaN, -Infinity]",
        b'{"a": NaN}',
        b"[" * 100_000,
        b"{" * 1_000,
        whole[: len(whole) // 2],
        whole[:-1],
        whole + b"}",
        whole * 2,
        b"\xff\xfe" + good.encode("utf-16-le"),
        whole[:9] + b"\xe9" + whole[9:],
        b"[" + whole + b", [[" + whole + b"]]]",
        b"1" * 5_000,
        whole.replace(b":", b": " + b"9" * 5_000 + b", ", 1),
        whole.replace(b'"', b"'"),
        whole[:-1] + b"," + whole[1:],
        b'{"results": [3, null, [' + whole + b"]]}",
    ]


def broken_tables(good: list[dict[str, str]]) -> list[bytes]:
    """Return CSV texts made of the rows *good*: cut off, with other columns, other encodings, odd cells."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(good[0]))
    writer.writeheader()
    writer.writerows(good)
    text = file.getvalue()
    head, rest = text.split("\n", 1)
    return [
        b"",
        b"\n\n",
        head.encode(),
        rest.encode(),
        text[: len(text) // 2].encode(),
        text.encode("utf-16"),
        text.replace(",", ";").encode(),
        f"{head},{head}\n{rest}".encode(),
        f"{text}a,b,c,d,e,f,g\n".encode(),
        f'{text}"'.encode(),
        text.replace("{", "{\x00").encode(),
        text.encode() + b"\xe9",
        f"{head}\n{',' * 9}\n".encode(),
        f"{head}\nNaN,NaN\n".encode(),
        f"{head}\n{'9' * 5000},1\n".encode(),
    ]


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def texts(good: Any) -> list[bytes]:
    """Return what is broken of the JSON value *good*: whole texts, and a share of those with one odd value."""
    some = [json.dumps(one, ensure_ascii=True).encode() for one in odd_values(good)]
    return broken_texts(json.dumps(good)) + Random(0).sample(some, min(SHARE, len(some)))


class Form:
    """A form: the incidents, the good files, of which each is an answer, and broken files beside them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.into, self.cases = folder, folder / "in", folder / "cases"
        getattr(self, name)()

    def rcabench(self) -> None:
        tree = make_tree(self.cases, count=2, traces=12)
        for number, content in enumerate(texts(answer())):
            write(self.into / "a" / f"b{number}" / f"{tree.ids()[0]}.json", content)
        for id_ in tree.ids():
            write(self.into / "a" / "z" / f"{id_}.json", json.dumps(answer()).encode())

    def openrca(self) -> None:
        IMPORTERS.load("openrca")(openrca(self.folder / "raw" / "cloudbed-1"), self.cases)
        good = [{"instruction": ASKED, "prediction": causes("cart-0")}]
        cells = [content.decode("utf-8", "replace") for content in texts(json.loads(causes("cart-0")))]
        tables = broken_tables(good) + [broken_tables([{**good[0], "prediction": cell}])[8] for cell in cells]
        for number, content in enumerate(tables):
            write(self.into / f"b{number}-cloudbed-1.csv", content)
        for number in (1, 2):
            write(
                self.into / f"z{number}-cloudbed-1.csv",
                ("instruction,prediction\n" + _row(good[0])).encode("utf-8-sig"),
            )

    def itbench(self) -> None:
        IMPORTERS.load("itbench-lite")(scenario(self.folder / "raw" / "Scenario-7").parent, self.cases)
        good = {
            "entities": [{"name": "n/Pod/x", "contributing_factor": True}],
            "propagations": [{"source": "a", "target": "b"}],
        }
        for number, content in enumerate(texts(good)):
            write(self.into / "sre" / "Scenario-7" / f"{number}" / "agent_output.json", content)
        for number in (801, 802):
            write(self.into / "sre" / "Scenario-7" / f"{number}" / "agent_output.json", json.dumps(good).encode())

    def rcaeval(self) -> None:
        IMPORTERS.load("rcaeval")(rcaeval(self.folder / "raw"), self.cases)
        good = {"0": ["cartservice_cpu", "adservice_mem"]}
        for number, content in enumerate(texts(good)):
            write(self.into / f"m{number}" / "cartservice_cpu_1.json", content)
        rows = [{"case": "cartservice_cpu_1", "method": "baro", "ranks": json.dumps(good["0"])}]
        for number, content in enumerate(broken_tables(rows)):
            write(self.into / f"t{number}.csv", content)
        for number in (1, 2):
            write(self.into / f"z{number}" / "cartservice_cpu_1.json", json.dumps(good).encode())

    def harbor(self) -> None:
        tree = make_tree(self.cases, count=2, traces=12)
        one = tree.ids()[0]
        trial(self.into / "z1", one, answer())
        trial(self.into / "z2", one, answer())
        result = json.loads((self.into / "z1" / "result.json").read_text())
        for number, content in enumerate(texts(result)):
            trial(self.into / f"a{number}", one, answer())
            write(self.into / f"a{number}" / "result.json", content)
        for number, content in enumerate(broken_texts(json.dumps(answer()))):
            trial(self.into / f"b{number}", one, "")
            write(self.into / f"b{number}" / "artifacts" / "logs" / "artifacts" / "answer.json", content)

    def inspect(self) -> None:
        tree = make_tree(self.cases, count=2, traces=12)
        good = log(IncidentItem.from_datapack(tree.datapack(tree.ids()[0])).task, json.dumps(answer()))
        for number, content in enumerate(texts(good)):
            write(self.into / f"a{number}.json", content)
        for number, content in enumerate((b"", b"PK", b"PK\x03\x04" + b"\x00" * 40, json.dumps(good).encode())):
            write(self.into / f"e{number}.eval", content)
        with zipfile.ZipFile(self.into / "f.eval", "w") as packed:
            packed.writestr("header.json", "{")
        for number in (1, 2):
            other = {**good, "samples": [{**good["samples"][0], "epoch": 700 + number}]}
            write(self.into / f"z{number}.json", json.dumps(other).encode())

    def whoandwhen(self) -> None:
        turns = [{"name": name, "role": "assistant", "content": "x"} for name in ("Planner", "Coder", "Checker")]
        for name in ("1", "2"):
            trace = {
                "history": turns, "question": "?", "question_ID": name, "ground_truth": "4", "mistake_agent": "Coder",
                "mistake_step": "1", "mistake_reason": "r",
            }  # fmt: skip
            write(self.cases / f"{name}.json", json.dumps(trace).encode())
        good = {"file": "1.json", "predicted_agent": "Coder", "predicted_step": "1", "method": "m"}
        for number, content in enumerate(texts(good)):
            write(self.into / f"a{number}.jsonl", content)
            write(self.into / f"b{number}.json", content)
        for number, content in enumerate(
            (TEXT[:40], TEXT.replace("Step Number: 1", "Step Number: " + "9" * 5_000), TEXT.replace("1", "\x00"))
        ):
            write(self.into / f"c{number}.txt", content.encode())
        for number in (1, 2):
            row = {**good, "file": f"{number}.json", "method": f"z{number}"}
            write(self.into / f"z{number}.jsonl", json.dumps(row).encode("utf-8-sig"))

    traceelephant = whoandwhen


def _row(cells: dict[str, str]) -> str:
    file = io.StringIO()
    csv.writer(file).writerow(cells.values())
    return file.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["rcabench", "openrca", "itbench", "rcaeval", "harbor", "inspect", "whoandwhen", "traceelephant"]
)
@pytest.mark.parametrize("named", [True, False], ids=["the form is named", "the form is found"])
def test_what_is_broken_is_named_in_a_sentence_and_the_good_ones_are_kept(name, named, tmp_path, capsys):
    form = Form(tmp_path, name)
    words = ["score", "import", form.into, "--cases", form.cases, "-o", tmp_path / "store", "--json"]
    words += ["--form", name] if named or name in {"whoandwhen", "traceelephant"} else []
    code = run([*map(str, words)])
    out, err = capsys.readouterr()
    assert (code, "Traceback" in err) == (1, False), err[-3000:]
    whole = json.loads(out)
    sources = " ".join(str(item.get("source", item)) for item in whole["items"])
    assert all(f"z{number}" in sources or f"80{number}" in sources or "/z/" in sources for number in (1, 2)), sources[
        :2000
    ]
    assert len(whole["problems"]) >= 10
    for problem in whole["problems"]:
        assert problem == problem.strip()
        assert len(problem) < 1_000, problem
        assert "Traceback" not in problem
        assert "object has no attribute" not in problem, problem
    if name not in {"whoandwhen", "traceelephant"}:
        for folder in RunStore(tmp_path / "store").runs():
            assert (folder / "verdicts" / "default.json").exists(), folder
