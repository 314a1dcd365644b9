"""holdfast seal, and what it makes of holdfast send."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Run
from tests.seals.plainly import Pair, pair, plainly_opened

SECRET = "Heiligenstadt"


@pytest.fixture
def orders(conn: psycopg.Connection[Any]) -> str:
    """A queue."""
    conn.execute("select holdfast.create_queue('orders')")
    return "orders"


@pytest.fixture
def keys(tmp_path: Path) -> Pair:
    """A pair of keys, in files too."""
    made = pair()
    (tmp_path / "private.pem").write_bytes(made.private)
    (tmp_path / "public.pem").write_text(made.public)
    return made


def test_what_is_sent_is_sealed_and_opened_again(run: Run, orders: str, keys: Pair, tmp_path: Path) -> None:
    private = str(tmp_path / "private.pem")
    (tmp_path / "lines").write_text(f'{{"town": "{SECRET}"}}\n\n[1.50]\n')
    (tmp_path / "body").write_bytes(SECRET.encode())
    id = run("seal", "set", orders, str(tmp_path / "public.pem"), "--json").document["id"]

    run("send", orders, json.dumps(SECRET))
    run("send", orders, "--file", str(tmp_path / "lines"))
    run("send", orders, "--body", str(tmp_path / "body"), "--content-type", "text/plain")
    claimed = run("claim", orders, "--max", "9", "--json")
    opened = run("seal", "open", "--key", private, "--json", stdin=claimed.out)

    assert SECRET not in claimed.out
    bodies = [b64decode(each["body"]) for each in claimed.lines]
    assert [plainly_opened(body, keys.private)[1] for body in bodies] == [
        f'"{SECRET}"'.encode(),
        f'{{"town": "{SECRET}"}}'.encode(),
        b"[1.50]",
        SECRET.encode(),
    ]
    assert [each["payload"] for each in opened.lines] == [SECRET, {"town": SECRET}, [1.5], None]
    assert b64decode(opened.lines[3]["body"]).decode() == SECRET
    assert (opened.lines[3]["content_type"], opened.lines[3]["key_id"]) == ("text/plain", id)
    assert [each["id"] for each in opened.lines] == [each["id"] for each in claimed.lines]
    (tmp_path / "one").write_bytes(bodies[0])
    assert SECRET in run("seal", "open", str(tmp_path / "one"), "--key", private).out


def test_keys_are_listed_and_dropped(run: Run, orders: str, keys: Pair) -> None:
    told = run("seal", "set", orders, "-", stdin=keys.public)
    (listed,) = run("seal", "keys", orders, "--json").lines

    assert told.out == f"Messages of orders are sealed with {listed['id']} from now on.\n"
    assert (listed["kind"], listed["public_key"], listed["dropped_at"]) == ("x25519", keys.public, None)
    assert listed["id"] in run("seal", "keys", orders).out
    assert run("seal", "drop", orders, listed["id"], "--yes", "--json").document["dropped"] is True
    assert (
        run("seal", "drop", orders, listed["id"], "--yes").out == f"Queue orders has no key {listed['id']}.\n"
    )
    run("send", orders, "1")
    assert run("claim", orders, "--json").lines[0]["payload"] == 1


def test_a_private_key_is_not_set(run: Run, orders: str, keys: Pair) -> None:
    refused = run("seal", "set", orders, "-", stdin=keys.private.decode())

    assert (refused.code, "QH110" in refused.err) == (1, True)
    assert keys.private.decode().splitlines()[1] not in refused.err


def test_what_cannot_be_opened_is_told(run: Run, orders: str, keys: Pair, tmp_path: Path) -> None:
    run("seal", "set", orders, "-", stdin=keys.public)
    run("send", orders, "1")
    claimed = run("claim", orders, "--json").out
    (tmp_path / "other.pem").write_bytes(pair().private)
    private = str(tmp_path / "private.pem")

    missing = run("seal", "open", "--key", str(tmp_path / "other.pem"), stdin=claimed)
    assert (missing.code, "QH243" in missing.err) == (1, True)
    assert "holdfast seal keys QUEUE" in missing.err
    assert run("seal", "open", "--key", private, stdin='{"payload": 1}\n').code == 4
    assert run("seal", "open", "--key", private, stdin="x").code == 2
    assert run("seal", "open", "--key", str(tmp_path / "none.pem"), stdin=claimed).code == 2
    both = ["--key", str(tmp_path / "other.pem"), "--key", private]
    assert run("seal", "open", *both, "--json", stdin=claimed).lines[0]["payload"] == 1
