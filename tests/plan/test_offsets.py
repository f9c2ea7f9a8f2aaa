"""Tables of topics: what is new, what was lost, and what append must not read twice."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from flowctl.model import position
from flowctl.model.interval import Interval
from flowctl.model.position import OffsetsPosition
from flowctl.model.step import Progress, progress_after
from flowctl.plan.document import action_of
from flowctl.resolve.resolve import PlanOptions
from flowctl.run.commits import commits
from flowctl.spec.spec import DeadLetters, TargetRef, TopicSource
from flowctl.state.letters import Replay
from tests.plan.worlds import NOW, committed, high, intent, observed, recorded, step, steps, table, target

SPEC = table(mode="append", source=TopicSource("bus", ("clicks",)), cursor=None, key=())
REPLAY = Replay(2, f"{SPEC.target}__dead_letters")


def at(*offsets: int) -> OffsetsPosition:
    return OffsetsPosition(tuple(enumerate(offsets)))


def planned(read: OffsetsPosition | None, end: OffsetsPosition, *, oldest=(0, 0, 0), written=None, spec=SPEC, **keys):
    """The step where ``read`` is recorded and the topic ends at ``end``."""
    first = at(*oldest[: len(end.offsets)])
    seen = high(end, start=keys.pop("start", first), oldest=first, uncommitted=keys.pop("uncommitted", 0))
    there = {"target": target(), "commit": committed(position=written or read)} if read else {}
    return step(spec, observed(seen, positions="offsets", **there), recorded(spec, read, **keys) if read else None)


def test_a_first_run_begins_where_the_spec_says():
    made = planned(None, at(120, 98), start=at(100, 98))
    assert (action_of(made), made.interval) == ("create", Interval(at(100, 98), at(120, 98)))
    assert (made.reason, made.rows.value) == ("first run, at most 20 messages from earliest", 20)


def test_a_first_run_at_a_time_waits_for_it():
    """Until then, there would come what is older than the time."""
    for seconds, found in ((1, ("none", "begins at {}")), (0, ("create", "first run, no messages from {}"))):
        start = (NOW + dt.timedelta(seconds=seconds)).isoformat()
        spec = replace(SPEC, source=replace(SPEC.source, start=start))
        made = planned(None, at(120), start=at(120), spec=spec)
        assert (action_of(made), made.reason) == (found[0], found[1].format(start))
    later = replace(SPEC, source=replace(SPEC.source, start="2100-01-01T00:00:00Z"))
    assert action_of(planned(at(100), at(120), spec=later)) == "change"


def test_a_first_run_at_the_end_records_where_that_is():
    made = planned(None, at(120), start=at(120))
    assert (action_of(made), made.interval.upper, made.rows.value) == ("create", at(120), 0)


def test_only_new_messages_are_read():
    made = planned(at(100, 90), at(120, 98))
    assert (made.interval, made.reason, made.rows.value) == (
        Interval(at(100, 90), at(120, 98)),
        "at most 28 messages",
        28,
    )


def test_without_new_messages_there_is_nothing_to_do():
    made = planned(at(100, 90), at(100, 90))
    assert (action_of(made), made.reason) == ("none", "no new messages")


def test_what_an_open_transaction_holds_back_is_noted():
    made = planned(at(100), at(100), uncommitted=8)
    assert (action_of(made), made.notes) == (
        "none",
        ("an open transaction holds back at most 8 messages: the run after it has ended reads them",),
    )


def test_a_new_partition_is_read_from_its_beginning():
    made = planned(at(100), at(100, 7))
    assert made.interval == Interval(at(100, 0), at(100, 7))
    assert planned(at(100), at(100, 0)).reason == "no new messages"


def test_messages_of_a_new_partition_that_expired_before_it_was_read():
    made = planned(at(100), at(100, 7), oldest=(0, 2))
    assert (action_of(made), made.reason) == ("stop", "2 messages expired before they were read: 2 of partition 1")
    assert """--position '{"kind": "offsets", "offsets": {"0": 100, "1": 2}}'""" in made.hint


def test_a_merge_reads_new_partitions_after_the_others():
    """A new partition's offsets begin again, and what moved there is newer."""
    spec = replace(SPEC, mode="merge", key=("id",), format={"envelope": "debezium"})
    made = planned(at(100), at(120, 7), spec=spec)
    assert (made.commits, made.rows.value, progress_after(made)) == (2, 27, Progress(5, at(120, 7)))
    assert [one.interval for one in commits(made)] == [
        Interval(at(100), at(120)),
        Interval(at(120), at(120, 7)),
    ]
    assert made.notes == ("partition 1 was added: it is read after the others, in a commit of its own",)
    assert planned(at(120), at(120, 7), spec=spec).commits == 1
    assert planned(at(100), at(120, 7), spec=replace(spec, format={**spec.format, "source_order": True})).commits == 1
    begun = intent(spec, Interval(at(120), at(120, 7)))
    made = planned(at(120), at(120, 7), oldest=(0, 2), spec=spec, intent=begun, highest=4)
    assert action_of(made) == "stop"


def test_expired_messages_stop_the_table_with_their_number():
    made = planned(at(100, 90), at(2120, 98), oldest=(1100, 95))
    assert action_of(made) == "stop"
    assert made.reason == "1,005 messages expired before they were read: 1,000 of partition 0, 5 of partition 1"
    assert """--position '{"kind": "offsets", "offsets": {"0": 1100, "1": 95}}'""" in made.hint


@pytest.mark.parametrize(
    ("end", "why"), [(at(80, 90), "partition 0 at 80, read up to 100"), (at(100), "there is no partition 1")]
)
def test_a_topic_that_ends_before_what_was_read_stops_the_table(end, why):
    made = planned(at(100, 90), end)
    assert (action_of(made), why in made.reason) == ("stop", True)


def test_append_stops_where_the_target_is_ahead_of_state():
    made = planned(at(100, 90), at(120, 98), written=at(100, 95))
    assert action_of(made) == "stop"
    assert made.reason == (
        "state records offsets 0:100 1:90, the target has messages up to offsets 0:100 1:95: appending again would"
        " double them"
    )


def test_a_begun_interval_is_finished_before_what_has_come_since():
    begun = intent(SPEC, Interval(at(100), at(110)))
    made = planned(at(100), at(120), intent=begun, highest=4)
    assert (action_of(made), made.interval) == ("recover", Interval(at(100), at(110)))


def test_a_begun_interval_that_has_expired_is_given_up():
    begun = intent(SPEC, Interval(at(100), at(110)))
    made = planned(at(100), at(120), oldest=(105,), intent=begun, highest=4)
    assert (action_of(made), made.reason[:30]) == ("stop", "5 messages expired before they")


def test_a_long_backlog_takes_several_commits():
    made = planned(None, at(6_000_000, 6_000_000))
    reason = "first run, at most 12,000,000 messages from earliest, in 3 commits of at most 5,000,000 messages"
    assert (made.reason, made.seq, progress_after(made)) == (reason, 1, Progress(3, at(6_000_000, 6_000_000)))
    short = planned(at(100), at(125), spec=replace(SPEC, batch_rows=10))
    assert (short.reason, short.rows.value) == ("at most 25 messages, in 3 commits of at most 10 messages", 25)
    assert planned(at(100), at(110), spec=replace(SPEC, batch_rows=10)).batch_rows is None


def test_what_follows_a_begun_interval_takes_several_commits_too():
    begun = intent(SPEC, Interval(at(100), at(110)))
    spec = replace(SPEC, batch_rows=10)
    seen = high(at(135), start=at(0), oldest=at(0))
    there = observed(seen, positions="offsets", target=target(), commit=committed(position=at(100)))
    first, second = steps(spec, there, recorded(spec, at(100), intent=begun, highest=4))
    assert (action_of(first), first.interval, first.continues) == ("recover", Interval(at(100), at(110)), True)
    assert (second.interval, second.follows, second.commits) == (Interval(at(110), at(135)), first.seq, 3)
    assert second.reason == (
        "at most 25 messages, in 3 commits of at most 10 messages, once sequence number 4 is recorded"
    )


def test_content_is_replaced_in_one_commit():
    """So that readers never find a part of it."""
    spec = replace(SPEC, batch_rows=10)
    seen = high(at(125), start=at(0), oldest=at(0))
    there = observed(seen, positions="offsets", target=target(), commit=committed(position=at(100)))
    anew = step(spec, there, recorded(spec, at(100)), PlanOptions(full_refresh=("orders",)))
    assert (anew.write_full, anew.commits, anew.reason) == (True, 1, "full refresh")
    gone = step(
        spec, observed(seen, positions="offsets"), recorded(spec, at(100)), PlanOptions(full_refresh=("orders",))
    )
    assert (gone.creates, gone.commits, gone.reason) == (True, 13, "full refresh, in 13 commits of at most 10 messages")


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        (at(120), "offset 120"),
        (at(120, 98), "offsets 0:120 1:98"),
        (replace(at(120), truncated="007"), "offset 120"),
        (at(*[1000] * 12), "12 offsets, 12,000 in all"),
    ],
)
def test_offsets_as_text_and_as_json(offsets, text):
    assert position.describe(offsets) == text
    assert position.from_json(position.to_json(offsets)) == offsets


@pytest.mark.parametrize(
    ("end", "reason", "rows"),
    [(120, "at most 20 messages, replays 2 dead letters", 20), (100, "replays 2 dead letters", None)],
)
def test_dead_letters_are_read_again_when_a_user_wants_it(end, reason, rows):
    made = planned(at(100), at(end), replay=REPLAY, spec=replace(SPEC, dead_letters=DeadLetters()))
    assert (action_of(made), made.reason) == ("change", reason)
    assert made.interval == Interval(at(100), at(end), letters=3)
    assert made.rows.value == rows


def test_letters_in_a_place_that_the_spec_has_no_longer_are_not_passed_over():
    elsewhere = replace(SPEC, dead_letters=DeadLetters(to=TargetRef("lake", ("_dead", "clicks"))))
    asked = planned(at(100), at(120), replay=REPLAY, spec=elsewhere)
    reading = replace(intent(SPEC, Interval(at(100), at(110), letters=3)), letters_at=REPLAY.place)
    begun = planned(at(100), at(120), intent=reading, highest=4, spec=elsewhere)
    for made in (asked, begun):
        assert (action_of(made), made.reason) == (
            "stop",
            f"dead letters of {REPLAY.place} are to be read again, and `dead_letters` says lake:_dead.clicks",
        )
        assert "flowctl dlq replay spec.yaml orders --cancel" in made.hint


@pytest.mark.parametrize("ordered", [True, False])
def test_an_old_letter_is_read_again_only_where_its_order_is_known(ordered):
    keyed = {"mode": "merge", "key": ("id",), "format": {"source_order": ordered}, "dead_letters": DeadLetters()}
    made = planned(at(100), at(100), replay=REPLAY, spec=replace(SPEC, **keyed))
    assert made.reason == ("replays 2 dead letters" if ordered else "no new messages")


def test_no_letter_is_read_again_without_a_place_for_those_that_stay():
    made = planned(at(100), at(100), replay=REPLAY)
    assert (action_of(made), made.reason) == ("none", "no new messages")


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (((0, 100),), (at(100, 0), "first run, at most 118 messages from `start`")),
        (((0, 120), (1, 98)), (at(120, 98), "first run, no messages from `start`")),
        (((0, 121),), "`start` is not within the topic: partition 0 has offsets from 0 to 120, not 121"),
        (((2, 0),), "`start` is not within the topic: there is no partition 2"),
    ],
)
def test_a_first_run_at_offsets_of_the_spec(start, found):
    spec = replace(SPEC, source=replace(SPEC.source, start=OffsetsPosition(start)))
    made = planned(None, at(120, 98), spec=spec)
    if isinstance(found, str):
        assert (action_of(made), made.reason, made.hint) == ("stop", found, "Correct `start`")
    else:
        assert (made.interval, made.reason) == (Interval(found[0], at(120, 98)), found[1])


def test_a_start_below_what_is_left_of_a_topic():
    spec = replace(SPEC, source=replace(SPEC.source, start=OffsetsPosition(((0, 10),))))
    made = planned(None, at(120), oldest=(60,), spec=spec)
    assert made.reason == "`start` is not within the topic: partition 0 has offsets from 60 to 120, not 10"


def test_the_place_of_a_truncate_goes_with_the_recorded_offsets():
    made = planned(replace(at(100), truncated="007"), at(120, 98))
    assert made.interval == Interval(replace(at(100, 0), truncated="007"), at(120, 98))
    assert planned(replace(at(120), truncated="007"), at(120)).reason == "no new messages"
