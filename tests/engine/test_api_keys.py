"""API keys: who is let in by the HTTP server, and what of them is kept.

1. A key is made with what it may do; scopes and patterns are kept once each, in order.
2. No function shows a hash, and nobody but an admin finds or lists keys.
3. find_key knows a key by its secret, by the one before during its grace, and by a login; by nothing else.
4. A key ends by its expiry, by the clock, and by being revoked; with it end its logins.
5. A login ends after its time, with the secret it was got for, and cannot be exchanged for another.
6. has_keys stays true once there was a key.
7. Every change notifies servers; looking and being used does not.
8. When a key was last used is written at most every half minute, and nobody waits for it.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine, Row
from tests.fix_database import Connect

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def hashed(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


@pytest.fixture
def keys(engine: Engine) -> Engine:
    """The engine with its clock at T0, and no keys."""
    engine.at(T0)
    return engine


def make(engine: Engine, secret: str = "first", **arguments: Any) -> int:
    """A key with this secret."""
    given = {"name": "shop", "prefix": "hf_", "hash": hashed(secret), "scopes": ["send"]} | arguments
    return int(engine.value("create_key", **given))


def rotate(engine: Engine, id: int, secret: str, **arguments: Any) -> bool:
    """Give a key this secret."""
    return bool(engine.value("rotate_key", id=id, prefix="hf_", hash=hashed(secret), **arguments))


def log_in(engine: Engine, secret: str, token: str, **arguments: Any) -> Any:
    """Exchange a secret for a token; until when it counts."""
    return engine.value("begin_login", hash=hashed(secret), token=hashed(token), **arguments)


def find(engine: Engine, secret: str) -> Row | None:
    """What a server finds by a secret or a token."""
    rows = engine.rows("find_key", hash=hashed(secret))
    assert len(rows) <= 1
    return rows[0] if rows else None


def is_valid(engine: Engine, secret: str) -> bool:
    return find(engine, secret) is not None


# --- 1. making keys --------------------------------------------------------------------------------


def test_a_key_has_what_it_was_made_with(keys: Engine) -> None:
    id = make(
        keys,
        prefix="hf_abcdefgh",
        scopes=["send", "read"],
        queues=["orders*"],
        expires_in="1 day",
        rate=2.5,
        burst=10,
    )

    assert keys.rows("keys") == [
        {
            "id": id,
            "name": "shop",
            "prefix": "hf_abcdefgh",
            "scopes": ["send", "read"],
            "queues": ["orders*"],
            "rate": 2.5,
            "burst": 10,
            "created_at": T0,
            "expires_at": T0 + timedelta(days=1),
            "last_used_at": None,
            "revoked_at": None,
        }
    ]


def test_by_default_a_key_reaches_all_queues_without_limit_or_end(keys: Engine) -> None:
    make(keys)

    key = keys.row("keys")
    assert (key["queues"], key["rate"], key["burst"], key["expires_at"]) == (["*"], None, None, None)


def test_scopes_and_patterns_are_kept_once_each_in_order(keys: Engine) -> None:
    make(keys, scopes=["admin", "send", "admin"], queues=["b", "a", "b"])

    key = keys.row("keys")
    assert (key["scopes"], key["queues"]) == (["send", "admin"], ["a", "b"])


def test_a_key_with_a_rate_can_be_made_in_any_transaction(keys: Engine) -> None:
    with keys.conn.transaction():
        keys.conn.execute("set transaction isolation level serializable")
        make(keys, rate=1)

    assert keys.row("keys")["rate"] == 1


def test_a_key_of_a_transaction_that_rolls_back_never_was(keys: Engine) -> None:
    with keys.conn.transaction(force_rollback=True):
        make(keys)

    assert not is_valid(keys, "first")
    assert keys.value("has_keys") is False


@pytest.mark.parametrize("name", ["x" * 64, "Müller's shop – 注文", " a "])
def test_a_name_may_be_any_text_of_one_line(keys: Engine, name: str) -> None:
    make(keys, name=name)

    assert keys.row("keys")["name"] == name


# --- 2. what is shown ------------------------------------------------------------------------------


def test_no_function_shows_a_hash(keys: Engine) -> None:
    id = make(keys, "first")
    rotate(keys, id, "second", grace="1 h")

    shown = str(keys.rows("keys")) + str(find(keys, "second")) + str(find(keys, "first"))

    assert str(hashed("first")) not in shown
    assert str(hashed("second")) not in shown
    assert not {"hash", "old_hash"} & set(keys.row("keys"))


@pytest.mark.parametrize("role", ["producer", "consumer", "monitor", "admin"])
def test_no_role_can_read_the_tables_of_keys(keys: Engine, role: str) -> None:
    for table in ("api_key", "api_login"):
        right = "select has_any_column_privilege(%s, %s, 'select, insert, update')"
        assert keys.look(right, f"holdfast_{role}", f"holdfast.{table}") is False


# --- 3. finding keys -------------------------------------------------------------------------------


def test_a_key_is_found_by_its_secret_and_by_no_other(keys: Engine) -> None:
    id = make(keys, "first")
    make(keys, "second")

    found = find(keys, "first")

    assert found is not None
    assert found["id"] == id
    assert not is_valid(keys, "third")
    assert keys.rows("find_key", hash=None) == []
    assert keys.rows("find_key", hash=b"") == []


def test_a_rotated_key_is_the_same_key_with_another_secret(keys: Engine) -> None:
    id = make(keys, "old", scopes=["read"])

    assert rotate(keys, id, "new") is True

    found = find(keys, "new")
    assert found is not None
    assert (found["id"], found["scopes"]) == (id, ["read"])
    assert not is_valid(keys, "old")


def test_an_old_secret_stays_valid_for_its_grace_and_no_longer(keys: Engine) -> None:
    rotate(keys, make(keys, "old"), "new", grace="1 h")

    keys.at(T0 + HOUR - MINUTE)
    found = find(keys, "old")
    assert found is not None
    assert found["expires_at"] == T0 + HOUR
    keys.at(T0 + HOUR)
    assert not is_valid(keys, "old")
    assert is_valid(keys, "new")


def test_a_key_has_two_secrets_at_most(keys: Engine) -> None:
    id = make(keys, "first")
    rotate(keys, id, "second", grace="1 h")
    rotate(keys, id, "third", grace="1 h")

    assert [is_valid(keys, secret) for secret in ("first", "second", "third")] == [False, True, True]


def test_a_grace_does_not_outlive_the_key(keys: Engine) -> None:
    rotate(keys, make(keys, "old", expires_in="10 min"), "new", grace="1 h")

    found = find(keys, "old")
    assert found is not None
    assert found["expires_at"] == T0 + 10 * MINUTE


# --- 4. the end of keys ----------------------------------------------------------------------------


def test_a_key_expires_by_the_clock(keys: Engine) -> None:
    make(keys, expires_in="1 h")

    keys.at(T0 + HOUR - timedelta(microseconds=1))
    assert is_valid(keys, "first")
    keys.at(T0 + HOUR)
    assert not is_valid(keys, "first")


def test_a_revoked_key_is_not_found_and_stays_in_the_list(keys: Engine) -> None:
    id = make(keys, "old")
    rotate(keys, id, "new", grace="1 h")

    assert keys.value("revoke_key", id=id) is True

    assert not is_valid(keys, "new")
    assert not is_valid(keys, "old")
    assert keys.row("keys")["revoked_at"] == T0


def test_a_key_is_revoked_once(keys: Engine) -> None:
    id = make(keys)
    keys.value("revoke_key", id=id)
    keys.at(T0 + HOUR)

    assert keys.value("revoke_key", id=id) is False
    assert keys.row("keys")["revoked_at"] == T0


def test_a_key_that_has_expired_can_still_be_revoked(keys: Engine) -> None:
    id = make(keys, expires_in="1 h")
    keys.at(T0 + HOUR)

    assert keys.value("revoke_key", id=id) is True


# --- 5. logins -------------------------------------------------------------------------------------


def test_a_token_stands_for_its_key_for_a_quarter_of_an_hour(keys: Engine) -> None:
    id = make(keys, "first", scopes=["read"], queues=["a"])

    assert log_in(keys, "first", "token") == T0 + 15 * MINUTE

    found = find(keys, "token")
    assert found is not None
    assert (found["id"], found["scopes"], found["queues"]) == (id, ["read"], ["a"])
    assert found["expires_at"] == T0 + 15 * MINUTE
    keys.at(T0 + 15 * MINUTE)
    assert not is_valid(keys, "token")
    assert is_valid(keys, "first")


def test_whoever_has_no_valid_key_cannot_log_in(keys: Engine) -> None:
    make(keys, "ended", expires_in="1 h")
    keys.value("revoke_key", id=make(keys, "revoked"))
    keys.at(T0 + HOUR)

    assert log_in(keys, "unknown", "a") is None
    assert log_in(keys, "ended", "b") is None
    assert log_in(keys, "revoked", "c") is None
    assert not any(is_valid(keys, token) for token in "abc")


def test_a_token_cannot_be_exchanged_for_another(keys: Engine) -> None:
    make(keys, "first")
    log_in(keys, "first", "token")

    assert log_in(keys, "token", "another") is None


def test_a_login_ends_with_its_key(keys: Engine) -> None:
    make(keys, "short", expires_in="5 min")
    id = make(keys, "revoked")
    log_in(keys, "revoked", "token of revoked")

    assert log_in(keys, "short", "token of short") == T0 + 5 * MINUTE
    keys.value("revoke_key", id=id)
    assert not is_valid(keys, "token of revoked")


def test_a_login_ends_with_the_secret_it_was_got_for(keys: Engine) -> None:
    at_once, later = make(keys, "first"), make(keys, "second")
    log_in(keys, "first", "token of first")
    log_in(keys, "second", "token of second")

    rotate(keys, at_once, "first again")
    rotate(keys, later, "second again", grace="5 min")

    assert not is_valid(keys, "token of first")
    found = find(keys, "token of second")
    assert found is not None
    assert found["expires_at"] == T0 + 5 * MINUTE
    assert log_in(keys, "second", "another token") == T0 + 5 * MINUTE
    assert log_in(keys, "second again", "a third token") == T0 + 15 * MINUTE


def test_a_key_has_1000_logins_and_the_first_to_end_makes_room(keys: Engine) -> None:
    make(keys, "first")
    make(keys, "second")
    log_in(keys, "second", "another key's", lasts="1 min")
    for number in range(1000):
        log_in(keys, "first", f"token {number}", lasts=timedelta(minutes=10, seconds=number))
    assert is_valid(keys, "token 0")

    log_in(keys, "first", "one more", lasts="1 h")

    assert not is_valid(keys, "token 0")
    assert all(is_valid(keys, token) for token in ("token 1", "one more", "another key's"))


def test_logins_that_have_ended_are_cleared_away(keys: Engine) -> None:
    make(keys, "first")
    for number in range(3):
        log_in(keys, "first", f"token {number}")
    keys.at(T0 + HOUR)

    log_in(keys, "first", "another")

    assert keys.look("select count(*) from holdfast.api_login") == 1


# --- 6. whether there was a key --------------------------------------------------------------------


def test_once_there_was_a_key_there_always_was_one(keys: Engine) -> None:
    before = keys.value("has_keys")
    id = make(keys, expires_in="1 h")
    keys.value("revoke_key", id=id)
    keys.at(T0 + HOUR)

    assert (before, keys.value("has_keys")) == (False, True)


# --- 7. notifications ------------------------------------------------------------------------------


def heard(conn: psycopg.Connection[Any]) -> list[str]:
    """The channels of notifications that have come."""
    return [each.channel for each in conn.notifies(timeout=0.2)]


def test_every_change_of_keys_notifies_servers(keys: Engine, connect: Connect) -> None:
    listener = connect()
    listener.execute("listen holdfast_keys")

    id = make(keys)
    made = heard(listener)
    rotate(keys, id, "second")
    rotated = heard(listener)
    keys.value("revoke_key", id=id)
    revoked = heard(listener)

    assert made == rotated == revoked == ["holdfast_keys"]


def test_what_changes_no_right_notifies_nobody(keys: Engine, connect: Connect) -> None:
    id = make(keys)
    keys.value("revoke_key", id=make(keys, "second"))
    listener = connect()
    listener.execute("listen holdfast_keys")

    find(keys, "first")
    log_in(keys, "first", "token")
    keys.value("touch_keys", ids=[id])
    keys.value("has_keys")
    keys.value("revoke_key", id=id + 1)

    assert heard(listener) == []


# --- 8. last used ----------------------------------------------------------------------------------


def test_a_key_says_when_it_was_last_used_to_half_a_minute(keys: Engine) -> None:
    used, unused = make(keys, "first"), make(keys, "second")

    def last_used() -> list[Any]:
        return [key["last_used_at"] for key in keys.rows("keys")]

    keys.value("touch_keys", ids=[used, used, 999])
    assert last_used() == [T0, None]
    keys.at(T0 + timedelta(seconds=30))
    keys.value("touch_keys", ids=[used])
    assert last_used() == [T0, None]
    keys.at(T0 + timedelta(seconds=31))
    keys.value("touch_keys", ids=[used, unused])
    assert last_used() == [T0 + timedelta(seconds=31)] * 2
    keys.value("touch_keys", ids=[])
    keys.value("touch_keys", ids=None)


def test_a_server_does_not_wait_for_whoever_changes_a_key(keys: Engine, connect: Connect) -> None:
    id = make(keys, "old")
    other = connect(autocommit=False)
    other.execute("select holdfast.rotate_key(%s, 'hf_', %s)", [id, hashed("new")])
    keys.conn.execute("set lock_timeout = '1 s'")

    keys.value("touch_keys", ids=[id])

    assert is_valid(keys, "old")
    assert keys.row("keys")["last_used_at"] is None
    other.rollback()
