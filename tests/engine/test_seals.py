"""Public keys of queues in SQL: nothing comes in unsealed, and nothing says what was.

1. Keys of both kinds are taken in whatever PEM, and known by the SHA-256 of their DER.
2. Every way in takes envelopes for a key of the queue, and nothing else: staged rows and repairs too.
3. Moves do not ask.
4. A batch that is sent once is known by the hashes of what is sealed.
5. The key of the hash is made once, is told to senders only, and goes with the queue.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import seal
from tests.engine.engine import Engine
from tests.seals.plainly import Pair, pair

KEYS = pair()


def id_of(keys: Pair) -> str:
    """What a public key is known by."""
    return hashlib.sha256(b64decode("".join(keys.public.splitlines()[1:-1]))).hexdigest()


def envelope(payload: Any = 1, **options: Any) -> bytes:
    """A sealed payload."""
    return seal("q", payload, public_key=KEYS.public, **options)


@pytest.fixture
def sealed(queue: Engine) -> Engine:
    """The engine, with a queue `q` that has a key."""
    queue.value("set_seal_key", queue="q", public_key=KEYS.public)
    return queue


def refused(call: Any) -> str:
    """The detail of a refusal for want of a seal."""
    with pytest.raises(psycopg.Error) as caught:
        call()
    assert caught.value.sqlstate == "QH241"
    return caught.value.diag.message_detail or ""


@pytest.mark.parametrize(("kind", "bits"), [("x25519", 0), ("rsa", 2048), ("rsa", 3072), ("rsa", 4096)])
def test_keys_are_known_by_their_hash(queue: Engine, kind: str, bits: int) -> None:
    keys = pair(kind, bits)
    ragged = keys.public.replace("\n", "\r\n  ") + "\n\n"

    assert queue.value("set_seal_key", queue="q", public_key=ragged) == id_of(keys)

    (row,) = queue.rows("seal_keys", queue="q")
    assert (row["id"], row["kind"], row["public_key"]) == (id_of(keys), kind, keys.public)


@pytest.mark.parametrize(
    "change",
    [
        lambda der: der[:-1],
        lambda der: der + b"\0",
        lambda der: b"\x31" + der[1:],
        lambda der: der[:10] + b"\x6f" + der[11:],  # another algorithm
        lambda der: b"",
    ],
)
def test_what_is_nearly_a_key_is_none(queue: Engine, change: Any) -> None:
    for keys in (KEYS, pair("rsa")):
        der = change(b64decode("".join(keys.public.splitlines()[1:-1])))
        pem = f"-----BEGIN PUBLIC KEY-----\n{b64encode(der).decode()}\n-----END PUBLIC KEY-----\n"
        with pytest.raises(psycopg.Error) as caught:
            queue.value("set_seal_key", queue="q", public_key=pem)
        assert caught.value.sqlstate == "QH110"


def test_an_envelope_is_taken_by_every_way_in(sealed: Engine) -> None:
    body = envelope()

    sealed.value("send", queue="q", body=body)
    sealed.value("send", queue="q", body=body, priority=3, idempotency_key="a")
    sealed.value("send_many", queue="q", messages=Jsonb([{"body": b64encode(body).decode()}]))
    sealed.conn.execute("insert into holdfast.inbox (queue, body) values ('q', %s)", [body])

    assert sealed.stats()["ready"] == 4


def test_of_several_the_one_to_blame_is_named(sealed: Engine) -> None:
    messages = Jsonb([{"body": b64encode(envelope()).decode()}, {"payload": 1}])

    assert refused(lambda: sealed.value("send_many", queue="q", messages=messages)).startswith(
        "messages[1]: "
    )
    batch = [Jsonb(1), Jsonb(2)]
    assert refused(lambda: sealed.value("send_batch", queue="q", payloads=batch)).startswith("messages[0]: ")


def stage(engine: Engine, *bodies: bytes | None, key: str | None = None) -> int:
    """A stage with these bodies; where there is none, with a payload."""
    number: int = engine.value("open_stage", queue="q", write_id="w", run="r", part=0)
    for n, body in enumerate(bodies, 1):
        engine.conn.execute(
            "insert into holdfast.staged (stage, n, payload, body, key) values (%s, %s, %s, %s, %s)",
            [number, n, Jsonb(n) if body is None else None, body, key],
        )
    return number


def test_staged_rows_that_are_not_sealed_are_taken_out(sealed: Engine) -> None:
    number = stage(sealed, envelope(), None)

    (bad,) = sealed.rows("check_staged", queue="q", stage=number)

    assert (bad["n"], bad["code"]) == (2, "QH241")
    sent = sealed.row("send_staged", queue="q", write_id="w", stages=[number], messages=1)
    assert sent == {"sent": 1, "repeated": False}


@pytest.mark.parametrize("key", [None, "k"])
def test_staged_rows_are_not_sent_unsealed(sealed: Engine, key: str | None) -> None:
    number = stage(sealed, None, key=key)

    refused(lambda: sealed.rows("send_staged", queue="q", write_id="w", stages=[number], messages=1))

    assert sealed.stats()["depth"] == 0


def test_a_repair_brings_an_envelope_or_leaves_the_content_alone(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.send("in clear")
    engine.send("in clear, too")
    engine.value("set_seal_key", queue="q", public_key=KEYS.public)
    for held in engine.claim(2):
        engine.rows("nack", queue="q", token=held["token"], ids=[held["id"]])
    ids = [row["id"] for row in engine.rows("browse", queue="q", state="dead")]
    number = engine.value("open_stage", queue="q", write_id="w", run="r", part=0)
    engine.conn.execute(
        "insert into holdfast.staged (stage, n, payload, tag) values (%s, %s, %s, 'a'), (%s, %s, '1', 'a')",
        [number, ids[0], Jsonb("in clear"), number, ids[1]],
    )

    columns = ["payload", "body", "tag"]
    (bad,) = engine.rows("check_redrive", queue="q", stage=number, columns=columns)

    assert (bad["n"], bad["code"]) == (ids[1], "QH241")
    (back,) = engine.rows("redrive_staged", queue="q", stage=number, columns=columns)
    assert (back["id"], back["stays"]) == (ids[0], None)


def test_moves_do_not_ask(engine: Engine) -> None:
    engine.create("q", max_deliveries=1, keep=["done"])
    engine.send("in clear")
    engine.value("set_seal_key", queue="q", public_key=KEYS.public)
    held = engine.claim_one()
    engine.rows("nack", queue="q", token=held["token"])

    engine.rows("redrive", queue="q")
    again = engine.claim_one()
    engine.rows("ack", queue="q", token=again["token"])
    engine.rows("replay", queue="q")

    assert engine.claim_one()["payload"] == "in clear"


def test_a_batch_that_is_sent_once_is_known_by_its_hashes(sealed: Engine) -> None:
    key = sealed.row("sealing", queue="q")["digest_key"]

    def once(*payloads: Any) -> dict[str, Any]:
        bodies = [envelope(each, idempotency_key="k", digest_key=bytes(key)) for each in payloads]
        messages = Jsonb([{"body": b64encode(body).decode()} for body in bodies])
        return sealed.row("send_once", queue="q", messages=messages, idempotency_key="k")

    first = once(1, 2)

    assert first["deduped"] is False
    assert once(1, 2) == {"ids": first["ids"], "deduped": True}
    with pytest.raises(psycopg.Error) as caught:
        once(1, 3)
    assert caught.value.sqlstate == "QH222"


def test_the_key_of_the_hash_stays_until_the_queue_goes(sealed: Engine) -> None:
    first = sealed.row("sealing", queue="q")["digest_key"]
    other = pair("rsa")
    sealed.value("set_seal_key", queue="q", public_key=other.public)

    second = sealed.row("sealing", queue="q")
    assert (second["key_id"], second["digest_key"], len(first)) == (id_of(other), first, 32)

    sealed.value("drop_queue", queue="q")
    assert sealed.look("select count(*) from holdfast.seal_key") == 0
    assert sealed.look("select count(*) from holdfast.seal_secret") == 0
    sealed.create("q")
    sealed.value("set_seal_key", queue="q", public_key=KEYS.public)
    assert sealed.row("sealing", queue="q")["digest_key"] != first


def test_without_its_secret_a_queue_still_seals_and_gets_another(sealed: Engine) -> None:
    sealed.conn.execute("delete from holdfast.seal_secret")

    assert sealed.row("sealing", queue="q")["digest_key"] is None
    sealed.value("set_seal_key", queue="q", public_key=KEYS.public)

    assert sealed.row("sealing", queue="q")["digest_key"] is not None


def test_a_queue_without_a_key_takes_anything(queue: Engine) -> None:
    assert queue.rows("sealing", queue="q") == []

    queue.value("send", queue="q", body=b"HFE1")
    queue.value("send", queue="q", body=envelope(), idempotency_key="a")
    queue.value("send", queue="q", body=b"HFE1\0\x02[]" + b"x" * 16, idempotency_key="b")

    assert queue.stats()["ready"] == 3
