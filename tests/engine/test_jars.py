"""The pinned jars: named once, checked each time, fetched by one process."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flowctl.connectors import registry
from flowctl.engine import jars
from flowctl.errors import EngineFailed

CONNECTOR_SCHEMAS = Path(__file__).parents[2] / "schemas" / "connectors"


@pytest.fixture(scope="module")
def fetched() -> Path:
    """The smallest set, as every developer's machine has it."""
    return jars.ensure(["postgresql"])[0]


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLOWCTL_HOME", str(tmp_path))
    return tmp_path / "jars"


def test_every_jar_has_a_checksum_and_every_checksum_a_jar() -> None:
    named = [name for names in jars.sets().values() for name in names]
    assert sorted(named) == sorted(jars._sums())
    assert len(named) == len(set(named))


@pytest.mark.parametrize("type", sorted(file.name.split(".")[0] for file in CONNECTOR_SCHEMAS.glob("*.schema.json")))
def test_connectors_ask_for_sets_that_there_are(type: str) -> None:
    assert set(registry.capabilities(type).jars) <= set(jars.sets())


def test_no_file_names_a_repository() -> None:
    for file in (jars._IVY_FILE, jars._SUMS_FILE, Path(jars.__file__)):
        text = file.read_text().replace('xmlns:m="http://ant.apache.org/ivy/maven"', "")  # a name, and no address
        assert not re.search("https?:", text)


def test_jars_that_are_there_are_used_without_a_word(fetched: Path, empty_home: Path) -> None:
    empty_home.mkdir()
    shutil.copy(fetched, empty_home)
    said: list[str] = []
    assert jars.ensure(["postgresql"], said.append) == [empty_home / fetched.name]
    assert said == []


@pytest.mark.server
def test_a_missing_or_damaged_jar_is_fetched_and_said(fetched: Path, empty_home: Path) -> None:
    empty_home.mkdir()
    (empty_home / fetched.name).write_bytes(b"half a jar")
    said: list[str] = []
    (file,) = jars.ensure(["postgresql"], said.append)
    assert file.read_bytes() == fetched.read_bytes()
    assert "postgresql" in said[0] and str(empty_home) in said[0]
    assert sorted(path.name for path in empty_home.iterdir()) == [".lock", fetched.name]


@pytest.mark.server
@pytest.mark.usefixtures("empty_home")
def test_two_processes_fetch_once() -> None:
    code = "from flowctl.engine import jars; jars.ensure(['postgresql'])"
    both = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("Fetching" in text for text in told) == 1


@pytest.mark.server
def test_a_jar_that_is_not_the_pinned_one_is_refused_by_name(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = jars.sets()["postgresql"]
    monkeypatch.setattr(jars, "_sums", lambda: {name: "0" * 64})
    with pytest.raises(EngineFailed, match=f"{name} is not the pinned jar"):
        jars.ensure(["postgresql"], lambda text: None)
    assert not (empty_home / name).exists()


@pytest.mark.server
@pytest.mark.usefixtures("empty_home")
def test_no_way_to_the_repository_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = tmp_path / "settings.xml"
    nowhere.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/nothing/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    monkeypatch.setenv("FLOWCTL_IVY_SETTINGS", str(nowhere))
    with pytest.raises(EngineFailed, match="could not fetch") as caught:
        jars.ensure(["postgresql"], lambda text: None)
    assert "FLOWCTL_IVY_SETTINGS" in caught.value.hint


def test_an_unknown_set_names_those_there_are() -> None:
    with pytest.raises(EngineFailed, match="no-such") as caught:
        jars.ensure(["no-such"])
    assert "delta" in caught.value.hint
