"""The options of the data source: read and checked in one place, before anything else happens."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum
from types import MappingProxyType
from typing import Any, NoReturn

from holdfast.database import URL_VARIABLE

from ._redact import redacted
from ._where import checked_condition

URL_SETTING = "spark.holdfast.url"
QUEUE_NAME = re.compile(r"[A-Za-z0-9._:-]{1,200}")
SNAPSHOT = re.compile(r"[0-9A-F]+-[0-9A-F]+-[0-9]+")
STATES = ("ready", "scheduled", "blocked", "in_flight", "live", "dead", "archive", "log")
PAYLOAD_FORMS = ("string", "struct", "raw")
PAYLOAD_ERRORS = ("fail", "null")
MODES = ("consume", "tail")
TAILED = ("log", "archive")
START = re.compile(r"earliest|latest|[0-9]{1,12}")
DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|h)?\s*")
SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
MAX_PARTITIONS = 10_000
MAX_WRITE_ID = 200  # characters


class OptionError(ValueError):
    """An option is missing, unknown, or has a value that it does not take."""

    def __init__(self, option: str, got: str, expected: str) -> None:
        super().__init__(f"option {option}: got {got}; expected {expected}")
        self.option = option


class Use(Enum):
    """What the options are for. Each option says for which of these it is."""

    READ = "a batch read"
    WRITE = "a batch write"
    READ_STREAM = "a stream read"
    WRITE_STREAM = "a stream write"


class Secret:
    """Text that shows itself to nobody who does not ask for it: not in a log, not in a traceback."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text."""
        return self._text

    def redact(self, text: str) -> str:
        """Another text, without this one and without the password in it."""
        return redacted(text, self._text)

    def __repr__(self) -> str:
        return "Secret(***)"

    def __getstate__(self) -> str:
        return self._text

    def __setstate__(self, text: str) -> None:
        self._text = text


@dataclass(frozen=True, slots=True)
class Options:
    """All options, checked. Those that do not go with a use have their defaults."""

    url: Secret
    queue: str
    state: str = "ready"
    where: str | None = None
    columns: tuple[str, ...] | None = None
    partitions: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    snapshot: str | None = None
    payload: str = "string"
    payload_schema: str | None = None
    payload_errors: str = "fail"
    write_id: str | None = None
    quarantine: str | None = None
    mode: str | None = None
    max_messages: int = 100_000
    lease: float = 120.0  # seconds, as the next two
    wait: float = 1.0
    retry_for: float = 300.0
    start: str = "earliest"
    on_gap: str = "fail"
    stop_file: str | None = None

    @property
    def stopping(self) -> bool:
        """Whether a stream was told to begin no more batches."""
        return self.stop_file is not None and os.path.exists(self.stop_file)

    @classmethod
    def parse(cls, given: Mapping[str, str], use: Use) -> Options:
        """Check the options of one read or write."""
        named = {name.lower(): value for name, value in given.items() if name.lower() not in OF_SPARK}
        if "path" in named:
            # load("orders") and save("orders") name the queue.
            named.setdefault("queue", named.pop("path"))
            named.pop("path", None)
        for name in named:
            _refuse_unknown(name, use)
        values: dict[str, Any] = {name: READERS[name](name, value) for name, value in named.items()}
        values["url"] = _url(named.get("url"))
        if "payload_schema" in values:
            values.setdefault("payload", "struct")
        if "queue" not in values:
            raise OptionError("queue", "nothing", "the name of a queue")
        options = cls(**values)
        _refuse_contradictions(options)
        if use is Use.READ_STREAM:
            _refuse_stream_contradictions(options, named)
        return options


def choice(words: tuple[str, ...]) -> Callable[[str, str], str]:
    """Reads one of a few words."""

    def read(name: str, value: str) -> str:
        word = value.strip().lower()
        if word not in words:
            raise OptionError(name, repr(value), f"one of {', '.join(words)}")
        return word

    return read


def number(lowest: int, highest: int) -> Callable[[str, str], int]:
    """Reads a whole number."""

    def read(name: str, value: str) -> int:
        try:
            found = int(value)
        except ValueError:
            found = lowest - 1
        if not lowest <= found <= highest:
            raise OptionError(name, repr(value), f"a whole number from {lowest:,} to {highest:,}")
        return found

    return read


def text(name: str, value: str) -> str:
    """Reads text that is not empty."""
    if not value.strip():
        raise OptionError(name, repr(value), "text")
    return value


def moment(name: str, value: str) -> datetime:
    """Reads a point in time."""
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        found = None
    if found is None or found.utcoffset() is None:
        raise OptionError(name, repr(value), "an ISO time with a zone, such as 2030-01-31T12:00:00Z")
    return found


def duration(lowest: float, highest: float) -> Callable[[str, str], float]:
    """Reads a time span, in seconds if it has no unit."""

    def read(name: str, value: str) -> float:
        found = DURATION.fullmatch(value)
        seconds = float(found[1]) * SECONDS[found[2] or "s"] if found else -1.0
        if not lowest <= seconds <= highest:
            raise OptionError(
                name, repr(value), f"{lowest:g} s to {highest:g} s, as a number with ms, s, min or h"
            )
        return seconds

    return read


def matching(pattern: re.Pattern[str], expected: str) -> Callable[[str, str], str]:
    """Reads text of a certain shape."""

    def read(name: str, value: str) -> str:
        if not pattern.fullmatch(value):
            raise OptionError(name, repr(value), expected)
        return value

    return read


def names(name: str, value: str) -> tuple[str, ...]:
    """Reads a list of names, parted by commas."""
    found = tuple(part.strip() for part in value.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise OptionError(name, repr(value), "names of columns, parted by commas, each once")
    return found


def _condition(name: str, value: str) -> str:
    try:
        return checked_condition(value)
    except ValueError as error:
        raise OptionError(name, repr(value), f"a condition in SQL; {error}") from None


def _write_id(name: str, value: str) -> str:
    if not 1 <= len(value) <= MAX_WRITE_ID or "\0" in value:
        raise OptionError(name, repr(value[:50]), f"1 to {MAX_WRITE_ID} characters")
    return value


READERS: Mapping[str, Callable[[str, str], Any]] = MappingProxyType(
    {
        "url": text,
        "queue": matching(QUEUE_NAME, "the name of a queue: 1 to 200 characters out of A-Z a-z 0-9 . _ : -"),
        "state": choice(STATES),
        "where": _condition,
        "columns": names,
        "partitions": number(1, MAX_PARTITIONS),
        "since": moment,
        "until": moment,
        "snapshot": matching(SNAPSHOT, "what pg_export_snapshot() returned"),
        "payload": choice(PAYLOAD_FORMS),
        "payload_schema": text,
        "payload_errors": choice(PAYLOAD_ERRORS),
        "write_id": _write_id,
        "quarantine": text,
        "mode": choice(MODES),
        "max_messages": number(1, 10_000_000),
        "lease": duration(1, 86_400),
        "wait": duration(0, 60),
        "retry_for": duration(0, 86_400),
        "start": matching(START, "earliest, latest or a sequence number"),
        "on_gap": choice(("fail", "skip")),
        "stop_file": text,
    }
)
USES: Mapping[str, frozenset[Use]] = MappingProxyType(
    {
        "url": frozenset(Use),
        "queue": frozenset(Use),
        "payload": frozenset({Use.READ, Use.READ_STREAM}),
        "payload_schema": frozenset({Use.READ, Use.READ_STREAM}),
        "payload_errors": frozenset({Use.READ, Use.READ_STREAM}),
        "columns": frozenset({Use.READ, Use.READ_STREAM}),
        "state": frozenset({Use.READ, Use.READ_STREAM}),
        "where": frozenset({Use.READ}),
        "partitions": frozenset({Use.READ, Use.READ_STREAM}),
        "since": frozenset({Use.READ}),
        "until": frozenset({Use.READ}),
        "snapshot": frozenset({Use.READ}),
        "write_id": frozenset({Use.WRITE}),
        "quarantine": frozenset({Use.WRITE, Use.WRITE_STREAM}),
        "mode": frozenset({Use.READ_STREAM}),
        "max_messages": frozenset({Use.READ_STREAM}),
        "lease": frozenset({Use.READ_STREAM}),
        "wait": frozenset({Use.READ_STREAM}),
        "retry_for": frozenset({Use.READ_STREAM, Use.WRITE, Use.WRITE_STREAM}),
        "start": frozenset({Use.READ_STREAM}),
        "on_gap": frozenset({Use.READ_STREAM}),
        "stop_file": frozenset({Use.READ_STREAM}),
    }
)
# What Spark itself puts among the options of a stream.
OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode"})

assert READERS.keys() == USES.keys() == {field.name for field in fields(Options)}


def _refuse_unknown(name: str, use: Use) -> None:
    known = sorted(option for option, uses in USES.items() if use in uses)
    if name in known:
        return
    if name in USES:
        others = " and ".join(each.value for each in Use if each in USES[name])
        raise OptionError(name, f"it for {use.value}", f"it for {others} only")
    close = difflib.get_close_matches(name, known, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    raise OptionError(name, "an unknown option", f"one of {', '.join(known)}{meant}")


def _refuse_contradictions(options: Options) -> None:
    if options.payload == "struct" and options.payload_schema is None:
        _refuse("payload_schema", None, "one, for the payload struct")
    if options.payload != "struct" and options.payload_schema is not None:
        _refuse("payload", options.payload, "struct, or nothing, with payload_schema")
    for name in ("since", "until"):
        if getattr(options, name) is not None and options.state != "archive":
            _refuse(name, options.state, "it with the state archive only")
    if options.since and options.until and options.since > options.until:
        _refuse("until", options.until.isoformat(), "a time that is not before since")


def _refuse_stream_contradictions(options: Options, named: Mapping[str, str]) -> None:
    if options.mode is None:
        _refuse("mode", None, f"one of {', '.join(MODES)}, for a stream")
    if options.mode == "consume":
        for name in ("state", "start", "on_gap"):
            if name in named:
                _refuse(name, named[name], "it with the mode tail only")
        return
    if "lease" in named:
        _refuse("lease", named["lease"], "it with the mode consume only: a tail takes nothing")
    if "state" in named and options.state not in TAILED:
        _refuse("state", options.state, f"one of {', '.join(TAILED)}, for the mode tail")
    if options.state == "archive" and options.start.isdigit():
        _refuse("start", options.start, "earliest or latest: an archive has no sequence numbers")


def _refuse(name: str, got: str | None, expected: str) -> NoReturn:
    raise OptionError(name, "none" if got is None else repr(got), expected)


def _url(given: str | None) -> Secret:
    found = given or os.environ.get(URL_VARIABLE)
    if not found:
        raise OptionError(
            "url",
            "nothing",
            f"a database in it, or before Spark starts in {URL_VARIABLE} or in the setting {URL_SETTING} of"
            " make_session: a Spark that runs already learns of neither",
        )
    return Secret(found)
