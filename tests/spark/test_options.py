"""Options: each is checked once, and an error names the option, what was got and what is expected."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

from holdfast.database import URL_VARIABLE
from holdfast.spark._where import checked_condition
from holdfast.spark.options import OptionError, Options, Use

URL = "postgresql://shop:hush@127.0.0.1/shop"


@pytest.fixture(autouse=True)
def url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, URL)


def parse(use: Use = Use.READ, **given: str) -> Options:
    return Options.parse({"queue": "q", **given}, use)


def test_names_do_not_depend_on_case_and_the_path_is_a_queue() -> None:
    options = Options.parse({"Path": "orders", "STATE": "Dead"}, Use.READ)

    assert (options.queue, options.state) == ("orders", "dead")


def test_all_options_of_a_read_are_understood() -> None:
    options = parse(
        state="archive",
        where="priority > 3",
        columns="id, payload",
        partitions="7",
        since="2030-01-01T00:00:00Z",
        until="2030-01-02T00:00:00Z",
        snapshot="00000003-0000001B-1",
        payload="struct",
        payload_schema="a INT",
        payload_errors="null",
    )

    assert (options.where, options.columns, options.partitions) == ("priority > 3", ("id", "payload"), 7)
    assert options.since == datetime(2030, 1, 1, tzinfo=UTC)
    assert options.until == datetime(2030, 1, 2, tzinfo=UTC)
    assert (options.payload, options.payload_schema, options.payload_errors) == ("struct", "a INT", "null")


@pytest.mark.parametrize(
    ("use", "given", "message"),
    [
        (Use.READ, {"stat": "dead"}, "option stat: got an unknown option; .*did you mean state?"),
        (Use.READ, {"state": "gone"}, "option state: got 'gone'; expected one of ready, scheduled"),
        (Use.READ, {"queue": "not a name!"}, "option queue: got 'not a name!'; expected the name of a queue"),
        (Use.READ, {"partitions": "0"}, "option partitions: got '0'; expected a whole number from 1 to"),
        (Use.READ, {"partitions": "many"}, "option partitions: got 'many'"),
        (Use.READ, {"columns": "id,,tag"}, "option columns: got 'id,,tag'; expected names of columns"),
        (Use.READ, {"where": "true; drop table x"}, "option where: .*it has a semicolon"),
        (Use.READ, {"since": "2030-01-01"}, "option since: got '2030-01-01'; expected an ISO time"),
        (Use.READ, {"since": "2030-01-01T00:00:00Z"}, "option since: .*with the state archive only"),
        (Use.READ, {"snapshot": "'; x"}, "option snapshot: .*pg_export_snapshot"),
        (Use.READ, {"payload": "struct"}, "option payload_schema: got none; expected one, for the payload"),
        (Use.READ, {"payload_schema": "a INT", "payload": "raw"}, "option payload: got 'raw';"),
        (Use.READ, {"payload_schema": "a INT", "payload": "string"}, "option payload: got 'string';"),
        (Use.READ, {"write_id": "w"}, "option write_id: got it for a batch read; expected it for a"),
        (Use.WRITE, {"where": "true"}, "option where: got it for a batch write; expected it for a"),
        (Use.WRITE, {"write_id": "x" * 201}, "option write_id: .*1 to 200 characters"),
        (Use.WRITE, {"quarantine": " "}, "option quarantine: got ' '; expected text"),
    ],
)
def test_bad_options_are_named(use: Use, given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(use, **given)


@pytest.mark.parametrize("use", [Use.READ, Use.READ_STREAM])
def test_a_schema_of_payloads_makes_them_structs(use: Use) -> None:
    more = {"mode": "consume"} if use is Use.READ_STREAM else {}

    assert parse(use, payload_schema="a INT", **more).payload == "struct"
    assert parse(use, **more).payload == "string"


def test_a_queue_is_needed() -> None:
    with pytest.raises(OptionError, match="option queue: got nothing"):
        Options.parse({}, Use.READ)


def test_a_database_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE)

    with pytest.raises(OptionError, match=r"option url: got nothing; .*before Spark starts in HOLDFAST_"):
        parse()


def test_a_url_among_the_options_goes_before_the_environment() -> None:
    assert parse(url="postgresql://other/db").url.reveal() == "postgresql://other/db"


def test_a_url_shows_itself_to_nobody() -> None:
    options = parse()

    assert "hush" not in repr(options)
    assert options.url.redact(f"connecting to {URL}: hush is wrong") == "connecting to ***: *** is wrong"
    assert pickle.loads(pickle.dumps(options)).url.reveal() == URL


@pytest.mark.parametrize(
    "condition",
    [
        "priority > 3 and tag = 'a;b'",
        "payload ->> 'it''s' = '--'",
        "tag = E'\\';' or tag = $x$;$x$",
        "\"tag\" in ('(', ')') and (id > 1)",
        "payload @> '{\"a\": [1]}'",
    ],
)
def test_conditions_may_quote_what_they_like(condition: str) -> None:
    assert checked_condition(condition) == condition


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "empty"),
        ("true;", "semicolon"),
        ("true -- x", "comment"),
        ("true /* x */", "comment"),
        ("true) union (select 1", "closes that was not opened"),
        ("(true", "not closed"),
        ("tag = 'a", "quote is not closed"),
        ('"tag', "quote is not closed"),
        ("tag = '\0'", "NUL"),
    ],
)
def test_what_is_no_condition_is_refused(condition: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_condition(condition)
