"""URLs that are secrets and cannot be read: an error with its place, and no part of the value anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.cli.main import run
from flowctl.connectors.postgres.client import client
from flowctl.errors import FlowctlError
from flowctl.spec import urls

#: Each with what its error must name; `s3cret` marks what may be a part of a password.
MALFORMED = {
    "postgresql://etl:s3cretpart/x@db:5432/shop": "the password contains one of",
    "postgresql://etl:s3cret?part@db/shop": "the password contains one of",
    "postgresql://etl:s3cret#part@db/shop": "the password contains one of",
    "postgresql://etl:s3cret@part@db/shop": "more than one @",
    "postgresql://etl:pw@db:s3cret/shop": "the port is not a number",
    "postgresql://etl:pw@db:543299/shop": "the port is not a number",
    "postgresql://etl:pw@db:5432:s3cret/shop": "the port is not a number",
    "postgresql://etl:s3cret%zz@db/shop": "not followed by two hexadecimal digits",
    "postgresql://etl:s3cret%@db/shop": "not followed by two hexadecimal digits",
    "postgresql://etl:s3cret part@db/shop": "white space",
    "postgresql://etl:pw@[s3cret/shop": "brackets",
    "postgresql://etl:pw@s3cret[1]/shop": "host names cannot have",
    "etl:s3cret@db:5432/shop": "no :// in it",
    "host=db password=s3cret": "no :// in it",
    "mysql://etl:s3cret@db/shop": "not a PostgreSQL URL",
    "postgresql://etl:pw@db/shop?s3cret=1": "not a PostgreSQL URL",
    "postgresql://etl:pw@/shop?host=db&port=s3cret": "port is not a number",
    "postgresql://etl:pw@a,b:5432/shop": "one host",
}
SPEC = """\
version: 1
flow: shop
state: state
connections:
  db: {type: postgres, url: "${secret:env:URL}"}
  app: {type: sqlite, path: app.db}
tables:
  orders: {from: db:public.orders, to: app, mode: truncate}
"""


@pytest.mark.parametrize("url", MALFORMED)
def test_a_url_that_cannot_be_read(url: str) -> None:
    with pytest.raises(FlowctlError, match=MALFORMED[url]) as caught:
        client({"url": url})
    assert "s3cret" not in caught.value.describe() and caught.value.hint
    assert caught.value.__cause__ is None and (caught.value.__context__ is None or caught.value.__suppress_context__)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://etl:p%40ss%2F@db:5432/shop?application_name=a%20b",
        "postgresql://etl@db/shop?user=etl@server&password=x",
        "postgresql://[::1]:5433/shop",
        "postgresql:///shop",
    ],
)
def test_urls_that_can_be_read(url: str) -> None:
    assert client({"url": url}).database == "shop"


@pytest.mark.parametrize("port", ["s3cret", "", "123456", "5432,5433"])
def test_a_port_that_is_a_secret(port: str) -> None:
    with pytest.raises(FlowctlError, match="port is not a number") as caught:
        client({"host": "db", "database": "shop", "options": {"port": port}})
    assert "s3cret" not in caught.value.describe()


@pytest.mark.parametrize(
    ("url", "flaw"),
    [
        ("sc://host:abc", "port"),
        ("sc://", "no host"),
        ("sc://host:15002/path", "only /;name=value"),
        ("sc://[::1", "brackets"),
        ("spark://a:7077,b:x", "port"),
        ("k8s://https://host:x", "port"),
        ("sc://host:15002/;use_ssl=true;user_id=a", ""),
        ("sc://[::1]:15002", ""),
        ("spark://a:7077,b:7077", ""),
        ("k8s://https://host:6443", ""),
        ("local[*]", ""),
        ("yarn", ""),
        ("sail", ""),
    ],
)
def test_where_spark_is(url: str, flaw: str) -> None:
    found = urls.flaw_of_spark(url)
    assert flaw in found if flaw else found == ""


@pytest.mark.parametrize("args", [["plan"], ["plan", "--format", "json"], ["validate", "--connect"], ["apply"]])
@pytest.mark.parametrize("url", [next(iter(MALFORMED)), "host=db password=s3cret"])
def test_every_command_names_the_place(
    args: list[str], url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("URL", url)
    Path("flow.yaml").write_text(SPEC)
    assert run([args[0], "flow.yaml", "--verbose", *args[1:]]) == 4
    shown = "".join(capsys.readouterr())
    assert "s3cret" not in shown and "defect" not in shown
    assert "cannot be read" in shown and ("flow.yaml:5" in shown or '"line": 5' in shown), shown
