"""Where connections come from: the first of --connection, FLOWCTL_CONN_NAME, the spec and the user's file applies."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.errors import SpecError
from flowctl.spec.load import load_spec
from flowctl.spec.lookup import variable_of
from flowctl.spec.spec import Spec

SPEC = """\
version: 1
flow: shop
state: state
vars: {env: dev}
connections:
  lake: {type: delta, path: lake}
  listed: {type: sqlite, path: spec.db}
defaults: {to: lake, mode: truncate}
tables:
  a: {from: app:a}
  b: {from: {connection: listed, table: b}}
"""
USER_FILE = """\
connections:
  # shared by all flows
  app: {type: sqlite, path: "user-{{ vars.env }}.db"}
  listed: {type: sqlite, path: user.db}
  unused: {type: nonsense}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.delenv("FLOWCTL_CONNECTIONS", raising=False)
    Path("flow.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def write_user_file(path: str, text: str = USER_FILE) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def load(**options: str) -> Spec:
    return load_spec(["flow.yaml"], {}, options)


def found(spec: Spec, name: str) -> tuple[str, str, str]:
    connection = spec.connections[name]
    return connection.origin, connection.mark.brief, str(connection.options["path"])


def errors(**options: str) -> list[str]:
    with pytest.raises(SpecError) as raised:
        load(**options)
    return [one.render() for one in raised.value.diagnostics]


def test_the_first_place_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file("home/.config/flowctl/connections.yaml")
    user_file = "~/.config/flowctl/connections.yaml"
    spec = load()
    assert found(spec, "app") == ("user_file", f"{user_file}:3", "user-dev.db")
    assert found(spec, "listed") == ("spec", "flow.yaml:7", "spec.db")
    monkeypatch.setenv("FLOWCTL_CONN_APP", "sqlite:variable-{{ vars.env }}.db")
    monkeypatch.setenv("FLOWCTL_CONN_LISTED", "sqlite:variable.db")
    spec = load()
    assert found(spec, "app") == ("variable", "FLOWCTL_CONN_APP", "variable-{{ vars.env }}.db")
    assert found(spec, "listed") == ("variable", "FLOWCTL_CONN_LISTED", "variable.db")
    spec = load(app="sqlite:option.db")
    assert found(spec, "app") == ("option", "--connection app=…", "option.db")
    assert found(spec, "listed")[0] == "variable"


def test_only_connections_that_the_spec_lists_or_uses_belong_to_it() -> None:
    write_user_file("home/.config/flowctl/connections.yaml")
    assert list(load().connections) == ["lake", "listed", "app"]


def test_a_definition_replaces_another_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWCTL_CONN_LISTED", "{type: postgres, host: db, database: shop}")
    connection = load(app="sqlite:a.db").connections["listed"]
    assert (connection.type, connection.options) == ("postgres", {"host": "db", "database": "shop"})


@pytest.mark.parametrize("tables", [
    "  t: {from: {sql: 'SELECT 1 AS one'}, to: {connection: app, table: t}}\n",
    "  t: {from: listed:t, to: {connection: app, table: t}}\ndefaults: {mode: truncate}\n",
    "  t: {from: listed:t}\ndefaults: {to: app, mode: truncate}\n",
    "  t: {from: '{{ vars.source }}:t', to: lake}\nvars: {source: app}\n",
    "  t: {from: cdc:public.t, to: lake, mode: merge}\nstreams: {cdc: {from: app}}\n",
    "  t: {from: cdc:public.t, to: lake, mode: merge}\n"
    "streams: {cdc: {from: listed, snapshot: {mode: initial, from: app}}}\n",
    "  t: {from: {connection: bus, topic: t}, to: lake, mode: append, dead_letters: {to: 'app:l'}}\n",
])  # fmt: skip
def test_all_that_names_a_connection_is_looked_at(tables: str) -> None:
    head = SPEC.partition("defaults:")[0].replace("vars: {env: dev}\n", "")
    Path("flow.yaml").write_text(f"{head}tables:\n{tables}", encoding="utf-8")
    unknown = "there is no connection `app`"
    assert any(unknown in one for one in errors(listed="postgresql://db/two"))
    assert not any(unknown in one for one in maybe_errors(app="postgresql://db/shop", listed="postgresql://db/two"))


def maybe_errors(**options: str) -> list[str]:
    try:
        load(**options)
    except SpecError as error:
        return [one.render() for one in error.diagnostics]
    return []


def test_a_spec_may_list_none(monkeypatch: pytest.MonkeyPatch) -> None:
    head, _, tables = SPEC.partition("connections:")
    Path("flow.yaml").write_text(head + "defaults:" + tables.partition("defaults:")[2], encoding="utf-8")
    monkeypatch.setenv("FLOWCTL_CONN_LAKE", "delta:lake")
    assert sorted(load(app="sqlite:a.db", listed="sqlite:b.db").connections) == ["app", "lake", "listed"]


def test_a_stream_is_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("flow.yaml").write_text(SPEC.replace("app:a", "cdc:public.a, mode: merge").replace("defaults",
                                 "streams: {cdc: {from: pg}}\ndefaults"))  # fmt: skip
    monkeypatch.setenv("FLOWCTL_CONN_CDC", "postgresql://db/shop")
    assert "cdc" not in load(pg="postgresql://db/shop").connections
    assert errors(pg="postgresql://db/shop", cdc="sqlite:x")[0].startswith("--connection cdc=…: error: ")


def test_names_of_variables() -> None:
    assert variable_of("app") == "FLOWCTL_CONN_APP"
    assert variable_of("my-db_2") == "FLOWCTL_CONN_MY_DB_2"


def test_two_connections_with_one_variable_are_an_error_only_if_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    two = SPEC.replace("  listed:", "  my-db: {type: sqlite, path: x}\n  my_db: {type: sqlite, path: x}\n  listed:")
    Path("flow.yaml").write_text(two, encoding="utf-8")
    assert load(app="sqlite:a.db").tables
    monkeypatch.setenv("FLOWCTL_CONN_MY_DB", "sqlite:y")
    (error,) = errors(app="sqlite:a.db")
    assert error.startswith("FLOWCTL_CONN_MY_DB: error: FLOWCTL_CONN_MY_DB means `my-db` and `my_db`. Rename ")


def test_places_of_the_users_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any("there is no connection `app`" in one for one in errors())
    write_user_file("config/flowctl/connections.yaml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")  # relative ones are ignored
    assert errors()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    assert found(load(), "app")[1] == f"{folder}/config/flowctl/connections.yaml:3"
    write_user_file("mine.yaml", "# none yet\n")
    monkeypatch.setenv("FLOWCTL_CONNECTIONS", "mine.yaml")
    assert any("there is no connection `app`" in one for one in errors())
    write_user_file("mine.yaml", "connections:\n")
    assert any("there is no connection `app`" in one for one in errors())
    write_user_file("mine.yaml")
    assert found(load(), "app")[1] == "mine.yaml:3"
    Path("mine.yaml").unlink()
    assert errors() == ["mine.yaml:1:1: error: cannot read mine.yaml: No such file or directory. "
                        "Check the path in FLOWCTL_CONNECTIONS"]  # fmt: skip


def test_the_users_file_is_read_only_if_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file("broken.yaml", "connections: [")
    monkeypatch.setenv("FLOWCTL_CONNECTIONS", "broken.yaml")
    assert load(app="sqlite:a.db").tables
    (error,) = errors()
    assert error.startswith("broken.yaml:2:1: error: ")


@pytest.mark.parametrize("text", ["[a]", "app", "connections: [a]", "connections: {app: {type: sqlite}}\ntables: {}"])
def test_a_users_file_of_another_form_is_the_only_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    write_user_file("mine.yaml", text)
    monkeypatch.setenv("FLOWCTL_CONNECTIONS", "mine.yaml")
    (error,) = errors()
    assert error.startswith("mine.yaml:")


def test_the_digest_depends_on_what_is_defined_and_not_on_where(monkeypatch: pytest.MonkeyPatch) -> None:
    write_user_file("home/.config/flowctl/connections.yaml")
    by_file, by_option = load().digest, load(app="sqlite:user-dev.db").digest
    monkeypatch.setenv("FLOWCTL_CONN_APP", "{path: user-dev.db, type: sqlite}")
    assert by_file == by_option == load().digest
    assert by_file != load(app="sqlite:other.db").digest


def test_the_digest_does_not_depend_on_a_secret() -> None:
    one, two = (load(app=f"postgresql://etl:{password}@db/shop").digest for password in ("first-1", "second-2"))
    assert one == two != load(app="postgresql://etl:first-1@db2/shop").digest


def test_printed_commands_repeat_connections_without_secrets() -> None:
    assert load(app="sqlite:a b.db").argument == "flow.yaml --connection 'app=sqlite:a b.db'"
    spec = load(app="postgresql://etl:s3cret@db/shop")
    assert spec.argument == "flow.yaml --connection 'app={type: postgres, url: \"postgresql://etl:***@db/shop\"}'"
