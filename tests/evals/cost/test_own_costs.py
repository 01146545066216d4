"""Tasks on a team's own export: what providers write is read alike, keys are right, wrong files get one sentence."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import duckdb
import polars as pl
import pytest

from opsassay.cli import run as command_line
from opsassay.core.errors import DatapackError, NotFoundError, UserError
from opsassay.evals.cost.focus.export import read_export
from opsassay.evals.cost.insight.own_costs import OwnData, keep_export
from opsassay.evals.cost.tasks import CostTask, generate_own, kept_task, own_tasks

SAMPLE = Path(__file__).parents[4] / "shared" / "data" / "focus" / "focus_sample.csv"
DAYS, APPS = 30, ("shop", "pay", "search", "mail", "ads", "batch")
HEADER = (
    "BilledCost", "EffectiveCost", "ListCost", "ContractedCost", "BillingCurrency", "ChargePeriodStart",
    "ChargePeriodEnd", "ChargeCategory", "ChargeClass", "ProviderName", "ServiceCategory", "SubAccountId",
    "CommitmentDiscountStatus", "Tags",
)  # fmt: skip


def charges(currency="USD"):
    """Yield a row for each day and application: amounts with eleven decimals, credits, corrections and a commitment."""
    for day in range(DAYS):
        start = datetime(2025, 3, 1, 5 * day % 24, tzinfo=UTC) + timedelta(days=day)
        for number, app in enumerate(APPS):
            cost = Decimal(1 + (day * 7 + number * 13) % 17) * Decimal("0.12345678901") * (number + 1)
            used, status = number == 0 and day % 2 == 0, "Used" if day % 4 else "Unused"
            yield {
                "BilledCost": -cost if (day, number) == (12, 3) else cost,
                "EffectiveCost": cost * Decimal("0.9"), "ListCost": cost * 2, "ContractedCost": cost * Decimal("1.1"),
                "BillingCurrency": currency, "ChargePeriodStart": start, "ChargePeriodEnd": start + timedelta(hours=1),
                "ChargeCategory": "Credit" if (day, number) == (12, 3) else "Usage", "ChargeClass": None,
                "ProviderName": "AWS", "ServiceCategory": ("Compute", "Storage", "Databases")[number % 3],
                "SubAccountId": f"account-{number}", "CommitmentDiscountStatus": status if used else None,
                "Tags": None if (day + number) % 5 == 0 else {"app": app, "env": "prod"},
            }  # fmt: skip


def as_csv(path, rows, *, time="%Y-%m-%dT%H:%M:%SZ", null="", header=HEADER):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(header)
        for row in rows:
            values = {**row, **{n: row[n].strftime(time) for n in ("ChargePeriodStart", "ChargePeriodEnd")}}
            values["Tags"] = json.dumps(row["Tags"]) if row["Tags"] else None
            writer.writerow([null if values[name] is None else values[name] for name in HEADER])
    return path


def as_parquet(path, tags):
    """Write the charges as parquet with *tags*, an expression over the JSON text t, in the form of a provider."""
    source = as_csv(path.with_suffix(".csv"), charges())
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        numbers = ", ".join(f"CAST({name} AS DOUBLE) AS {name}" for name in HEADER[:4])
        connection.execute(
            f"COPY (SELECT * EXCLUDE (t) REPLACE ({numbers}, CAST(ChargePeriodStart AS TIMESTAMP_NS) AS ChargePeriodStart, "
            f"{tags} AS Tags) FROM (SELECT *, CAST(nullif(Tags, '') AS JSON) AS t FROM read_csv('{source}', "
            f"all_varchar = true, nullstr = ''))) TO '{path}' (FORMAT parquet)"
        )
    return path


PROVIDERS = {
    "CSV, times with a zone": lambda at: as_csv(at / "a.csv", charges()),
    "CSV, times without a zone, the text NULL": lambda at: as_csv(
        at / "b.csv", charges(), time="%Y-%m-%d %H:%M:%S", null="NULL"
    ),
    "CSV, minutes alone, names of FOCUS 1.3": lambda at: as_csv(
        at / "c.csv", charges(), time="%Y-%m-%dT%H:%MZ",
        header=["ServiceProviderName" if name == "ProviderName" else name for name in HEADER],
    ),
    "CSV, names in snake case": lambda at: as_csv(
        at / "d.csv", charges(), header=["".join(f"_{c.lower()}" if c.isupper() else c for c in n)[1:] for n in HEADER]
    ),
    "Parquet, tags as a map": lambda at: as_parquet(at / "e.parquet", "CAST(t AS MAP(VARCHAR, VARCHAR))"),
    "Parquet, tags as pairs": lambda at: as_parquet(
        at / "f.parquet",
        "CASE WHEN t IS NOT NULL THEN [{'key': 'app', 'value': t->>'app'}, {'key': 'env', 'value': t->>'env'}] END",
    ),
}  # fmt: skip


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_forms_of_providers_are_read_alike(tmp_path, provider):
    plain = read_export([as_csv(tmp_path / "plain.csv", charges())])
    found = read_export([PROVIDERS[provider](tmp_path)])
    assert found.rows.equals(plain.rows)
    assert (found.tag, found.currency, found.notes) == ("app", "USD", ())
    assert (found.start, found.end) == (datetime(2025, 3, 1, tzinfo=UTC), datetime(2025, 3, 31, tzinfo=UTC))


def test_words_of_focus_in_any_case_are_read_alike(tmp_path):
    plain = list(charges())
    words = ("ChargeCategory", "CommitmentDiscountStatus", "BillingCurrency")
    odd = [row | {name: f" {row[name].lower()}" for name in words if row[name]} for row in plain]
    found = read_export([as_csv(tmp_path / "odd.csv", odd)])
    assert found.rows.equals(read_export([as_csv(tmp_path / "plain.csv", plain)]).rows)


def test_several_files_are_one_export(tmp_path):
    rows = list(charges())
    parts = [as_csv(tmp_path / "part[1].csv", rows[:50]), as_csv(tmp_path / "part1.csv", rows[50:])]
    assert read_export(parts).rows.equals(read_export([as_csv(tmp_path / "whole.csv", rows)]).rows)


def made(tmp_path, count=1, **given) -> tuple[Path, list[CostTask], dict[str, str]]:
    folder = tmp_path / "own"
    data = keep_export(read_export([as_csv(tmp_path / "costs.csv", charges(**given))]), folder)
    tasks, left_out = generate_own(data, 0, count)
    for task in tasks:
        task.keep(folder)
    return folder, tasks, left_out


@pytest.mark.slow
def test_each_question_but_two_can_be_asked(tmp_path):
    _, tasks, left_out = made(tmp_path, count=2)
    assert set(left_out) == {"tag-policy", "budget-variance"}
    assert {one.name for one in tasks} == {
        "category-cost", "top-applications", "allocation", "peak-ratio", "daily-variance", "credit-coverage",
        "commitments", "effective-rate", "own-anomalies",
    }  # fmt: skip
    assert len({(one.name, one.body.terms) for one in tasks[:-1]}) == len(tasks) - 1


def test_keys_are_what_plain_arithmetic_gives(tmp_path):
    _, tasks, _ = made(tmp_path, currency="EUR")
    (task, *_) = [one for one in tasks if one.name == "top-applications"]
    terms, sums = task.body.terms, {}
    for row in charges("EUR"):
        if row["Tags"] and terms.first <= row["ChargePeriodStart"].date() <= terms.last:
            app = row["Tags"]["app"]
            sums[app] = sums.get(app, Fraction(0)) + Fraction(row["BilledCost"])
    highest = sorted(sums.items(), key=lambda one: -one[1])[: terms.top]
    key = task.body.key
    found = {row["application"]: row["cost_eur"] for row in (*key.required, *key.tied)}
    assert {name: found[name] for name, _ in highest} == dict(highest)
    assert "key `app`" in task.body.goal
    assert "in EUR" in task.body.goal
    assert "USD" not in task.body.goal


def test_amounts_below_a_micro_unit_and_above_64_bits_count(tmp_path):
    rows = [{**row, "BilledCost": Decimal("0.000000000007")} for row in charges()]
    rows[0]["BilledCost"] = Decimal("98765432109876.000000000001")
    data = keep_export(read_export([as_csv(tmp_path / "costs.csv", rows)]), tmp_path)
    (task,) = [one for one in generate_own(data, 0, 1)[0] if one.name == "allocation"]
    total = sum(Fraction(row["BilledCost"]) for row in rows)
    assert sum(Fraction(one) for one in data.data.tables["costs"]["BilledCost"]) == total
    assert task.body.key.required


@pytest.mark.slow
def test_right_answers_pass_and_every_mistake_fails(tmp_path, capsys):
    export = as_csv(tmp_path / "costs.csv", charges())
    assert command_line(["task", "generate", "--cost", str(export), "-o", str(tmp_path / "own")]) == 0
    (tmp_path / "costs.csv").unlink()
    plan = tmp_path / "own" / "plan.yaml"
    plan.write_text(plan.read_text() + "tasks: [top-applications, credit-coverage]\n")
    capsys.readouterr()
    command = ["run", str(plan), "-o", str(tmp_path / "store"), "--json"]
    assert command_line(command) == 1  # a column that is not there gives no answer
    runs = json.loads(capsys.readouterr().out)["items"]
    passed = [one["solver"] for one in runs if one["metrics"]["passed"]["value"] == 1.0]
    assert passed == ["oracle:right"] * 2
    assert {"oracle:list_cost", "oracle:off_by_a_day", "oracle:by_rows", "chance"} <= {one["solver"] for one in runs}
    assert command_line(["score", "run", str(tmp_path / "store")]) == 0  # by what the store kept


def test_a_store_keeps_what_its_runs_were_asked_about(tmp_path):
    folder, tasks, _ = made(tmp_path)
    assert [one.id for one in own_tasks(folder)] == [one.id for one in tasks]
    tasks[0].keep(tmp_path / "store")
    kept = kept_task(tmp_path / "store", tasks[0].commitment)
    assert kept.body.key == tasks[0].body.key
    tasks[0].keep(tmp_path / "other")
    (table,) = (tmp_path / "other" / "cost_data").iterdir()
    pl.read_parquet(table).head(5).write_parquet(table)
    with pytest.raises(DatapackError, match="is not what its name says"):
        _ = kept_task(tmp_path / "other", tasks[0].commitment).body.data


@pytest.mark.slow
def test_the_same_export_and_seed_give_the_same_tasks(tmp_path):
    one, other = (made(tmp_path / name)[1] for name in ("a", "b") if not (tmp_path / name).mkdir())
    assert [task.commitment for task in one] == [task.commitment for task in other]


def weeks(days=35, *, planted=None, currency="USD"):
    """Yield a charge for each day and category with a weekly pattern, times *planted* {(day, category): factor}."""
    (plain, *_) = charges(currency)
    for day in range(days):
        start = datetime(2025, 3, 1, 7, tzinfo=UTC) + timedelta(days=day)
        for category, base in (("Compute", 100), ("Storage", 20)):
            cost = (Decimal(base) + start.weekday()) * Decimal((planted or {}).get((day, category), 1))
            yield {**plain, "BilledCost": cost, "ServiceCategory": category, "ChargeCategory": "Usage",
                   "ChargePeriodStart": start, "ChargePeriodEnd": start + timedelta(hours=1)}  # fmt: skip
        credit = {"ChargeCategory": "Credit", "ServiceCategory": "Compute", "BilledCost": -90 if day == 20 else 0}
        yield {**plain, **credit, "ChargePeriodStart": start, "ChargePeriodEnd": start + timedelta(hours=1)}


PLANTED = {(9, "Compute"): "1.4", (10, "Compute"): "1.5", (15, "Storage"): 0, (30, "Compute"): 2}


def anomaly_task(tmp_path, rows) -> tuple[CostTask | None, dict[str, str]]:
    data = keep_export(read_export([as_csv(tmp_path / "weeks.csv", rows)]), tmp_path / "own")
    tasks, left_out = generate_own(data, 0, 1)
    return next((one for one in tasks if one.name == "own-anomalies"), None), left_out


def test_the_anomalies_of_an_export_are_what_its_definition_says(tmp_path):
    task, _ = anomaly_task(tmp_path, weeks(planted=PLANTED, currency="EUR"))
    march = datetime(2025, 3, 1, tzinfo=UTC)
    found = {(one.slice, (one.start - march).days, (one.end - march).days) for one in task.body.truth}
    assert found == {("Compute", 9, 11), ("Storage", 15, 16), ("Compute", 30, 31)}
    assert task.body.percent == 15
    assert "by more than 15%" in task.body.goal
    assert "All amounts are EUR" in task.body.goal
    assert set(task.body.oracles) >= {"right", "off_by_a_day", "everything", "credits_counted"}


def test_a_day_without_charges_costs_nothing(tmp_path):
    rows = [one for one in weeks() if (one["ChargePeriodStart"].day, one["ServiceCategory"]) != (20, "Storage")]
    task, _ = anomaly_task(tmp_path, rows)
    days = [(one.slice, str(one.start.date()), one.kind) for one in task.body.truth]
    assert ("Storage", "2025-03-20", "drop") in days


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (lambda: weeks(20, planted=PLANTED), "the export covers 20 days, and it needs 28"),
        (weeks, "no departure makes some days anomalous"),
        (
            lambda: ({**one, "ChargeClass": "Correction"} for one in weeks()),
            "no service category has charges for usage",
        ),
    ],
)
def test_anomalies_that_cannot_be_asked_are_named(tmp_path, rows, why):
    task, left_out = anomaly_task(tmp_path, rows())
    assert task is None
    assert why in left_out["own-anomalies"]


@pytest.mark.slow
def test_right_anomalies_pass_and_every_wrong_reading_fails(tmp_path, capsys):
    export = as_csv(tmp_path / "weeks.csv", weeks(planted=PLANTED))
    assert command_line(["task", "generate", "--cost", str(export), "-o", str(tmp_path / "own")]) == 0
    plan = tmp_path / "own" / "plan.yaml"
    plan.write_text(plan.read_text().replace("chance]", "chance, detector]") + "tasks: [anomaly]\n")
    capsys.readouterr()
    assert command_line(["run", str(plan), "-o", str(tmp_path / "store"), "--json"]) == 1
    runs = json.loads(capsys.readouterr().out)["items"]
    assert {one["solver"] for one in runs if one["metrics"]["passed"]["value"] == 1.0} - {"detector"} == {
        "oracle:right"
    }
    assert {"oracle:off_by_a_day", "oracle:credits_counted", "detector", "chance"} <= {one["solver"] for one in runs}
    assert command_line(["score", "run", str(tmp_path / "store")]) == 0
    assert command_line(["report", str(tmp_path / "store"), "-o", str(tmp_path / "pages")]) == 0


def changed(column, value):
    return lambda rows: [{**rows[0], column: value}, *rows[1:]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("BilledCost", "1,5"), "BilledCost is '1,5' in a row; expected a number"),
        (changed("BilledCost", "nan"), "BilledCost is 'nan' in a row"),
        (changed("BilledCost", "1e400"), "BilledCost is '1e400' in a row"),
        (changed("BilledCost", "1_0"), "BilledCost is '1_0' in a row; expected a number"),
        (
            changed("ChargeCategory", "Usages"),
            "ChargeCategory is 'Usages' in a row; expected one of Usage, Purchase, Tax",
        ),
        (changed("ChargeClass", "N/A"), "ChargeClass is 'N/A' in a row; expected one of Correction"),
        (changed("ChargeClass", "null"), "ChargeClass is 'null' in a row"),
        (changed("CommitmentDiscountStatus", "In use"), "CommitmentDiscountStatus is 'In use' in a row"),
        (changed("BilledCost", None), "BilledCost is empty in 1 rows"),
        (changed("BillingCurrency", "EUR"), "several currencies (USD in 179 rows, EUR in 1 rows)"),
        (lambda rows: rows[:12], "covers 2 days"),
        (lambda _: [], "has no charges"),
    ],
)
def test_a_wrong_export_gets_one_sentence(tmp_path, change, words):
    path = as_csv(tmp_path / "costs.csv", change(list(charges())))
    with pytest.raises(UserError) as error:
        keep_export(read_export([path]), tmp_path)
    assert words in str(error.value)


def test_a_file_that_is_no_export_is_refused(tmp_path):
    path = tmp_path / "costs.csv"
    path.write_text("Billed_Costs,Currency\n1,USD\n")
    with pytest.raises(UserError, match=r"has no column BilledCost.*is it Billed_Costs\?"):
        read_export([path])
    (tmp_path / "costs.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        read_export([tmp_path / "costs.parquet"])
    plain = as_csv(tmp_path / "plain.csv", charges())
    with pytest.raises(UserError, match="is given twice"):
        read_export([plain, plain])
    with pytest.raises(NotFoundError, match="did you mean 'app'"):
        read_export([plain], tag="apps")


@pytest.mark.parametrize("form", ["plain", "gzip", "semicolons", "a line break in a value"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda row: row[:-2], "has 12 values in line {}, and 14 in the header; export it again."),
        (lambda row: [*row, "x"], "has 15 values in line {}, and 14 in the header; export it again."),
        (lambda _: ["Total", "5"], "has 2 values in line {}, and 14 in the header"),
    ],
)
def test_a_row_of_another_length_is_named_with_its_line(tmp_path, form, change, said):
    with as_csv(tmp_path / "good.csv", list(charges())[:9]).open(newline="") as file:
        rows = list(csv.reader(file))
    rows[3][9] = "AW\nS" if form == "a line break in a value" else "AWS"
    rows[7] = change(rows[7])
    path = tmp_path / ("costs.csv.gz" if form == "gzip" else "costs.csv")
    with (gzip.open if form == "gzip" else open)(path, mode="wt", newline="") as file:
        csv.writer(file, delimiter=";" if form == "semicolons" else ",").writerows(rows)
    with pytest.raises(UserError) as error:
        read_export([path])
    assert str(error.value).startswith(f"{path} {said.format(9 if form == 'a line break in a value' else 8)}")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: b"Costs of March\n" + text, "has no column BilledCost"),
        (lambda text: text.replace(b"AWS", "Süd".encode("latin-1"), 1), "is not UTF-8; save it as UTF-8."),
        (lambda text: text.decode().encode("utf-16"), "is not UTF-8; save it as UTF-8."),
        (lambda text: text[:-45], "cannot be read as CSV (a quote is not closed at row 181); check the file."),
        (lambda text: text.replace(b'"Tags"', b'"BilledCost"', 1), "has two columns called BilledCost; leave one out."),
        (lambda _: b"", "has no column BilledCost"),
    ],
)
def test_a_csv_that_is_not_whole_gets_one_sentence(tmp_path, change, words):
    path = as_csv(tmp_path / "costs.csv", charges())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError) as error:
        read_export([path])
    assert str(error.value).startswith(f"{path} {words}")


def test_an_export_that_answers_nothing_leaves_no_folder(tmp_path, capsys):
    rows = [{**row, "BilledCost": 0, "EffectiveCost": 0, "ListCost": 0, "Tags": None} for row in charges()]
    rows = [{**row, "CommitmentDiscountStatus": None} for row in rows]
    export = as_csv(tmp_path / "costs.csv", rows)
    assert command_line(["task", "generate", "--cost", str(export), "-o", str(tmp_path / "own")]) == 2
    assert "answer no question" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["costs.csv"]


def test_files_of_several_currencies_are_never_added_up(tmp_path):
    files = [as_csv(tmp_path / f"{name}.csv", charges(name)) for name in ("EUR", "USD")]
    with pytest.raises(UserError, match="several currencies"):
        read_export(files)
    assert read_export(files, "USD").rows.equals(read_export(files[1:2]).rows)


def test_rows_of_other_currencies_and_odd_tags_are_said(tmp_path):
    rows = list(charges())
    rows[0] |= {"BillingCurrency": "EUR"}
    rows[1] |= {"Tags": ["odd"]}
    found = read_export([as_csv(tmp_path / "costs.csv", rows)], currency="USD")
    assert found.notes == (
        "1 rows in other currencies than USD are left out",
        "1 rows have Tags that are no JSON object; they count as untagged",
    )


def test_the_public_sample_of_focus_gives_tasks(tmp_path):
    if not SAMPLE.exists():
        pytest.skip("../shared/data/focus is not there")
    data = keep_export(read_export([SAMPLE]), tmp_path)
    tasks, left_out = generate_own(data, 0, 1)
    assert len(tasks) == 7
    assert set(left_out) == {"tag-policy", "budget-variance", "commitments", "own-anomalies"}
    (task,) = [one for one in tasks if one.name == "category-cost"]
    terms, sums = task.body.terms, {}
    with SAMPLE.open(newline="") as file:
        for row in csv.DictReader(file):
            if (
                str(terms.first) <= row["ChargePeriodStart"][:10] <= str(terms.last)
                and row["ServiceCategory"] in terms.chosen
            ):
                sums[row["ServiceCategory"]] = sums.get(row["ServiceCategory"], 0) + Fraction(row["BilledCost"])
    assert {row["category"]: row["cost_usd"] for row in task.body.key.required} == sums
    assert isinstance(task.own.data, OwnData)
