"""How words become values: one way to write durations everywhere, and headers that are text."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
import typer

from holdfast.cli._values import assignments, duration, headers
from tests.cli.conftest import Run

DURATIONS = {
    "90": 90,
    "0": 0,
    "1.5": 1.5,
    "250ms": 0.25,
    "30s": 30,
    "30 sec": 30,
    "1m30s": 90,
    "1m 30s": 90,
    "5 min": 300,
    "5MIN": 300,
    "1.5 minutes": 90,
    "2h": 7200,
    "1 hour 30 minutes": 5400,
    "2 hrs": 7200,
    "1d12h": 129_600,
    "1 day": 86_400,
    " 2 weeks ": 1_209_600,
}


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_a_duration_is_what_postgresql_takes_it_for(
    conn: psycopg.Connection[Any], text: str, seconds: float
) -> None:
    assert duration(text) == timedelta(seconds=seconds)
    assert conn.execute("select %s::interval", [text]).fetchone() == (timedelta(seconds=seconds),)


@pytest.mark.parametrize(
    "text", ["", "soon", "-5", "5 5", "5m 5", "1 month", "1y", "5x", "s", "1m30s!", "1,5", "9" * 400, "1e3"]
)
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"is not a duration such as 90, .*; the units are ms, s "):
        duration(text)


def test_the_same_words_are_durations_of_options_and_of_configurations(
    run: Run, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.set_clock('2030-01-01T12:00Z')")
    run("queue", "create", "orders", "lease=1m30s")
    conn.execute("select holdfast.send_batch('orders', array['1', '2']::jsonb[])")

    by_configuration = run("claim", "orders", "--json").document
    by_option = run("claim", "orders", "--lease", "1m30s", "--json").document

    assert by_configuration["deadline"] == by_option["deadline"] == "2030-01-01T12:01:30+00:00"


def test_the_value_of_a_header_is_text_whatever_it_looks_like() -> None:
    words = ["n=1", "b=true", "empty=", "equals=a=b", 'json={"a": 1}']

    assert headers(words) == {"n": "1", "b": "true", "empty": "", "equals": "a=b", "json": '{"a": 1}'}
    assert headers([]) is None
    with pytest.raises(typer.BadParameter, match="NAME=VALUE"):
        headers(["name"])


def test_a_field_that_is_assigned_twice_is_wrong_usage() -> None:
    with pytest.raises(typer.BadParameter, match="lease is given twice"):
        assignments(["lease=1", "shards=2", "lease=3"])
