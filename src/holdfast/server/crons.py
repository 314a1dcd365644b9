"""When a job is due next: cron expressions of five fields, in UTC, and fixed pauses."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from croniter import CroniterBadDateError, CroniterError, croniter

from holdfast.client import InvalidCronError

MOST_CHARACTERS = 100
FIELDS = 5
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
NAMES = {*MONTHS, *DAYS, "l"}  # l: the last
EVERY = re.compile(r"@every ([0-9]+(?:\.[0-9]+)?) s")
TAKEN = "It takes five fields, in UTC: minute, hour, day of month, month, day of week, as in '30 4 * * *'."


def paused(seconds: float) -> str:
    """The schedule of a job that runs every so many seconds."""
    return f"@every {seconds:.15g} s"


def checked(cron: str) -> str:
    """A cron expression as it is stored, or an error."""
    if len(cron) > MOST_CHARACTERS:
        raise refused(cron, f"It has over {MOST_CHARACTERS} characters.")
    fields = cron.split()
    words = {word.lower() for word in re.findall(r"[A-Za-z]+", cron)}
    if len(fields) != FIELDS:
        raise refused(cron, f"It has {len(fields)} fields.")
    # Others mean a time that is drawn at random, or differ from cron to cron.
    if not re.fullmatch(r"[-0-9A-Za-z*,/# ]+", " ".join(fields)) or not words <= NAMES:
        raise refused(cron, "It has characters or words that cron does not know.")
    return " ".join(fields)


def next_tick(schedule: str, now: datetime) -> datetime:
    """The first tick after a time; however many were missed before it, they are one."""
    try:
        if pause := EVERY.fullmatch(schedule):
            return now + timedelta(seconds=float(pause[1]))
        tick: datetime = croniter(checked(schedule), now.astimezone(UTC), ret_type=datetime).get_next()
    except (CroniterBadDateError, OverflowError):
        raise refused(schedule, "It never comes.") from None
    except CroniterError as error:
        raise refused(schedule, f"{error}.") from error
    return tick


def refused(cron: str, reason: str) -> InvalidCronError:
    """The refusal of a cron expression."""
    shown = cron if len(cron) <= MOST_CHARACTERS else f"{cron[:MOST_CHARACTERS]}…"
    return InvalidCronError("QH831", "this is no cron expression", f"Got {shown!r}. {reason}", TAKEN)
