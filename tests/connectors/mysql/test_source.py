"""MySQL as a source: one moment, databases, views and patterns; what was described is what is read."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from flowctl.connectors.mysql.client import client
from flowctl.connectors.source import ReadRequest, Relation
from flowctl.errors import AccessDenied, FlowctlError, StoppedByPolicy, TableError, TransientError
from flowctl.model.table_info import ObjectName
from flowctl.resolve.expand import is_excluded
from flowctl.spec.spec import ReadHints
from tests.connectors.mysql.conftest import Script
from tests.connectors.reading import Collected, captured_rows, describe, opened, table
from tests.services import mariadb
from tests.services.processes import HOST


def numbers(count: int, text: str = "x") -> str:
    return f"CREATE TABLE t (i INT PRIMARY KEY, s TEXT) SELECT seq AS i, '{text}' AS s FROM seq_1_to_{count}"


def test_all_batches_are_of_one_moment(script: Script, source: Any) -> None:
    script(numbers(120_000))
    info = describe(source, table("t"))
    assert info.primary_key == ("i",) and info.rows.method == "stats"
    first, second = Collected(), Collected()
    with source.capture(table("t"), info) as capture:
        script("DELETE FROM t WHERE i > 10; INSERT INTO t VALUES (-1, 'y'); UPDATE t SET s = 'z'")
        assert capture.read(ReadRequest(info.columns), first) == 120_000
        script("DELETE FROM t")
        assert capture.read(ReadRequest(info.columns), second) == 120_000
    assert first.batches >= 3 and first.rows == second.rows
    assert {row["s"] for row in first.rows} == {"x"}
    assert sorted(row["i"] for row in first.rows) == list(range(1, 120_001))


def test_rows_of_any_size(script: Script, source: Any) -> None:
    """Every form of a length, rows of several packets, and the smallest between them."""
    sizes = [0, 1, 250, 251, 252, 253, 254, 255, 256, 8_187, 8_188, 8_192, 65_535, 65_536, 9 << 20]
    values = ", ".join(f"({at}, REPEAT('é', {size} / 2), REPEAT('y', {size}), NULL)" for at, size in enumerate(sizes))
    script(f"CREATE TABLE t (i INT PRIMARY KEY, a LONGTEXT, b LONGBLOB, c INT); INSERT INTO t VALUES {values}")
    script("INSERT INTO t SELECT i + 100, a, b, i FROM t WHERE i < 9")
    found = {row["i"]: (row["a"], row["b"], row["c"]) for row in captured_rows(source, table("t"))}
    wanted = {at: ("é" * ((size + 1) // 2), b"y" * size, None) for at, size in enumerate(sizes)}
    wanted |= {at + 100: (*wanted[at][:2], at) for at in range(9)}
    assert found.keys() == wanted.keys() and [at for at in wanted if found[at] != wanted[at]] == []


def test_databases_views_and_patterns(script: Script, source: Any, mariadb_server: mariadb.Server) -> None:
    with mariadb.database(mariadb_server, "sa les") as url:
        other = url.rpartition("/")[2]
        script(
            f"""
            CREATE TABLE Orders (id INT, place VARCHAR(9), PRIMARY KEY (place, id)); CREATE TABLE orders (id INT);
            CREATE TABLE `{other}`.lines (id INT); CREATE TABLE _flowctl_commits (id INT);
            CREATE TEMPORARY TABLE passing (id INT); CREATE VIEW seen AS SELECT * FROM orders
            """
        )
        assert source.discover(("*",)) == [ObjectName(("Orders",)), ObjectName(("orders",))]
        assert source.discover((other, "l?nes")) == [ObjectName((other, "lines"))]
        assert source.discover(("o*",)) == [ObjectName(("orders",))]
        assert [str(view) for view in source.views()] == ["seen"]
        assert describe(source, table("Orders")).primary_key == ("place", "id")
        infos = source.describe([table("ORDERS"), table(other, "lines"), table("seen"), table("none", "t")])
        assert [info is not None for info in infos.values()] == [False, True, True, False]
        assert describe(source, table(other, "lines")).system != describe(source, table("orders")).system
        missing = source.why_missing(table("ordres"))
        assert "has no table ordres" in missing.reason and "orders" in missing.hint


def test_a_view_is_known_by_its_query(script: Script, source: Any, mysql_database: str) -> None:
    """Only a user who may see the query knows it."""

    def view(query: str) -> str:
        script(f"CREATE OR REPLACE VIEW seen AS {query}")
        found: str = describe(source, table("seen")).view
        return found

    script("CREATE TABLE t (id INT)")
    assert view("SELECT id FROM t") == view("SELECT  id  FROM t") != view("SELECT id + 1 AS id FROM t")
    assert describe(source, table("t")).view == ""
    place, _, name = mysql_database.rpartition("@")[2].rpartition("/")
    script(f"CREATE USER reader_{name}@'%' IDENTIFIED BY 'r'; GRANT SELECT ON `{name}`.* TO reader_{name}@'%'")
    with opened("mysql", url=f"mysql://reader_{name}:r@{place}/{name}") as reader:
        assert describe(reader.source, table("seen")).view == ""
    script(f"DROP USER reader_{name}@'%'")


def test_two_tables_whose_names_differ_in_case(script: Script, source: Any) -> None:
    script("CREATE TABLE T (i INT PRIMARY KEY); CREATE TABLE t (j INT PRIMARY KEY, k INT UNIQUE NOT NULL)")
    script("INSERT INTO T VALUES (1); INSERT INTO t VALUES (2, 3)")
    assert source.discover(("*",)) == [ObjectName(("T",)), ObjectName(("t",))]
    found = source.describe([table("T"), table("t")])
    assert {str(one.object): info and info.primary_key for one, info in found.items()} == {"T": ("i",), "t": ("j",)}
    details = source.details([ObjectName(("t",)), ObjectName(("T",))])
    found_keys = {one: [index.columns for index in of.indexes] for one, of in details.items()}
    assert found_keys == {ObjectName(("t",)): [("k",), ("j",)], ObjectName(("T",)): [("i",)]}
    assert captured_rows(source, table("T")) == [{"i": 1}]
    assert captured_rows(source, table("t")) == [{"j": 2, "k": 3}]


@pytest.mark.full
def test_a_server_that_ignores_the_case_of_tables() -> None:
    """lower_case_table_names = 1 stores every name in lower case, and finds it in any."""
    from tests.e2e.flows import mysql_rows

    with (
        mariadb.created({"lower-case-table-names": "1"}) as server,
        server.started({"lower-case-table-names": "1"}) as url,
        opened("mysql", url=url) as connector,
    ):
        mysql_rows(url, "CREATE TABLE Orders (ID INT PRIMARY KEY); INSERT INTO Orders VALUES (7)")
        source: Any = connector.source
        assert connector.target is not None
        assert source.discover(("ORD*",)) == [ObjectName(("orders",))]
        assert is_excluded(ObjectName(("orders",)), ["ORD*"], source.fold)
        upper, lower = describe(source, table("ORDERS")), describe(source, table("orders"))
        assert (upper.identity, upper.columns) == (lower.identity, lower.columns)
        assert captured_rows(source, table("FLOWCTL", "oRDERS")) == [{"ID": 7}]
        places = connector.target.places([ObjectName(("Orders",)), ObjectName(("flowctl", "orders"))])
        assert len(set(places.values())) == 1


@pytest.mark.full
def test_where_may_quote_names_in_both_ways(script: Script, source: Any) -> None:
    script('CREATE TABLE t (`a "b` INT, c INT); INSERT INTO t VALUES (1, 1), (2, 2)')
    for where in ('"c" > 1', "`c` > 1 -- all", '`a "b` IN (2)'):
        assert [row["c"] for row in captured_rows(source, table("t", where=where))] == [2]
    assert captured_rows(source, Relation(None, "SELECT c + 1 AS d FROM t; ", "d > 2")) == [{"d": 3}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE t MODIFY s INT", "column s of t was altered since the plan was made"),
        ("ALTER TABLE t DROP COLUMN s", "t has no column s any more"),
        ("DROP TABLE t", "t was dropped since the plan was made"),
    ],
)
def test_what_changed_since_the_plan_stops(script: Script, source: Any, change: str, message: str) -> None:
    script("CREATE TABLE t (i INT, s VARCHAR(9))")
    info = describe(source, table("t"))
    script(change)
    with pytest.raises(StoppedByPolicy, match=message), source.capture(table("t"), info) as capture:
        capture.read(ReadRequest(info.columns), Collected())


@pytest.mark.full
def test_nobody_alters_what_is_read(script: Script, source: Any) -> None:
    """With its values, an ALTER may change what rows of an older snapshot show."""
    script("CREATE TABLE t (i INT, s VARCHAR(9)); INSERT INTO t VALUES (1, 'x')")
    info, sink = describe(source, table("t")), Collected()
    with source.capture(table("t"), info) as capture:
        with pytest.raises(pymysql.err.OperationalError, match="Lock wait timeout"):
            script("SET lock_wait_timeout = 1; ALTER TABLE t DROP COLUMN s")
        assert capture.read(ReadRequest(info.columns), sink) == 1
    assert sink.rows == [{"i": 1, "s": "x"}]
    script("SET lock_wait_timeout = 1; ALTER TABLE t DROP COLUMN s")


@pytest.mark.full
def test_a_table_without_snapshots_is_read_once_only(script: Script, source: Any) -> None:
    script("CREATE TABLE t (i INT) ENGINE = MyISAM; INSERT INTO t VALUES (1)")
    info = describe(source, table("t"))
    assert captured_rows(source, table("t")) == [{"i": 1}]
    assert source.refuse_read(info, ReadHints(), reads_twice=False) is None
    refused = source.refuse_read(info, ReadHints(), reads_twice=True)
    assert refused is not None and "MyISAM" in refused.message and "ENGINE = InnoDB" in refused.hint


def test_an_invalid_view_is_refused_in_the_servers_words(script: Script, source: Any) -> None:
    script("CREATE TABLE gone (i INT); CREATE TABLE t (i INT)")
    script("CREATE VIEW broken AS SELECT * FROM gone; CREATE VIEW valid AS SELECT * FROM t; DROP TABLE gone")
    refused = source.refuse_read(describe(source, table("broken")), ReadHints(), reads_twice=False)
    assert refused is not None and "broken is an invalid view: View '" in refused.message
    assert "references invalid table(s)" in refused.message and refused.hint.startswith("Repair the view")
    assert source.refuse_read(describe(source, table("valid")), ReadHints(), reads_twice=False) is None
    with pytest.raises(TableError, match="references invalid") as met:  # it became invalid after the plan
        captured_rows(source, table("broken"))
    assert met.value.hint.startswith("Repair the view")


def test_a_lost_connection_is_worth_another_try(script: Script, source: Any, mysql_database: str) -> None:
    script(numbers(200_000, "x" * 200))  # more than the sockets hold
    info = describe(source, table("t"))

    class Killing(Collected):
        def write(self, batch: Any) -> None:
            if not self.batches:
                running = (
                    "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND ID <> CONNECTION_ID()"
                )
                for (thread,) in script(running):
                    script(f"KILL {thread}")
            super().write(batch)

    with pytest.raises(TransientError) as error, source.capture(table("t"), info) as capture:
        capture.read(ReadRequest(info.columns), Killing())
    assert mysql_database.partition("@")[2] in error.value.message


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"password": "wr0ng-pw"}, AccessDenied, "Access denied"),
        ({"database": "no_such"}, AccessDenied, "no_such"),
        ({"port": 1}, TransientError, "Can't connect"),
        ({"sslmode": "verify-full"}, AccessDenied, "does not offer TLS"),
        ({"sslmode": "sometimes"}, TableError, "there is no sslmode sometimes"),
        ({"options": {"ssl_ca": "/no/such/file", "sslmode": "verify-ca"}}, TableError, "cannot be read"),
        ({"options": {"compress": "1"}}, TableError, "there is no option compress"),
    ],
)
@pytest.mark.full
def test_a_connection_that_is_refused(
    mariadb_server: mariadb.Server, options: dict[str, Any], kind: type[FlowctlError], message: str
) -> None:
    given = {"host": HOST, "port": mariadb_server.port, "user": mariadb.USER, "password": mariadb.PASSWORD}
    with pytest.raises(kind, match=message) as error, client({**given, "database": "flowctl", **options}).connect():
        pass
    assert "wr0ng-pw" not in str(error.value) and error.value.hint


@pytest.mark.full
def test_every_way_of_tls(tmp_path: Path) -> None:
    """Encrypted wherever the server can, verified where it is asked for."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=IP:{HOST}", "-days", "2", "-nodes"]
    files = ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", *subject, *files], check=True, capture_output=True
    )

    def cipher(mode: str, **given: str) -> str:
        options = {"host": HOST, "port": made.port, "user": mariadb.USER, "password": mariadb.PASSWORD}
        opened = client({**options, "database": "flowctl", "sslmode": mode, "options": given})
        with opened.connect() as first, opened.connect() as second:
            found = [dict(one.fetch("SHOW STATUS LIKE 'Ssl_cipher'"))["Ssl_cipher"] for one in (first, second)]
            batches = [*first.stream("SELECT seq FROM seq_1_to_5000", 1_000)]
        assert found[0] == found[1] and [len(column) for (column,) in batches] == [1_000] * 5
        return str(found[0])

    with mariadb.created() as made:
        for file in (cert, key):
            shutil.copy(file, made.folder)
            (made.folder / file.name).chmod(0o644)
        own = {f"ssl-{file.stem}": str(made.folder / file.name) for file in (cert, key)}
        with made.started(own):
            assert cipher("disable") == ""
            assert all((cipher("prefer"), cipher("require"), cipher("verify-full", ssl_ca=str(cert))))
            with pytest.raises(FlowctlError, match="certificate verify failed"):
                cipher("verify-ca")


def test_a_url_with_every_part() -> None:
    made = client({"url": "mariadb://a%40b:p%2Fw@[::1]:3307/sh%20op?ssl-mode=VERIFY_CA&ssl-ca=ca.pem"})
    assert (made.host, made.port, made.user, made.password) == ("::1", 3307, "a@b", "p/w")
    assert (made.database, made.sslmode, made.tls) == ("sh op", "verify-ca", {"ssl_ca": "ca.pem"})
    assert "p/w" not in repr(made)


def test_sessions_do_not_depend_on_the_server(script: Script, mysql_database: str) -> None:
    """The test's server is lax, and not in UTC."""
    there = client({"url": mysql_database})
    with there.connect() as connection, closing(connection.driver.cursor()) as cursor:
        cursor.execute("SELECT @@sql_mode, @@time_zone, CURRENT_TIMESTAMP - UTC_TIMESTAMP, @@character_set_connection")
        mode, *others = cursor.fetchone() or ()
        modes = ["ANSI_QUOTES", "STRICT_ALL_TABLES", "NO_ENGINE_SUBSTITUTION", "NO_AUTO_VALUE_ON_ZERO"]
        assert sorted(mode.split(",")) == sorted(modes) and others == ["+00:00", 0, "utf8mb4"]
        with pytest.raises(pymysql.err.DataError):
            cursor.execute("SELECT CAST('x' AS INT) + 1 / 0 INTO @x; ")
            script("CREATE TABLE t (i TINYINT)")
            cursor.execute("INSERT INTO t VALUES (1000)")
