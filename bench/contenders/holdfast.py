"""Holdfast, through the same SQL functions that its clients call."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from bench.contenders.contender import FILLER, QUEUE, SCHEDULED_AT_ONCE, Batch
from bench.link import Link, array, column
from holdfast.migrate import migrate

if TYPE_CHECKING:
    from psycopg.pq.abc import PGresult

STATEMENTS = {
    "send": "select holdfast.send(queue => $1, payload => $2::jsonb)",
    "send_batch": "select holdfast.send_batch(queue => $1, payloads => $2::jsonb[])",
    "claim": "select * from holdfast.claim(queue => $1, max => $2, alone => true)",
    "hold": "select * from holdfast.claim(queue => $1, max => $2, lease => $3::interval, alone => true)",
    "ack": "select * from holdfast.ack(queue => $1, token => $2)",
    "ack_some": "select * from holdfast.ack(queue => $1, token => $2, ids => $3::bigint[])",
    "nack": "select * from holdfast.nack("
    "queue => $1, token => $2, ids => $3::bigint[], delay => $4::interval)",
    "next": "select * from holdfast.next(queue => $1, token => $2, max => $3, alone => true)",
    "read": 'select seq, payload from holdfast.read(queue => $1, after => $2, "limit" => $3)',
    "send_key": f"select holdfast.send($1, {FILLER}, key => n::text) from nextval('n') n",
    "send_once": f"select holdfast.send($1, {FILLER}, idempotency_key => n::text) from nextval('n') n",
    "take_rate": "select holdfast.take_rate($1, 1000000)",
    "why": "select finding from holdfast.why(queue => $1)",
    "stats": "select depth from holdfast.queue_stats(queue => $1)",
}
NAME = QUEUE.encode()
TOKEN, ID = 0, 1


class HoldfastSession:
    def __init__(self, url: str) -> None:
        self.link = Link(url, STATEMENTS)

    def send(self, payload: bytes) -> None:
        self.link.call("send", NAME, payload)

    def send_batch(self, payloads: bytes) -> None:
        self.link.call("send_batch", NAME, payloads)

    def claim(self, size: int) -> Batch:
        return _batch(self.link.call("claim", NAME, b"%d" % size))

    def hold(self, size: int, lease_s: int) -> Batch:
        return _batch(self.link.call("hold", NAME, b"%d" % size, b"%d s" % lease_s))

    def ack(self, batch: Batch) -> int:
        return _settled(self.link.call("ack", NAME, batch.token))

    def ack_and_nack(self, batch: Batch, nacked: int, delay_s: float) -> int:
        kept = len(batch.ids) - nacked
        settled = _settled(self.link.call("ack_some", NAME, batch.token, array(batch.ids[:kept])))
        if nacked:
            self.link.call("nack", NAME, batch.token, array(batch.ids[kept:]), b"%f s" % delay_s)
        return settled

    def next(self, batch: Batch, size: int) -> Batch:
        return _batch(self.link.call("next", NAME, batch.token, b"%d" % size))

    def stats(self) -> int:
        return int(column(self.link.call("stats", NAME), 0)[0])


class Holdfast:
    name = "Holdfast"
    holding_size = 10  # a lease is a row

    @property
    def version(self) -> str:
        return version("holdfast")

    def install(self, url: str) -> None:
        migrate(url)
        link = Link(url)
        link.run(f"select holdfast.create_queue('{QUEUE}')")
        link.close()

    def divide(self, url: str, shards: int) -> None:
        link = Link(url)
        link.run(f"""select holdfast.configure_queue('{QUEUE}', '{{"shards": {shards}}}')""")
        link.close()

    def schedule(self, url: str, messages: int) -> None:
        link = Link(url)
        for _ in range(messages // SCHEDULED_AT_ONCE):
            link.run(
                f"insert into holdfast.inbox (queue, payload, deliver_at) select '{QUEUE}', {FILLER},"
                f" now() + interval '1 day' from generate_series(1, {SCHEDULED_AT_ONCE}) n"
            )
        link.close()

    def session(self, url: str) -> HoldfastSession:
        return HoldfastSession(url)


def _batch(result: PGresult) -> Batch:
    return Batch(column(result, ID), result.get_value(0, TOKEN) or b"" if result.ntuples else b"")


def _settled(result: PGresult) -> int:
    """How many ids the settlement's first array holds."""
    ids = result.get_value(0, 0) or b"{}"
    return ids.count(b",") + 1 if len(ids) > 2 else 0
