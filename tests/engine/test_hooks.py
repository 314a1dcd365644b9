"""Inbound hooks in SQL: what servers find, and what is left of calls.

1. A slug is known by its hash, until it is replaced and the overlap is over. Five count.
2. A secret is taken sealed only; those that count are shown to servers only, the newest first.
3. A hook fills a work queue, and is announced whenever it changes.
4. Calls are kept as many as the configuration says, for 30 days at most.
5. What is refused has changed nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row

SEALED = "hfs1.0123abcd.c2VhbGVk"
OTHER = "hfs1.0123abcd.b3RoZXI"
HOUR = timedelta(hours=1)


def hashed(n: int) -> bytes:
    return bytes([n]) * 32


def create(engine: Engine, hook: str = "shop", n: int = 1, queue: str | None = None, **config: Any) -> Any:
    return engine.value(
        "create_hook", hook=hook, prefix="slug", hash=hashed(n), config=config, queue=queue
    )


def rotate(engine: Engine, n: int | None = None, **options: Any) -> Any:
    given = {} if n is None else {"prefix": f"slug{n}", "hash": hashed(n)}
    return engine.value("rotate_hook", hook="shop", **given, **options)


def found(engine: Engine, *numbers: int) -> list[Row]:
    return engine.rows("find_hooks", hashes=[hashed(n) for n in numbers])


def record(engine: Engine, *calls: dict[str, Any]) -> int:
    return int(engine.value("record_hook_calls", calls=Jsonb(list(calls))))


def call(nth: int, hook: str = "shop", at: str = "2020-01-01T00:00:00Z") -> dict[str, Any]:
    answer = {"outcome": "accepted", "status": 202, "size": nth, "code": None, "id": nth}
    return {"hook": hook, "at": at, **answer}


def test_slugs_count_until_the_overlap_is_over(engine: Engine) -> None:
    engine.at(T0)
    create(engine)

    until = rotate(engine, 2, overlap="1 hour")
    before = {row["nth"]: row["expires_in"] for row in found(engine, 1, 2, 3)}
    engine.at(T0 + HOUR)
    after = [row["nth"] for row in found(engine, 1, 2, 3)]

    assert until == T0 + HOUR
    assert before == {1: 3600, 2: None}
    assert after == [2]


def test_five_slugs_and_five_secrets_count(engine: Engine) -> None:
    create(engine, signing_secret=SEALED)
    for n in range(2, 9):
        engine.at(T0 + n * HOUR)
        rotate(engine, n, sealed=OTHER if n == 8 else SEALED, overlap="10 days")

    rows = found(engine, *range(1, 9))

    assert sorted(row["nth"] for row in rows) == [4, 5, 6, 7, 8]
    assert {tuple(row["secrets"]) for row in rows} == {(OTHER, *[SEALED] * 4)}


def test_an_overlap_is_never_made_longer(engine: Engine) -> None:
    engine.at(T0)
    create(engine)
    rotate(engine, 2, overlap="1 hour")

    rotate(engine, 3, overlap="10 days")

    assert [row["expires_in"] for row in found(engine, 1, 2, 3)] == [3600, 864_000, None]


def test_a_secret_is_taken_sealed_only(engine: Engine) -> None:
    with pytest.raises(psycopg.Error) as at_first:
        create(engine, signing_secret="whsec_hunter22")
    create(engine)
    with pytest.raises(psycopg.Error) as later:
        rotate(engine, sealed="whsec_hunter22")

    for error in (at_first.value, later.value):
        assert error.sqlstate == "QH874"
        assert "hunter22" not in f"{error} {error.diag.message_detail} {error.diag.message_hint}"


def test_a_secret_is_taken_away_at_once(engine: Engine) -> None:
    create(engine, signing_secret=SEALED)

    engine.value("configure_hook", hook="shop", config={"signing_secret": None})

    assert [row["secrets"] for row in found(engine, 1)] == [[]]


def test_a_log_is_not_filled(engine: Engine) -> None:
    engine.create("log", kind="log")

    configs: tuple[dict[str, Any], ...] = ({}, {"ttl": 60})
    for config in configs:
        with pytest.raises(psycopg.Error) as error:
            create(engine, queue="log", **config)
        assert error.value.sqlstate == "QH602"
    assert engine.rows("hooks") == []


def test_changes_are_announced_and_nothing_else(engine: Engine, open_engine: Open) -> None:
    listener = open_engine().conn
    listener.execute("listen holdfast_hook")

    create(engine)
    engine.value("configure_hook", hook="shop", config={"enabled": False})
    rotate(engine, 2)
    record(engine, call(1))
    engine.value("drop_hook", hook="none")
    engine.value("drop_hook", hook="shop")
    create(engine, "last", 3)

    heard = [notification.payload for notification in listener.notifies(timeout=10, stop_after=5)]
    assert heard == ["shop"] * 4 + ["last"]


def test_calls_are_told_the_last_first_by_pages(engine: Engine) -> None:
    create(engine)

    recorded = record(engine, *[call(n, at=f"2020-01-01T00:00:0{n}Z") for n in (3, 1, 2)], call(4, "gone"))
    first = engine.rows("hook_calls", hook="shop", limit=2)
    rest = engine.rows("hook_calls", hook="shop", before=first[-1]["id"])

    assert recorded == 3
    assert [row["message_id"] for row in [*first, *rest]] == [3, 2, 1]


def test_maintain_keeps_as_many_calls_as_it_is_told(engine: Engine) -> None:
    engine.at(T0)
    create(engine, keep_calls=3)
    create(engine, "none", 2, keep_calls=0)
    create(engine, "all", 3)
    now = T0.isoformat()
    for hook in ("shop", "none", "all"):
        record(engine, *[call(n, hook, now) for n in range(5)])

    engine.value("maintain")

    left = {hook: len(engine.rows("hook_calls", hook=hook)) for hook in ("shop", "none", "all")}
    assert left == {"shop": 3, "none": 0, "all": 5}


def test_maintain_removes_what_is_over(engine: Engine) -> None:
    engine.at(T0)
    create(engine, signing_secret=SEALED)
    record(engine, call(1, at=T0.isoformat()))
    rotate(engine, 2, sealed=OTHER, overlap="1 hour")

    engine.at(T0 + timedelta(days=31))
    engine.value("maintain")

    assert engine.rows("hook_calls", hook="shop") == []
    assert engine.look("select count(*) from holdfast.hook_slug") == 1
    assert engine.look("select count(*) from holdfast.hook_secret") == 1


@pytest.mark.parametrize(
    ("prefix", "hash"),
    [(None, hashed(2)), ("x" * 9, hashed(2)), ("a b", hashed(2)), ("x", None), ("x", b"x")],
)
def test_a_bad_slug_is_refused(engine: Engine, prefix: str | None, hash: bytes | None) -> None:
    with pytest.raises(psycopg.Error) as error:
        engine.value("create_hook", hook="shop", prefix=prefix, hash=hash)

    assert error.value.sqlstate == "QH882"
    assert engine.rows("queues") == []


def test_fields_that_may_differ_do_not_make_a_batch_another(queue: Engine) -> None:
    def once(tag: str, payload: int, ignoring: list[str]) -> bool:
        message = Jsonb([{"payload": payload, "tag": tag}])
        row = queue.row("send_once", queue="q", messages=message, idempotency_key="k", ignoring=ignoring)
        return bool(row["deduped"])

    assert [once("a", 1, ["tag"]), once("b", 1, ["tag"])] == [False, True]
    for tag, payload, ignoring in (("b", 1, []), ("a", 2, ["tag"])):
        with pytest.raises(psycopg.Error) as error:
            once(tag, payload, ignoring)
        assert error.value.sqlstate == "QH222"
