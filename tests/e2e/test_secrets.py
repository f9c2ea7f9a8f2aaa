"""No secret leaves: planted in every place that may hold one, looked for in everything that a user or a disk gets.

Every command runs as a process of its own, and while it does the process list is watched. What a run needs secrets for
(the environment of its own engine) is not searched.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from flowctl.engine.conf import is_sail
from flowctl.storage.options import hadoop_conf
from tests.e2e.flows import Done, Flow, sqlite_script
from tests.services import postgres, s3
from tests.services.s3 import S3Server

pytestmark = pytest.mark.server

#: Where each is planted, and what it is: characters that a URL, JSON, SQL or a shell would write in another way.
SECRETS = {
    "PASSWORD": "p1@nted/pw%25 'ü\"\\",
    "DATABASE": "p1anted db",
    "FOLDER": "p1anted=folder",
    "PREFIX": "p1anted-prefix",
    "ACCESS": "P1ANTEDACCESSKEY",
    "SECRET": "p1anted+secret/key==",
    "URL": "postgresql://etl:p1anted-s3cret/part@127.0.0.1:1/shop",
}
#: Of the malformed URL, what a library may quote.
PARTS = ("p1anted-s3cret",)
SPEC = """
version: 1
flow: shop
state: state
spark: {{url: "{spark}"}}
storage:
  "s3://{bucket}":
    endpoint: "{endpoint}"
    region: us-east-1
    access_key: "${{secret:env:ACCESS}}"
    secret_key: "${{secret:env:SECRET}}"
connections:
  src: {{type: sqlite, path: "${{secret:env:FOLDER}}/source.db"}}
  gone: {{type: sqlite, path: "${{secret:env:FOLDER}}/gone.db"}}
  pg: {{type: postgres, url: "postgresql://planted:${{secret:env:PASSWORD}}@127.0.0.1:{port}/${{secret:env:DATABASE}}"}}
  wrong:
    type: postgres
    host: 127.0.0.1
    port: {port}
    database: "${{secret:env:DATABASE}}"
    user: planted
    password: "${{secret:env:FOLDER}}"
  malformed: {{type: postgres, url: "${{secret:env:URL}}"}}
  lake: {{type: delta, path: "s3://{bucket}/${{secret:env:PREFIX}}"}}
  local: {{type: delta, path: "${{secret:env:FOLDER}}/lake"}}
  inbox: {{type: files, path: "${{secret:env:FOLDER}}"}}
tables:
  orders: {{from: src:orders, to: lake, mode: merge, key: [id]}}
  copy: {{from: src:orders, to: local, mode: truncate}}
  files: {{from: "inbox:*.csv", to: local, mode: append}}
  people: {{from: pg:public.people, to: local, mode: merge, key: [id]}}
  driver_says: {{from: pg:public.complains, to: local, mode: truncate}}
  missing: {{from: gone:orders, to: local, mode: truncate}}
  denied: {{from: wrong:public.people, to: local, mode: truncate}}
  unreadable: {{from: malformed:public.people, to: local, mode: truncate}}
"""
#: SQL tables are refused on Sail.
ON_SPARK = """\
  spark_says:
    from: {{sql: "SELECT id, raise_error(note) AS note FROM {{{{ ref('people') }}}}"}}
    to: local
    mode: truncate
    columns: {{types: {{id: int, note: string}}}}
"""
COMPLAINS = """
CREATE FUNCTION complain(secret text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'no login with %', secret; END $$;
CREATE TABLE people (id int PRIMARY KEY, note text);
CREATE VIEW complains AS SELECT id, complain(note) AS note FROM people;
GRANT SELECT ON people, complains TO planted;
"""


def forms(secret: str) -> set[str]:
    raw = secret.encode()
    written = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1]}
    written |= {
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(quote(secret, safe=""), safe=""),
    }
    inner = {base64.b64encode(b"\0" * before + raw).decode()[(4 if before else 0) : -4] for before in range(3)}
    return written | inner


FORMS = {form: name for name, secret in SECRETS.items() for form in forms(secret)} | dict.fromkeys(PARTS, "URL")
ANY = re.compile("|".join(map(re.escape, sorted(FORMS, key=len, reverse=True))))


def assert_clean(text: str, where: str) -> None:
    if found := ANY.search(text):
        around = text[max(0, found.start() - 300) : found.end() + 100]
        raise AssertionError(f"{where} has {FORMS[found[0]]}: …{around}…")


@dataclass
class Watched:
    """A flow whose every output is looked through, and the process list while it runs."""

    flow: Flow

    def run(self, *args: str, codes: tuple[int, ...] = (0,)) -> Done:
        process = self.flow.start(*args)
        seen: set[str] = set()
        watching = threading.Thread(target=_watch, args=(process, seen))
        watching.start()
        out, err = process.communicate(timeout=300)
        watching.join()
        for line in seen:
            assert_clean(line, f"the process list during {args}")
        assert process.returncode in codes, f"{args}: {process.returncode}\n{out}\n{err}"
        assert_clean(out, f"standard output of {args}")
        assert_clean(err, f"standard error of {args}")
        assert "defect" not in err + out, err + out
        return Done(process.returncode, out, err)


def _watch(process: subprocess.Popen[str], seen: set[str]) -> None:
    while process.poll() is None:
        seen.update(command_lines())
        time.sleep(0.05)


def command_lines() -> Iterator[str]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            # The server's own names users and databases; Hadoop starts `chmod` for each file on a local disk.
            if not line.startswith(("postgres: ", "chmod ")):
                yield line
        except OSError:  # it has ended meanwhile
            continue


@pytest.fixture
def s3_server() -> Iterator[S3Server]:
    """Lets the planted keys in, and no others where it checks them."""
    with s3.chosen(SECRETS["ACCESS"], SECRETS["SECRET"]) as server:
        yield server


@pytest.fixture
def watched(tmp_path: Path, postgres_server: str, s3_server: S3Server, s3_bucket: str, spark: str) -> Iterator[Watched]:
    import psycopg
    from psycopg import sql

    folder = tmp_path / SECRETS["FOLDER"]
    folder.mkdir()
    sqlite_script(folder / "source.db", "CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT);"
                                        "INSERT INTO orders VALUES (1, 'a'), (2, 'b');")  # fmt: skip
    (folder / "a.csv").write_text("id,note\n1,a\n")
    password = sql.Literal(SECRETS["PASSWORD"])
    with postgres.database(postgres_server, SECRETS["DATABASE"]) as made:
        url = made.replace(SECRETS["DATABASE"], quote(SECRETS["DATABASE"]))
        with psycopg.connect(postgres_server, autocommit=True) as admin:
            admin.execute(sql.SQL("CREATE ROLE planted LOGIN PASSWORD {}").format(password))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(COMPLAINS)
            connection.execute("INSERT INTO people VALUES (1, %s)", [SECRETS["PASSWORD"]])
        flow = Flow(tmp_path, dict(SECRETS))
        port = postgres_server.rpartition(":")[2].partition("/")[0]
        text = SPEC if is_sail(spark) else SPEC + ON_SPARK
        flow.write(text.format(spark=spark, bucket=s3_bucket, endpoint=s3_server.endpoint, port=port))
        yield Watched(flow)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP OWNED BY planted")
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute("DROP ROLE planted")


@pytest.mark.parametrize("spark", ["sail", pytest.param("local[2]", marks=pytest.mark.full)])
def test_no_secret_leaves(watched: Watched, s3_server: S3Server, s3_bucket: str, tmp_path: Path, spark: str) -> None:
    run = watched.run
    is_thorough = not is_sail(spark)  # each command takes a second or two
    if is_thorough:
        for chosen in ([], ["--format", "json"], ["--format", "github"]):
            run("validate", "flow.yaml", "--resolved", *chosen)
            run("validate", "flow.yaml", "--connect", *chosen, "--verbose", codes=(4,))
        run("plan", "flow.yaml", "--format", "json", "--log-format", "json", codes=(4,))
    run("plan", "flow.yaml", "--verbose", "--out", "plan.json", codes=(4,))
    done = run("apply", "flow.yaml", "--plan", "plan.json", "--verbose", codes=(4,))
    assert "no login with ***" in done.err, done.err  # PostgreSQL has said it, and it was hidden
    assert is_sail(spark) or re.search(r"spark_says: .*\*\*\*", done.err), done.err
    for table in ("orders", "copy", "files", "people"):
        assert f"{table}: committed sequence number 1" in done.err, done.err
    again = run("apply", "flow.yaml", "--format", "json", "--log-format", "json", codes=(4,))
    assert all("at" in json.loads(line) for line in again.err.splitlines()), again.err  # no engine's own lines
    run("runs", "flow.yaml", again.json()["id"], "--verbose")
    run("state", "show", "flow.yaml", "files", "--format", "json")
    if is_thorough:
        run("runs", "flow.yaml", "--format", "json")
        run("state", "show", "flow.yaml", "orders")
        run("state", "adopt", "flow.yaml", "copy", "--yes", "--verbose")
        run("state", "history", "flow.yaml")
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and SECRETS["FOLDER"] not in file.parts]
    assert {"plan.json", "flow.yaml"} < {file.name for file in kept} and any("runs" in file.parts for file in kept)
    for file in kept:
        assert_clean(str(file.relative_to(tmp_path)), "a file's name")
        assert_clean(file.read_bytes().decode(errors="replace"), str(file))
    logs = [*(tmp_path / SECRETS["FOLDER"]).rglob("_delta_log/*.json")]
    assert logs
    for log in logs:
        assert_clean(log.read_text(), str(log))
    client = s3_server.client()
    objects = client.list_objects_v2(Bucket=s3_bucket)["Contents"]
    for key in (one["Key"] for one in objects if one["Key"].endswith(".json")):
        assert_clean(client.get_object(Bucket=s3_bucket, Key=key)["Body"].read().decode(), key)


def test_spark_hides_the_settings_that_hold_credentials() -> None:
    """Its own rule for the UI, event logs and `SET`; source: Spark's configuration, spark.redaction.regex."""
    hidden = re.compile("(?i)secret|password|token|access[.]?key")
    storage = {"s3://b": {name: f"planted-{name}" for name in ("access_key", "secret_key", "session_token")}}
    for name, value in hadoop_conf("s3://b/x", storage).items():
        assert "planted" not in value or hidden.search(name), name
