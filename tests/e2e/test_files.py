"""A folder of CSV files, as people fill it: one of them is wrong, is mended, and the next run goes on."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.flows import Flow, sqlite_rows

pytestmark = pytest.mark.server

FLOW = """\
version: 1
flow: invoices
state: ./state
spark: {{url: "{url}"}}
connections:
  inbox: {{type: files, path: ./inbox}}
  out: {{type: sqlite, path: ./out.db}}
tables:
  invoices:
    from: inbox:*.csv
    to: out
    mode: append
    format: {{delimiter: ";", schema: {{number: int, total: "decimal(12,2)"}}}}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


@pytest.mark.parametrize("url", [pytest.param("local[2]", marks=pytest.mark.full), "sail"])
def test_a_wrong_file_stops_its_table_until_it_is_mended(flow: Flow, url: str) -> None:
    flow.write(FLOW.format(url=url))
    inbox = flow.folder / "inbox"
    inbox.mkdir()
    (inbox / "1.csv").write_text("number;total\n1;1.50\n2;\n")
    (inbox / "2.csv").write_text("number;total\n3;2.25\n4;many\n")
    failed = flow.apply(expect=4)
    assert "2.csv line 3: column total holds a value that is not exactly decimal(12,2)" in failed.words
    assert "many" not in failed.words

    (inbox / "2.csv").write_text("number;total\n3;2.25\n4;3.00\n")
    (step,) = flow.plan()["steps"]
    assert step["action"] in ("create", "change") and "is given up" in step["notes"][0]
    flow.apply()
    assert _rows(flow.folder) == [(1, "1.50"), (2, None), (3, "2.25"), (4, "3.00")]

    (inbox / "3.csv").write_text("number;total\n5;1\n")
    flow.apply()
    flow.apply()
    assert _rows(flow.folder)[4:] == [(5, "1.00")]


@pytest.mark.parametrize("url", [pytest.param("local[2]", marks=pytest.mark.full), "sail"])
@pytest.mark.parametrize("form", ["csv", pytest.param("parquet", marks=pytest.mark.full)])
@pytest.mark.full
def test_files_with_other_columns_come_together_as_one_by_one(flow: Flow, url: str, form: str) -> None:
    """Also where the last of them come in one run: one column is new, the others stand in another order."""
    flow.write(MERGED.format(url=url).partition("  rows:")[0] + f'  rows: {{from: "inbox:*.{form}"}}\n')
    inbox = flow.folder / "inbox"
    days: list[dict[str, str]] = [
        {"id": "1", "price": "10"},
        {"price": "20", "note": "new", "id": "2"},
        {"id": "3", "price": "30"},
        {"note": "last", "id": "4", "price": "40"},
    ]
    whole = [("1", "10", None), ("2", "20", "new"), ("3", "30", None), ("4", "40", "last")]
    for batches in ([[0, 1, 2, 3]], [[0], [1, 2, 3]], [[0], [1], [2], [3]]):
        for file in (flow.folder / "out.db", *inbox.glob("*")):
            file.unlink(missing_ok=True)
        shutil.rmtree(flow.folder / "state", ignore_errors=True)
        inbox.mkdir(exist_ok=True)
        for batch in batches:
            for day in batch:
                if form == "csv":
                    lines = (",".join(days[day]), ",".join(days[day].values()))
                    (inbox / f"{day}.csv").write_text("".join(f"{line}\n" for line in lines))
                else:
                    pq.write_table(pa.Table.from_pylist([days[day]]), inbox / f"{day}.parquet")
            flow.apply()
        assert sqlite_rows(flow.folder / "out.db", "SELECT id, price, note FROM rows") == whole


BAD_ROWS = """\
version: 1
flow: invoices
state: ./state
spark: {{url: "{url}"}}
connections:
  inbox: {{type: files, path: ./inbox}}
  out: {{type: sqlite, path: ./out.db}}
tables:
  invoices:
    from: inbox:**/*.{form}
    to: out
    {mode}
    format: {{schema: {{id: int, total: "decimal(12,2)"}}, partitions: {{day: date}}, source_file: true{on_fail}}}
    guard: {{max_quarantined: 60%}}
"""
KEPT = "SELECT CAST(_line AS INT), _raw, day, _source_file, _seq, _reason FROM invoices__quarantine"


def _fill(inbox: Path, form: str, day: int, lines: list[str]) -> None:
    folder = inbox / f"day=2026-11-0{day}"
    folder.mkdir(parents=True, exist_ok=True)
    header = "id,total\n" if form == "csv" else ""
    (folder / f"1.{form}").write_text(header + "".join(f"{line}\n" for line in lines))


#: By format: the lines of two days, with those that are bad.
DAYS = {
    "csv": (["1,1.50", "x,2", '2,"2"', "3,1,1"], ["4,4.00", "5,5.001"]),
    "jsonl": (
        ['{"id": 1, "total": 1.50}', '{"id": "x"}', '{"id": 2, "total": "2"}', "{"],
        ['{"id": 4, "total": 4}', "[]"],
    ),
}


@pytest.mark.parametrize(
    ("url", "form", "mode", "point"),
    [
        pytest.param("sail", "csv", "mode: append", "before_commit", marks=pytest.mark.full),
        *(
            pytest.param("sail", form, mode, point, marks=pytest.mark.full)
            for form, point in (("csv", "after_quarantine"), ("csv", "before_record"), ("jsonl", "before_commit"))
            for mode in (
                "mode: append",
                "mode: truncate",
                "{mode: merge, key: [id]}",
                "{mode: scd2, key: [id], scd2: {valid_from: now}}",
            )
        ),
        pytest.param("local[2]", "csv", "mode: append", "after_quarantine", marks=pytest.mark.full),
        pytest.param("local[2]", "jsonl", "{mode: merge, key: [id]}", "before_commit", marks=pytest.mark.full),
    ],
)
def test_bad_rows_are_kept_once(flow: Flow, url: str, form: str, mode: str, point: str) -> None:
    """Also if the run is killed and repeated, and if the row is only let go after it has stopped the table."""
    given = {"url": url, "form": form, "mode": (mode[1:-1] if mode[0] == "{" else mode).replace(", ", "\n    ")}
    flow.write(BAD_ROWS.format(**given, on_fail=""))
    days = DAYS[form]
    bad_line = 3 if form == "csv" else 2
    _fill(flow.folder / "inbox", form, 1, days[0])
    assert f"day=2026-11-01/1.{form} line {bad_line}: column id holds" in flow.apply(expect=4).words

    flow.write(BAD_ROWS.format(**given, on_fail=", on_fail: quarantine"))
    assert flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None).code == -9
    flow.apply()
    _fill(flow.folder / "inbox", form, 2, days[1])
    assert flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None).code == -9
    done = flow.apply("--format", "json").json()
    (rows,) = [table["rows"] for table in done["tables"]]
    if point != "before_record":  # after that, the commit is only recorded
        assert rows["quarantined"] == (3 if "truncate" in mode else 1)
    assert flow.actions() == {"invoices": "none"}

    is_current = " WHERE is_current" if "scd2" in mode else ""
    found = sqlite_rows(flow.folder / "out.db", f"SELECT id, total, day FROM invoices{is_current}")
    assert found == [(1, "1.50", "2026-11-01"), (2, "2.00", "2026-11-01"), (4, "4.00", "2026-11-02")]
    kept = sqlite_rows(flow.folder / "out.db", KEPT)
    assert [row[:4] for row in kept] == sorted(
        (at + (form == "csv"), line, f"2026-11-0{day}", f"day=2026-11-0{day}/1.{form}")
        for day, lines, bad in ((1, days[0], (2, 4)), (2, days[1], (2,)))
        for at, line in enumerate(lines, 1)
        if at in bad
    )
    assert all(reason for *_, reason in kept)

    _fill(flow.folder / "inbox", form, 3, days[0][-1:] * 4)
    refused = flow.apply(expect=6)
    assert "guard.max_quarantined 60%" in refused.words
    assert sqlite_rows(flow.folder / "out.db", KEPT) == kept


MASKED = """\
version: 1
flow: people
state: ./state
spark: {url: sail}
connections:
  inbox: {type: files, path: ./inbox}
  out: {type: sqlite, path: ./out.db}
tables:
  people: {from: "inbox:*.csv", to: out, mode: append, columns: {mask: {email: sha256}}}
"""


@pytest.mark.full
def test_a_new_column_that_is_no_masked_one_is_taken_once_somebody_says_so(flow: Flow) -> None:
    """And only the one that was there then."""
    flow.write(MASKED)
    inbox = flow.folder / "inbox"
    inbox.mkdir()
    (inbox / "1.csv").write_text("id,email\n1,a@b\n")
    flow.apply()
    (inbox / "2.csv").write_text("id,note\n2,hello\n")
    (step,) = flow.plan(expect=6)["steps"]
    assert step["action"] == "stop" and "state set flow.yaml people --accept-definition" in step["hint"]
    told = flow.run("state", "set", "flow.yaml", "people", "--accept-definition", "--yes", expect=0)
    assert "(new: note)" in told.words
    (inbox / "3.csv").write_text("id,e_mail\n3,c@d\n")
    (step,) = flow.plan(expect=6)["steps"]
    assert step["action"] == "stop" and step["reason"].endswith('lack "email", and only those have "e_mail"')
    (inbox / "3.csv").write_text("id,note\n3,again\n")
    flow.apply()
    flow.apply()
    rows = sqlite_rows(flow.folder / "out.db", "SELECT id, email IS NULL, note FROM people ORDER BY id")
    assert rows == [("1", 0, None), ("2", 1, "hello"), ("3", 1, "again")]


def _rows(folder: Path) -> list[tuple[object, ...]]:
    return sqlite_rows(folder / "out.db", "SELECT number, total FROM invoices")


def test_a_file_that_is_still_being_written_is_read_when_it_is_whole(flow: Flow) -> None:
    flow.write(FLOW.format(url="sail"))
    inbox = flow.folder / "inbox"
    inbox.mkdir()
    with (inbox / "1.csv").open("w") as file:
        file.write("number;total\n")
        file.flush()
        run = flow.start("apply", "flow.yaml")
        number = 0
        while run.poll() is None:
            number += 1
            file.write(f"{number};{number}.25\n")
            file.flush()
            time.sleep(0.01)
    out, err = run.communicate()
    assert (run.returncode, "gone or were changed since" in out + err) == (4, True), out + err
    flow.apply()
    assert _rows(flow.folder) == sorted(((n, f"{n}.25") for n in range(1, number + 1)), key=repr)
    assert flow.actions() == {"invoices": "none"}


MERGED = """\
version: 1
flow: prices
state: ./state
spark: {{url: "{url}"}}
connections:
  inbox: {{type: files, path: ./inbox}}
  out: {{type: sqlite, path: ./out.db}}
defaults: {{to: out, mode: merge, key: [id]}}
tables:
  rows: {{from: "inbox:*.csv"}}
  history: {{from: "inbox:*.csv", mode: scd2, scd2: {{valid_from: day}}, format: {{schema: {{day: date}}}}}}
  columns: {{from: "inbox:*.parquet"}}
"""


@pytest.mark.parametrize("url", [pytest.param("local[2]", marks=pytest.mark.full), "sail"])
def test_of_rows_with_one_key_the_last_counts(flow: Flow, url: str) -> None:
    flow.write(MERGED.format(url=url))
    inbox = flow.folder / "inbox"
    inbox.mkdir()
    for id in range(1, 9):
        (inbox / f"b{id}.csv").write_text(f"id,day,price\n{id},2026-01-01,{id + 10}\n{id},2026-01-01,{id + 20}\n")
        (inbox / f"a{id}.csv").write_text(f"id,day,price\n{id},2026-01-01,{id}\n")
    pq.write_table(pa.table({"id": [1, 2, 1], "price": [7, 8, 9]}), inbox / "c.parquet")
    how = {step["id"]: step["how"] for step in flow.plan()["steps"]}
    flow.apply()
    latest = [(str(id), str(id + 20)) for id in range(1, 9)]
    for table in ("rows", "history", "columns"):
        assert "of rows with the same key the last one wins, by path and position in the file" in how[table]
    for table in ("rows", "history"):
        assert sqlite_rows(flow.folder / "out.db", f"SELECT id, price FROM {table}") == latest
    assert sqlite_rows(flow.folder / "out.db", "SELECT id, price FROM columns") == [(1, 9), (2, 8)]
