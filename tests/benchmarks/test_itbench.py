"""One command for ITBench's tables, over stores of whatever domain: what is there, and what is refused by name."""

from __future__ import annotations

import json

import pytest
import yaml
from benchmarks.papers.itbench import command
from benchmarks.papers.running import run

from opsassay.cli import run as opsassay


def tables(capsys, *words):
    capsys.readouterr()
    code = run(command, [*map(str, words), "--json"])
    out, err = capsys.readouterr()
    return code, {one["table"]: one["rows"] for one in json.loads(out)["items"]} if out else {}, err


def test_without_a_store_there_are_the_tables_of_the_tasks(capsys):
    code, found, _ = tables(capsys)
    assert (code, sorted(found)) == (0, [22, 23, 26, 27, 28, 29])
    assert sorted(tables(capsys, "-t", "26", "-t", "29")[1]) == [26, 29]


@pytest.mark.slow
def test_stores_of_two_domains_give_the_tables_of_both(tmp_path, capsys):
    for domain, task, agent in (("finops", "category-cost", "constant"), ("ciso", "new-kyverno", "untouched")):
        plan = {"domain": domain, "tasks": [task], "agents": [agent]}
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
        assert opsassay(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / domain)]) in (0, 1)
    code, found, err = tables(capsys, tmp_path / "finops", tmp_path / "ciso")
    assert code == 0, err
    assert sorted(found) == [5, 6, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32]
    assert found[25] == found[5]
    assert ([row["solver"] for row in found[5]], [row["solver"] for row in found[30]]) == (["untouched"], ["constant"])
    assert found[30][0]["category-cost pass@1 %"] == "0.0"
    code, _, err = tables(capsys, tmp_path / "finops", "-t", "24")
    assert (code, "Table 24 is of compliance runs, and none is given." in err) == (2, True)
