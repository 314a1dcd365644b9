"""Insights, the transforms: from ended messages, live ones and samples to figures.

1. A message counts where it ended, and as sent where it was sent; nothing outside of the range counts.
2. Where samples know better, messages do not count; both together count each thing once.
3. A percentile is within 1 % of the message's own duration, by nearest rank, and histograms add up.
4. Errors are counted by fingerprint, keys and consumers by name; lists are bounded, and their order is fixed.
5. A message that is in the lake and in the archive counts once.
6. An objective is missed by those that took longer than its limit.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.spark.report.figures import Objective
from holdfast.spark.transforms.insights.buckets import bucket_of, floored, raised
from holdfast.spark.transforms.insights.consumers import compared
from holdfast.spark.transforms.insights.ended import ENDED, TYPES, from_archive, from_dead, from_lake, once
from holdfast.spark.transforms.insights.errors import errors_of, frequent
from holdfast.spark.transforms.insights.facts import counted, facts_of_ended, facts_of_live
from holdfast.spark.transforms.insights.insight import INSIGHT, TOTAL, by_bucket, by_queue
from holdfast.spark.transforms.insights.keys import hot_keys
from holdfast.spark.transforms.insights.percentiles import bin_of, binned, value_of
from holdfast.spark.transforms.insights.rollup import BY_BUCKET, BY_QUEUE, rolled_up
from holdfast.spark.transforms.insights.samples import SAMPLE, facts_of_samples, sampled_measures
from holdfast.spark.transforms.insights.slo import burned, promised
from tests.spark.insights import (
    HOUR,
    MINUTE,
    SECOND,
    SPAN,
    T0,
    covered,
    ended,
    facts,
    no_coverage,
    only,
    told,
)

pytestmark = pytest.mark.verify

FAR = T0 + 10 * HOUR


def samples(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Samples, each a minute; the n-th begins with the n-th minute."""
    names = [part.split()[0] for part in SAMPLE.split(", ")]
    nothing = dict.fromkeys(names[3:11], 0) | {"waiting": "{}", "processing": "{}"}
    found = []
    for n, row in enumerate(rows):
        place = {"queue": "q", "began": T0 + n * MINUTE, "ended": T0 + (n + 1) * MINUTE}
        found.append(nothing | place | row)
    return spark.createDataFrame([tuple(row[name] for name in names) for row in found], SAMPLE)


def test_a_message_counts_where_it_ended_and_as_sent_where_it_was_sent(spark: SparkSession) -> None:
    late = {"enqueued_at": T0 + 59 * MINUTE, "claimed_at": T0 + 59 * MINUTE, "ended_at": T0 + 61 * MINUTE}
    before = {"enqueued_at": T0 - SECOND}
    behind = {"ended_at": T0 + 2 * HOUR, "claimed_at": T0 + 2 * HOUR}

    found = facts_of_ended(ended(spark, late, before, behind), no_coverage(spark), SPAN)

    assert told(counted([found]).where(F.col("measure").isin("sent", "done")), "start", "measure", "n") == {
        (T0, "sent", 2),
        (T0, "done", 1),
        (T0 + HOUR, "done", 1),
    }


def test_what_each_kind_of_message_adds(spark: SparkSession) -> None:
    done = {
        "ordering_key": "k", "deliveries": 3, "failures": 2,
        "claimed_at": T0 + SECOND, "ended_at": T0 + 3 * SECOND,
    }  # fmt: skip
    expired = {"outcome": "expired", "deliveries": 0, "claimed_at": None, "consumer": None}

    found = counted([facts_of_ended(ended(spark, done, expired), no_coverage(spark), SPAN)])

    assert told(found, "measure", "label", "bin", "n") == {
        ("sent", None, None, 2),
        ("done", None, None, 1),
        ("expired", None, None, 1),
        ("retries", None, None, 2),
        ("waiting", None, bin_of(1), 1),
        ("processing", "c", bin_of(2), 1),
        ("failures", "c", None, 2),
        ("key", "k", None, 1),
    }


def test_where_samples_know_better_messages_do_not_count(spark: SparkSession) -> None:
    inside, outside = ({"ended_at": T0 + n * MINUTE, "enqueued_at": T0 - HOUR} for n in (1, 2))
    known = covered(spark, "done", "sent", since=T0, until=T0 + 2 * MINUTE)
    sent = spark.createDataFrame(
        [("q", T0 + MINUTE), ("q", T0 + 2 * MINUTE)], "queue STRING, enqueued_at TIMESTAMP"
    )

    of_messages = facts_of_ended(ended(spark, inside, outside), known, SPAN)
    of_samples = facts_of_samples(samples(spark, {"done": 3, "sent": 4, "dead": 9}), known, SPAN)
    found = counted([of_messages, facts_of_live(sent, known, SPAN), of_samples])

    counts = found.where(F.col("measure").isin("done", "sent", "dead"))
    assert told(counts, "measure", "n", "sampled") == {("done", 4, True), ("sent", 5, True)}


def test_a_sample_that_was_written_since_is_left_to_the_messages(spark: SparkSession) -> None:
    known = covered(spark, "done", until=T0 + MINUTE)

    found = facts_of_samples(samples(spark, {"done": 1}, {"done": 10}), known, SPAN)

    assert told(found, "measure", "n") == {("done", 1)}


def test_samples_count_at_their_middle(spark: SparkSession) -> None:
    shift = timedelta(seconds=20)
    across = {"began": T0 + HOUR - shift, "ended": T0 + HOUR + MINUTE - shift, "sent": 1}
    too_early = {"began": T0 - 50 * SECOND, "ended": T0 + 10 * SECOND, "sent": 10}

    found = facts_of_samples(samples(spark, across, too_early), covered(spark, "sent", until=FAR), SPAN)

    assert told(found, "start", "n") == {(T0 + HOUR, 1)}


def test_classes_of_samples_count_as_the_longest_of_the_class(spark: SparkSession) -> None:
    waiting = json.dumps({"under_10ms": 0, "under_1s": 5, "longer": 2})
    known = covered(spark, "waiting", until=FAR)

    found = facts_of_samples(samples(spark, {"waiting": waiting, "processing": waiting}), known, SPAN)

    assert told(found, "measure", "bin", "n") == {("waiting", bin_of(1), 5), ("waiting", bin_of(3600), 2)}


def test_retries_of_samples_are_what_came_back_and_was_not_given_up(spark: SparkSession) -> None:
    row = {"nacked": 7, "lapsed": 2, "dead": 3, "failed": 1}

    found = facts_of_samples(samples(spark, row), covered(spark, "retries", until=FAR), SPAN)

    assert told(found, "measure", "n") == {("retries", 5)}


def test_histograms_add_up_to_percentiles_by_nearest_rank(spark: SparkSession) -> None:
    cells = facts(
        spark,
        *(
            {"measure": "waiting", "bin": bin_of(seconds), "n": n}
            for seconds, n in ((1, 50), (2, 45), (4, 4))
        ),
        {"measure": "waiting", "bin": bin_of(8), "start": T0 + HOUR},
        {"measure": "sent", "n": 7},
    )

    whole = only(rolled_up(cells, BY_QUEUE))
    hours = {row.waiting_count: row.waiting_p99 for row in rolled_up(cells, BY_BUCKET).collect()}

    assert (whole.waiting_count, whole.sent, whole.processing_count) == (100, 7, 0)
    assert [whole.waiting_p50, whole.waiting_p95, whole.waiting_p99] == pytest.approx([1, 2, 4], rel=0.011)
    assert hours == {99: pytest.approx(4, rel=0.011), 1: pytest.approx(8, rel=0.011)}
    assert whole.processing_p50 is None


@pytest.mark.parametrize("seconds", [1e-6, 0.00037, 0.01, 1.0, 59.99, 86_400.0])
def test_a_bin_stands_for_a_value_within_one_per_cent(spark: SparkSession, seconds: float) -> None:
    micros = round(seconds * 1e6)
    frame = spark.range(1).select(
        binned(F.timestamp_micros(F.lit(0)), F.timestamp_micros(F.lit(micros))).alias("bin")
    )

    assert only(frame).bin == bin_of(micros / 1e6)
    assert value_of(bin_of(seconds)) == pytest.approx(seconds, rel=0.0101)


def test_what_took_no_time_or_less_counts_as_the_shortest(spark: SparkSession) -> None:
    frame = spark.range(1).select(
        binned(F.lit(T0), F.lit(T0)).alias("none"), binned(F.lit(T0), F.lit(T0 - SECOND)).alias("less")
    )

    assert only(frame).asDict() == {"none": bin_of(1e-6), "less": bin_of(1e-6)}


def test_figures_that_come_from_samples_are_named(spark: SparkSession) -> None:
    cells = facts(spark, {"measure": "sent", "sampled": True}, {"measure": "done"}, {"measure": "sent"})

    assert only(rolled_up(cells, BY_QUEUE)).estimated == ["sent"]


def test_errors_are_counted_by_fingerprint_and_told_apart_by_whether_they_were_fatal(
    spark: SparkSession,
) -> None:
    frame = ended(
        spark,
        {"last_error": "order 17 is gone", "outcome": "failed", "ended_at": T0 + MINUTE},
        {"last_error": "order 4 is gone", "ended_at": T0 + 61 * MINUTE},
        *({"last_error": "no route", "outcome": each} for each in ("dead", "discarded", "expired")),
        {"last_error": "order 5 is gone", "ended_at": T0 - SECOND},
        {},
    )

    found = only(frequent(errors_of(frame, SPAN), BY_QUEUE, 10))

    assert (found.erring_count, found.fatal_count) == (5, 4)
    assert [(each.fingerprint, each.messages, each.fatal, each.example) for each in found.errors] == [
        ("no route", 3, 3, "no route"),
        ("order <n> is gone", 2, 1, "order 17 is gone"),
    ]
    assert (found.errors[1].first_seen.timestamp(), found.errors[1].last_seen.timestamp()) == (
        (T0 + MINUTE).timestamp(),
        (T0 + 61 * MINUTE).timestamp(),
    )


def test_lists_are_bounded_and_of_equals_the_first_by_name_comes_first(spark: SparkSession) -> None:
    cells = facts(
        spark,
        *({"measure": "key", "label": name, "n": n} for name, n in (("b", 2), ("a", 2), ("c", 9), ("d", 1))),
    )

    found = only(hot_keys(cells, BY_QUEUE, 3))

    assert [(each.key, each.messages) for each in found["keys"]] == [("c", 9), ("a", 2), ("b", 2)]


def test_consumers_are_compared_by_what_they_did_and_how_fast(spark: SparkSession) -> None:
    cells = facts(
        spark,
        {"measure": "processing", "label": "slow", "bin": bin_of(10), "n": 2},
        {"measure": "processing", "label": "quick", "bin": bin_of(1), "n": 5},
        {"measure": "processing", "label": "quick", "bin": bin_of(2), "n": 1, "start": T0 + HOUR},
        {"measure": "processing", "bin": bin_of(1), "n": 99, "sampled": True},
        {"measure": "failures", "label": "slow", "n": 3},
    )

    quick, slow = only(compared(cells, BY_QUEUE, 5)).consumers

    assert (quick.consumer, quick.messages, quick.failures) == ("quick", 6, 0)
    assert (slow.consumer, slow.messages, slow.failures) == ("slow", 2, 3)
    assert [quick.p50, quick.p99, slow.p50] == pytest.approx([1, 2, 10], rel=0.011)


def test_an_objective_is_missed_by_what_took_longer_than_its_limit(spark: SparkSession) -> None:
    cells = facts(
        spark,
        *({"measure": "waiting", "bin": bin_of(seconds), "n": n} for seconds, n in ((1, 7), (5, 2), (6, 1))),
        {"measure": "waiting", "bin": bin_of(9), "queue": "other"},
        {"measure": "processing", "bin": bin_of(9)},
    )
    objectives = promised(spark, [Objective("q", "waiting", 95, 5.0), Objective("q", "waiting", 50, 0.5)])

    found = only(burned(cells, objectives))

    assert [tuple(each) for each in found.objectives] == [
        ("waiting", 50, 0.5, 10, 10),
        ("waiting", 95, 5.0, 10, 1),
    ]


def test_a_bucket_with_an_error_and_no_count_has_a_row_too(spark: SparkSession) -> None:
    frame = ended(spark, {"last_error": "no route", "outcome": "dead", "ended_at": T0 + HOUR})
    known = covered(spark, "dead", "sent", until=FAR)
    cells = counted(
        [facts_of_ended(frame, known, SPAN), facts_of_samples(samples(spark, {"dead": 1}), known, SPAN)]
    )
    errors = errors_of(frame, SPAN)

    hours = by_bucket(cells, errors, promised(spark, []), 5)
    whole = by_queue(cells, errors, 5)

    assert told(hours, "start", "dead", "fatal_count") == {(T0, 1, 0), (T0 + HOUR, 0, 1)}
    assert told(whole, "queue", "dead", "fatal_count", "done") == {("q", 1, 1, 0)}
    assert (tuple(hours.columns), tuple(whole.columns)) == (INSIGHT, TOTAL)


def test_a_message_in_the_lake_and_in_the_archive_counts_once(spark: SparkSession) -> None:
    lake = ended(spark, {"id": 1}, {"id": 2})
    archive = ended(spark, {"id": 2}, {"id": 3}, {"id": 1, "queue": "other"})

    assert told(once(lake, archive), "queue", "id") == {("q", 1), ("q", 2), ("q", 3), ("other", 1)}
    assert once(lake, archive).count() == 4


def test_the_archive_and_the_lake_have_the_same_shape(spark: SparkSession) -> None:
    rows = ended(spark, {"last_error": "x" * 5000})

    archived = from_archive(rows.withColumnRenamed("outcome", "state"))
    stored = from_lake(rows)

    assert archived.columns == stored.columns == list(ENDED)
    assert {len(only(frame).last_error) for frame in (archived, stored)} == {1000}


def test_a_dead_letter_is_a_message_that_ended_as_dead_in_the_queue_it_came_from(spark: SparkSession) -> None:
    origin = {
        "queue": "q", "id": 7, "enqueued_at": "2030-01-01T00:00:10+00:00", "deliveries": 5, "failures": 4,
        "ordering_key": "k",
    }  # fmt: skip
    letters = spark.createDataFrame(
        [(T0 + MINUTE, "boom", json.dumps(origin)), (T0 + HOUR, None, "{}")],
        "enqueued_at TIMESTAMP, last_error STRING, origin STRING",
    )

    found = from_dead(letters, "q")

    names = ("id", "outcome", "enqueued_at", "ended_at", "deliveries", "failures", "ordering_key")
    assert found.columns == list(ENDED)
    assert told(found, *names) == {
        (7, "dead", T0 + 10 * SECOND, T0 + MINUTE, 5, 4, "k"),
        (None, "dead", T0 + HOUR, T0 + HOUR, 0, 0, None),
    }


def test_no_messages_make_no_rows(spark: SparkSession) -> None:
    nothing = spark.createDataFrame([], TYPES)
    cells = counted([facts_of_ended(nothing, no_coverage(spark), SPAN)])

    assert by_queue(cells, errors_of(nothing, SPAN), 5).count() == 0


def test_a_bucket_begins_where_utc_says_also_before_1970(spark: SparkSession) -> None:
    moments = [T0 + timedelta(minutes=59, seconds=59), T0.replace(year=1969) + timedelta(minutes=1)]
    frame = spark.createDataFrame([(each,) for each in moments], "at TIMESTAMP")

    found = frame.select(bucket_of(F.col("at"), HOUR).alias("start"))

    assert told(found, "start") == {(T0,), (T0.replace(year=1969),)}
    assert [floored(moments[0], HOUR), raised(moments[0], HOUR), raised(T0, HOUR)] == [T0, T0 + HOUR, T0]


@pytest.mark.parametrize(
    ("keep", "complete", "expected"),
    [
        (["done", "failed", "expired", "discarded"], True, {"sent", "dead"}),
        (["done"], True, {"sent", "dead", "failed", "expired", "discarded", "retries"}),
        (["done"], False, {"sent", "dead", "done", "failed", "expired", "discarded", "retries"}),
        (
            [],
            True,
            {"sent", "dead", "done", "failed", "expired", "discarded", "retries", "waiting", "processing"},
        ),
    ],
)
def test_samples_are_asked_for_what_is_not_kept(keep: list[str], complete: bool, expected: set[str]) -> None:
    assert set(sampled_measures(keep, complete=complete)) == expected
