"""Local times that have no zone of their own, compared with a clock."""

from __future__ import annotations

import datetime as dt

from flowctl.errors import TableError

#: No zone sets its clocks back further ahead than this matters: an hour is the most that is common.
_AHEAD_MINUTES = 180


def earliest_local(moment: dt.datetime, zone: str) -> dt.datetime:
    """The local time in ``zone`` that no moment from ``moment`` on falls behind: its own, or an earlier one where
    clocks are about to be set back. They are set at whole minutes."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        known = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise TableError(f"there is no time zone {zone!r}", hint="Correct `cursor.zone`") from error
    minute = moment.replace(second=0, microsecond=0)
    ahead = [moment, *(minute + dt.timedelta(minutes=number) for number in range(1, _AHEAD_MINUTES + 1))]
    return min(one.astimezone(known).replace(tzinfo=None) for one in ahead)
