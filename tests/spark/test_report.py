"""The report of insights, without Spark and without a browser.

1. It is one well-formed file that loads nothing and runs nothing.
2. Whatever a message says, it stays text.
3. Its size is bounded, however much happened.
4. It says what there is to say, and that there is nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import cache
from xml.etree import ElementTree

import pytest

from holdfast.spark.report.figures import (
    Bucket,
    Burn,
    Consumer,
    Counts,
    Failure,
    Figures,
    HotKey,
    Kept,
    Live,
    Objective,
    Spread,
    Total,
)
from holdfast.spark.report.page import DETAILED_QUEUES, render
from tests.spark.report_figures import HOUR, SINCE, UNTIL, fleet

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg onload=alert(1)>",
    "</style><script>alert(1)</script>",
    "javascript:alert(1)",
    "&lt;b&gt; &amp; <!-- --> ]]>",
    "{{ 7 * 7 }}",
    "a\x00b\x1bc\u202egnp.exe\ud800",
)
# What a file would load or run, if it could.
ACTIVE = {
    "script",
    "img",
    "iframe",
    "object",
    "embed",
    "link",
    "base",
    "form",
    "video",
    "audio",
    "image",
    "use",
}


def parsed(page: str) -> ElementTree.Element:
    """The page as XML, which it is too: whatever is not well-formed fails."""
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


def words(page: str) -> str:
    """What a reader sees, in one line."""
    body = parsed(page).find("body")
    assert body is not None
    return " ".join("".join(body.itertext()).split())


@cache
def large() -> str:
    """The report on a fleet of queues."""
    return render(fleet())


def small(**given: object) -> Figures:
    """A report over one day."""
    figures = Figures(since=SINCE, until=SINCE + 24 * HOUR, bucket=HOUR, made_at=SINCE + 24 * HOUR)
    return replace(figures, **given)  # type: ignore[arg-type]


def hostile(text: str) -> Figures:
    """A report in which everything that others choose is this text."""
    total = Total(
        text, Counts(sent=2, done=1, dead=1), erring=1, fatal=1, keyed=1, live=Live(1, 0, 0, 0, 1, HOUR, True)
    )
    spread = Spread(1, 0.1, 0.2, 0.3)
    return small(
        totals=[total],
        buckets=[Bucket(text, SINCE, total.counts, spread, spread)],
        failures=[Failure(text, text, 1, 1, SINCE, SINCE, text)],
        keys=[HotKey(text, text, 1)],
        consumers=[Consumer(text, text, 1, 0, spread)],
        objectives=[Kept(Objective(text, "waiting", 95, 0.01), (Burn(SINCE, 1, 1),))],
        notes=[text],
    )


# --- 1. one file -------------------------------------------------------------------------------------


def test_it_is_well_formed_and_its_ids_are_unique() -> None:
    page = parsed(large())

    ids = Counter(each.attrib["id"] for each in page.iter() if "id" in each.attrib)
    targets = {link.attrib["href"].removeprefix("#") for link in page.iter("a")}

    assert max(ids.values()) == 1
    assert targets == set(ids)


def test_it_loads_nothing_and_runs_nothing() -> None:
    text = large()
    page = parsed(text)

    assert {each.tag for each in page.iter()} & ACTIVE == set()
    assert not re.search(r"(?i)https?:|//[a-z]|@import|url\(|src=|javascript:", text)
    assert [link.attrib["href"][0] for link in page.iter("a") if link.attrib["href"][0] != "#"] == []
    policies = [meta.attrib["content"] for meta in page.iter("meta") if "http-equiv" in meta.attrib]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]


def test_every_plot_has_a_text_alternative_and_a_table_behind_it() -> None:
    page = parsed(render(fleet(queues=2)))

    pictures = list(page.iter("svg"))
    captions = ["".join(caption.itertext()) for caption in page.iter("caption")]

    assert all(picture.attrib["role"] == "img" and picture.attrib["aria-label"] for picture in pictures)
    assert len(pictures) > 10
    assert {"orders over time", "emails over time"} <= set(captions)
    assert all(table.find("thead") is not None for table in page.iter("table"))


def test_it_is_made_for_light_dark_narrow_and_paper() -> None:
    text = render(small())

    for media in ("prefers-color-scheme: dark", "max-width: 640px", "print"):
        assert f"@media ({media})" in text or f"@media {media}" in text


# --- 2. whatever a message says ------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_what_others_say_stays_text(text: str) -> None:
    page = parsed(render(hostile(text)))
    plain = parsed(render(hostile("plain")))

    assert Counter(each.tag for each in page.iter()) == Counter(each.tag for each in plain.iter())
    assert {name for each in page.iter() for name in each.attrib} == {
        name for each in plain.iter() for name in each.attrib
    }


def test_no_text_turns_the_direction_of_others_or_breaks_the_file() -> None:
    page = render(hostile("a\u202eb\x00c\ud800d"))

    assert "a\ufffdb\ufffdc\ufffdd" in page
    page.encode()


# --- 3. bounded -----------------------------------------------------------------------------------------


@pytest.mark.verify
def test_its_size_is_bounded_however_much_happened() -> None:
    much = fleet(queues=220, bucket=timedelta(minutes=52), names=30)
    long = replace(much, failures=[replace(each, example="x" * 5000) for each in much.failures])

    page = render(long)

    assert len(page.encode()) < 3_000_000
    assert len(parsed(page).findall(".//section[@class='queue']")) == DETAILED_QUEUES
    assert "20 more queues not listed." in words(page)


def test_buckets_that_share_a_point_are_summed_up_and_it_says_so() -> None:
    buckets = [Bucket("q", SINCE + n * HOUR / 60, Counts(done=1), Spread(1, n, n, n)) for n in range(1440)]
    total = Total("q", Counts(done=1440))

    text = words(render(small(bucket=timedelta(minutes=1), totals=[total], buckets=buckets)))

    assert "a point is 4 minutes: its counts are summed up, its percentiles the highest in it" in text
    # sent, done, failed, dead, expired, discarded, retries, then p50 of waiting: the highest of four buckets
    assert "4 Nov, 00:00–00:040400000" + "3 s3 s3 s" in text


# --- 4. what it says ----------------------------------------------------------------------------------------


def test_the_summary_says_what_an_operator_needs() -> None:
    total = Total(
        "orders",
        Counts(sent=200_000, done=199_000, dead=1_000),
        Spread(199_000, 0.1, 3.2, 9.0),
        Spread(199_000, 0.01, 0.045, 0.1),
        erring=1_500,
        fatal=1_000,
        live=Live(5, 0, 0, 0, 1_000, timedelta(hours=3), True),
    )
    failures = [
        Failure("orders", "card declined", 1_000, 960, SINCE, UNTIL, "card declined"),
        Failure("orders", "timeout", 500, 40, SINCE, UNTIL, "timeout"),
    ]
    kept = Kept(Objective("orders", "waiting", 95, 30.0), (Burn(SINCE, 100, 10), Burn(SINCE + HOUR, 100, 1)))

    text = words(render(small(totals=[total], failures=failures, objectives=[kept])))

    assert (
        "orders: 199,000 done, 1,000 dead, p95 waiting 3.2 s, p95 processing 45 ms."
        " 96 % of failures are «card declined»."
        " Missed: waiting p95 < 30 s, in 1 of 2 hours; burn 1.10."
        " 1,000 dead letters wait for a decision."
        " The oldest message has waited for 3 h."
    ) in text


def test_durations_that_are_estimates_are_marked_and_make_no_queue_the_slowest() -> None:
    sampled = Total("fast", Counts(done=9), Spread(9, 0.01, 60.0, 60.0), Spread(), estimated=("waiting",))
    exact = Total("slow", Counts(done=1), Spread(1, 2.0, 2.0, 2.0), Spread())

    text = words(render(small(totals=[sampled, exact])))

    assert "fast: 9 done, p95 waiting ~1 min." in text
    assert "2 sp95 waitingin slow, the slowest" in text


def test_counts_that_are_estimates_are_marked_where_they_are_not_zero() -> None:
    rough = Total("q", Counts(sent=1200, done=1100, dead=3), estimated=("dead", "done", "expired", "sent"))
    exact = Total("p", Counts(sent=7, done=7))

    text = words(render(small(totals=[rough, exact])))

    assert "q: ~1,100 done, ~3 dead." in text
    assert "p: 7 done." in text
    assert "q~1,200~1,1000~30" in text


def test_an_objective_that_was_kept_over_all_says_so() -> None:
    kept = Kept(Objective("q", "waiting", 95, 30.0), (Burn(SINCE, 100, 6), Burn(SINCE + HOUR, 100, 0)))

    text = words(render(small(totals=[Total("q", Counts(done=1))], objectives=[kept])))

    assert "Kept over all, but missed at times: waiting p95 < 30 s, in 1 of 2 hours; burn 0.60." in text


def test_messages_that_failed_only_at_first_are_told_of() -> None:
    total = Total("q", Counts(sent=10, done=10), erring=4)
    failures = [
        Failure("q", "timeout", 3, 0, SINCE, UNTIL, "timeout"),
        Failure("q", "x", 1, 0, SINCE, UNTIL, "x"),
    ]

    assert "4 messages failed at first, 75 % with «timeout»." in words(
        render(small(totals=[total], failures=failures))
    )


@pytest.mark.parametrize("totals", [[], [Total("q", Counts(), live=Live(3, 0, 0, 0, 0, None, True))]])
def test_a_range_in_which_nothing_happened_says_so(totals: list[Total]) -> None:
    text = words(render(small(totals=totals)))

    assert "In this range nothing was sent, and nothing ended." in text
    assert "Throughput" not in text
    assert ("Ready now" in text) is bool(totals)


def test_estimates_are_named() -> None:
    total = Total("q", Counts(sent=1), estimated=("dead", "sent"))
    buckets = [Bucket("q", SINCE, total.counts)]

    assert "Estimates, from the minute samples: dead, sent." in words(
        render(small(totals=[total], buckets=buckets))
    )


def test_the_slowest_consumer_and_the_hottest_key_come_first() -> None:
    spreads = {"worker-7": Spread(1, 1.0, 2.0, 3.0), "worker-8": Spread(1, 0.1, 0.2, 0.3)}
    figures = small(
        totals=[Total("q", Counts(done=4), keyed=40)],
        consumers=[Consumer("q", name, 1, 0, spread) for name, spread in reversed(spreads.items())],
        keys=[HotKey("q", "key-1", 10), HotKey("q", "key-2", 30)],
    )

    text = words(render(figures))

    assert text.index("worker-7") < text.index("worker-8")
    assert text.index("key-2") < text.index("key-1")
    assert "75 %" in text


def test_the_burn_of_an_objective_is_what_was_too_slow_by_what_may_be() -> None:
    burns = (Burn(SINCE, 200, 10), Burn(SINCE + HOUR, 200, 11), Burn(SINCE + 2 * HOUR, 0, 0))
    kept = Kept(Objective("q", "waiting", 95, 1.0), burns)

    assert [round(kept.burn(burn), 6) for burn in burns] == [1.0, 1.1, 0.0]
    assert kept.missed == burns[1:2]
    assert round(kept.overall, 6) == 1.05
