"""URLs and paths of the command line as connections of a spec."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowctl.errors import UsageError
from flowctl.init.place import place_of


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("my shop.db")) as database:
        database.execute("CREATE TABLE t (id)")
        database.commit()
    (tmp_path / "some.txt").write_text("text")
    (tmp_path / "in").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("postgresql://etl@db/shop", "shop", {"url": "postgresql://etl@db/shop"}),
        ("postgres://db:5432/shop?sslmode=require", "shop", {"url": "postgres://db:5432/shop?sslmode=require"}),
        ("postgresql://etl@db", "postgres", {"url": "postgresql://etl@db"}),
        ("{type: postgres, host: db, database: shop}", "shop", {"host": "db", "database": "shop"}),
        ("my shop.db", "my_shop", {"path": "../my shop.db"}),
        ("sqlite:my shop.db", "my_shop", {"path": "../my shop.db"}),
        ("in", "in", {"path": "../in"}),
        ("files:s3://bucket/inbox/", "inbox", {"path": "s3://bucket/inbox/"}),
        ("s3://bucket", "bucket", {"path": "s3://bucket"}),
    ],
)
def test_sources(text: str, name: str, options: dict[str, Any]) -> None:
    """A relative path starts from the folder of the spec."""
    found = place_of(text, "source", Path("specs"))
    assert (found.name, dict(found.options), found.variables, found.given) == (name, options, (), "")


@pytest.mark.parametrize(
    ("text", "type"),
    [("lake", "delta"), ("in", "delta"), ("my shop.db", "sqlite"), ("s3://b/lake", "delta"), ("duckdb:x", "duckdb")],
)
def test_targets(text: str, type: str) -> None:
    assert place_of(text, "target", Path()).type == type


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("new.duckdb", "duckdb"),
        ("in/new.DDB", "duckdb"),
        ("new.sqlite", "sqlite"),
        ("new.sqlite3", "sqlite"),
        ("new.duckdb/", "delta"),
        ("new.v2", "delta"),
        ("folder.db", "delta"),
    ],
)
def test_a_database_file_that_is_not_there_yet(here: Path, text: str, type: str) -> None:
    """It became a folder of Delta tables."""
    (here / "folder.db").mkdir()
    assert place_of(text, "target", Path()).type == type


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("new.db", "new.db may be a file of ", "duckdb:new.db"),
        ("etl:planted@db/new.db", "the target may be a file of ", "duckdb:FILE"),
        ("some.txt", "some.txt is a file, but no database", "Give a folder for Delta tables"),
    ],
)
def test_a_target_that_may_be_several_things_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        place_of(text, "target", Path())
    assert "planted" not in f"{error.value} {error.value.hint}"
    assert hint in error.value.hint and error.value.hint.startswith(("Write", "Give"))


def test_two_connections_have_two_names() -> None:
    assert place_of("sqlite:shop.db", "target", Path(), taken="SHOP").name == "shop_target"


@pytest.mark.parametrize(
    ("text", "options", "variables"),
    [
        (
            "postgresql://etl:pl%40nted@db/my-shop",
            {"url": "postgresql://etl:${secret:env:MY_SHOP_PASSWORD}@db/my-shop"},
            ("MY_SHOP_PASSWORD",),
        ),
        (
            "postgresql://etl:planted@db/shop?sslpassword=planted2",
            {"url": "postgresql://etl:${secret:env:SHOP_PASSWORD}@db/shop?sslpassword=${secret:env:SHOP_PASSWORD_2}"},
            ("SHOP_PASSWORD", "SHOP_PASSWORD_2"),
        ),
        (
            "{type: postgres, host: db, database: shop, password: planted}",
            {"host": "db", "database": "shop", "password": "${secret:env:SHOP_PASSWORD}"},
            ("SHOP_PASSWORD",),
        ),
        (
            "postgresql://etl:${secret:env:MINE}@db/shop",
            {"url": "postgresql://etl:${secret:env:MINE}@db/shop"},
            (),
        ),
    ],
)
def test_a_password_becomes_a_reference(text: str, options: dict[str, Any], variables: tuple[str, ...]) -> None:
    found = place_of(text, "source", Path())
    assert (dict(found.options), found.variables) == (options, variables)
    assert found.given == (text if variables else "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing.db", "there is no such file or folder"),
        ("postgresql:etl:planted@db", "the source: there is no such file or folder"),
        ("postgres//etl:planted@db/shop", "the source: there is no such file or folder"),
        ("some.txt", "some.txt is not a database file"),
        ("oracle://etl:planted@db/shop", "no connection type has URLs with oracle://"),
        ("kafka:b1:9092", "`init` does not describe connections of type kafka"),
        (" ", "it is empty"),
    ],
)
def test_what_is_no_source(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        place_of(text, "source", Path())
    assert said in refused.value.message
    assert "planted" not in refused.value.describe()
