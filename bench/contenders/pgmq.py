"""pgmq, the best known of the plain designs: the lease is in the message's row. Its wheel brings the SQL."""

from __future__ import annotations

from importlib.resources import files

from bench.contenders.contender import FILLER, LEASE_S, QUEUE, SCHEDULED_AT_ONCE, Batch
from bench.link import Link, array, column

STATEMENTS = {
    "send": "select * from pgmq.send($1, $2::jsonb)",
    "send_batch": "select * from pgmq.send_batch($1, $2::jsonb[])",
    "read": "select * from pgmq.read($1, $2, $3)",
    "delete": "select * from pgmq.delete($1, $2::bigint)",
    "delete_batch": "select * from pgmq.delete($1, $2::bigint[])",
    "set_vt": "select * from pgmq.set_vt($1, $2::bigint[], clock_timestamp() + $3::interval)",
    "metrics": "select queue_length from pgmq.metrics($1)",
}
NAME = QUEUE.encode()


class PgmqSession:
    def __init__(self, url: str) -> None:
        self.link = Link(url, STATEMENTS)

    def send(self, payload: bytes) -> None:
        self.link.call("send", NAME, payload)

    def send_batch(self, payloads: bytes) -> None:
        self.link.call("send_batch", NAME, payloads)

    def claim(self, size: int) -> Batch:
        return self.hold(size, LEASE_S)

    def hold(self, size: int, lease_s: int) -> Batch:
        return Batch(column(self.link.call("read", NAME, b"%d" % lease_s, b"%d" % size), 0))

    def ack(self, batch: Batch) -> int:
        if len(batch.ids) == 1:
            return column(self.link.call("delete", NAME, batch.ids[0]), 0).count(b"t")
        return self.link.call("delete_batch", NAME, array(batch.ids)).ntuples

    def ack_and_nack(self, batch: Batch, nacked: int, delay_s: float) -> int:
        kept = len(batch.ids) - nacked
        settled = self.link.call("delete_batch", NAME, array(batch.ids[:kept])).ntuples
        if nacked:
            self.link.call("set_vt", NAME, array(batch.ids[kept:]), b"%f s" % delay_s)
        return settled

    def next(self, batch: Batch, size: int) -> Batch:
        self.ack(batch)
        return self.claim(size)

    def stats(self) -> int:
        return int(column(self.link.call("metrics", NAME), 0)[0])


class Pgmq:
    name = "pgmq"
    holding_size = 1_000  # each is a row either way; small reads would only take long to make them

    @property
    def version(self) -> str:
        return _packaged("VERSION").strip()

    def install(self, url: str) -> None:
        link = Link(url)
        link.run(_packaged("pgmq.sql"))
        link.run(f"select pgmq.create('{QUEUE}')")
        link.close()

    def divide(self, url: str, shards: int) -> None:
        """Its claims skip what others have locked: there is nothing to set."""

    def schedule(self, url: str, messages: int) -> None:
        link = Link(url)
        for _ in range(messages // SCHEDULED_AT_ONCE):
            link.run(
                f"select pgmq.send_batch('{QUEUE}', array_agg({FILLER}), 86400)"
                f" from generate_series(1, {SCHEDULED_AT_ONCE}) n"
            )
        link.close()

    def session(self, url: str) -> PgmqSession:
        return PgmqSession(url)


def _packaged(name: str) -> str:
    return files("pgmq").joinpath("sql", name).read_text(encoding="utf-8")
