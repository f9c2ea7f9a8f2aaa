"""Tables that are read by the versions of their source: what changed since, and what no longer can be read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.connectors.source import VersionChanges
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import RowEstimate
from flowctl.plan.document import action_of
from flowctl.spec.spec import ColumnRules, DetectMissingKeys
from tests.plan.worlds import committed, high, intent, observed, recorded, step, table, target

MERGED = replace(table(mode="merge", cursor=None), deletes=DetectMissingKeys())
APPENDED = table(mode="append", cursor=None, key=())
REPLACED = table(mode="truncate", cursor=None, key=())


def at(version, of="t"):
    return VersionPosition(version, of)


def planned(spec, read, now, changes=None, **keys):
    """The step where ``read`` is recorded and the source is at ``now``."""
    seen = high(now, changes=changes, begun_lost=keys.pop("begun_lost", ""))
    there = {"target": target(), "commit": committed(position=read)} if read else {}
    return step(spec, observed(seen, positions="version", **there), recorded(spec, read, **keys) if read else None)


def test_a_first_run_reads_the_newest_version():
    made = planned(MERGED, None, at(4))
    assert (action_of(made), made.interval, made.check_deletes) == ("create", Interval(None, at(4)), False)


@pytest.mark.parametrize("spec", [MERGED, APPENDED, REPLACED], ids=lambda spec: spec.mode)
def test_the_same_version_is_not_read_again(spec):
    made = planned(spec, at(4), at(4))
    assert (action_of(made), made.reason) == ("none", "the source is unchanged, version 4")


@pytest.mark.parametrize("spec", [MERGED, APPENDED], ids=lambda spec: spec.mode)
def test_only_changes_are_read(spec):
    made = planned(spec, at(4), at(7), VersionChanges(4, RowEstimate(3, "count")))
    assert (made.interval, made.reason, made.rows.value) == (Interval(at(4), at(7)), "changes since version 4", 3)
    assert not made.check_deletes


def test_a_change_data_feed_is_named():
    made = planned(
        MERGED, at(4), at(7), VersionChanges(4, RowEstimate(3), removes="version 5 (DELETE)", reads_feed=True)
    )
    assert made.reason == "changes since version 4, from its change data feed"


def test_truncate_reads_the_newest_version():
    assert planned(REPLACED, at(4), at(7)).interval == Interval(None, at(7))


def test_append_cannot_take_back_rows():
    made = planned(APPENDED, at(4), at(7), VersionChanges(4, removes="version 5 (DELETE)"))
    assert action_of(made) == "stop"
    assert made.reason == "version 5 (DELETE) of the source removed or changed rows, which append cannot do"
    assert made.hint == (
        "Replace the target's content with --full-refresh orders, or continue without these changes from version 7: "
        "`flowctl state set spec.yaml orders --position 7`"
    )


def test_lost_changes():
    """merge reads everything again and compares keys, append stops."""
    lost = VersionChanges(4, lost="the log no longer has version 5")
    merged, appended = planned(MERGED, at(4), at(7), lost), planned(APPENDED, at(4), at(7), lost)
    assert (merged.interval, merged.check_deletes) == (Interval(None, at(7)), True)
    assert merged.reason.startswith("reads everything again: the changes since version 4 are lost: the log no longer")
    assert action_of(appended) == "stop" and appended.reason.startswith("the changes since version 4 are lost")


def test_changes_since_another_version_are_none_of_this_table():
    """They were asked for since a pending interval that is given up."""
    pending = intent(MERGED, Interval(at(4), at(5)))
    lost = {"intent": pending, "begun_lost": "a file was deleted"}
    made = planned(MERGED, at(4), at(7), VersionChanges(5, RowEstimate(1, "count")), **lost)
    assert made.interval == Interval(None, at(7))
    assert "the changes since version 4 are lost: a file was deleted" in made.reason


def test_a_table_made_anew_stops():
    for spec in (MERGED, APPENDED):
        made = planned(spec, at(4), at(1, "other"))
        assert (action_of(made), made.reason) == (
            "stop",
            "the source was dropped and created again: its versions begin again",
        )
        assert made.hint == "Read it from its beginning with --full-refresh orders"
    assert planned(REPLACED, at(4), at(1, "other")).interval == Interval(None, at(1, "other"))


def test_a_position_that_was_set_by_hand_has_no_table():
    made = planned(MERGED, at(4, ""), at(7), VersionChanges(4, RowEstimate(3, "count")))
    assert made.interval == Interval(at(4, ""), at(7))


def test_a_computed_key_is_compared():
    spec = replace(MERGED, key=("made",), columns=ColumnRules(add={"made": "id + 1"}, types={"made": "bigint"}))
    made = planned(spec, at(4), at(7), VersionChanges(4, RowEstimate(3, "count")))
    assert made.interval == Interval(None, at(7)) and "columns.add" in made.reason


def test_an_earlier_version_reads_everything_again():
    assert planned(MERGED, at(7), at(4)).interval == Interval(None, at(4))
    assert action_of(planned(APPENDED, at(7), at(4))) == "stop"


def test_a_schema_changed_without_a_version():
    lost, now = VersionChanges(4, lost="column note was dropped and added again"), replace(at(4), schema="2")
    made = planned(MERGED, replace(at(4), schema="1"), now, lost)
    assert made.interval == Interval(None, now) and "column note was dropped and added again" in made.reason
    replaced = planned(REPLACED, replace(at(4), schema="1"), now, lost)
    assert replaced.interval == Interval(None, now) and "as its schema was changed" in replaced.reason
    assert action_of(planned(APPENDED, replace(at(4), schema="1"), now, lost)) == "stop"
    assert action_of(planned(MERGED, replace(at(4), schema="1"), now, VersionChanges(4, RowEstimate(0)))) == "none"
