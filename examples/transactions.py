"""One transaction for your own rows and for the queue: both take effect, or neither does."""

from __future__ import annotations

import sys

import psycopg

from holdfast import EmbeddedError, Holdfast, LeaseLostError
from holdfast.database import database

QUEUE = "example.transactions"


def place_order(holdfast: Holdfast, number: int) -> None:
    """An order and the message about it: there is never one without the other."""
    with holdfast.transaction() as transaction:
        transaction.connection.execute("insert into example_order values (%s, 'placed')", [number])
        transaction.send(QUEUE, {"order": number})


def ship_order(holdfast: Holdfast) -> None:
    """The work and its ack together. `strict` undoes the work if the lease was lost meanwhile."""
    (delivery,) = holdfast.claim(QUEUE)
    try:
        with holdfast.transaction() as transaction:
            update = "update example_order set state = 'shipped' where number = %s"
            transaction.connection.execute(update, [delivery.payload["order"]])
            transaction.ack(QUEUE, delivery.token, [delivery.id], strict=True)
    except LeaseLostError:
        print("somebody else ships it")


def cancel_order(connection: psycopg.Connection[tuple[object, ...]], number: int) -> None:
    """The same on a connection of your own: Holdfast never commits it, you do."""
    connection.execute("update example_order set state = 'cancelled' where number = %s", [number])
    Holdfast(connection=connection).send(QUEUE, {"cancelled": number})
    connection.commit()


def main() -> None:
    with (
        database(create=False) as url,
        Holdfast(url) as holdfast,
        psycopg.connect(url) as connection,
    ):
        connection.execute("drop table if exists example_order")
        connection.execute("create table example_order (number int, state text)")
        connection.commit()
        holdfast.create_queue(QUEUE)
        place_order(holdfast, 1)
        ship_order(holdfast)
        place_order(holdfast, 2)
        cancel_order(connection, 2)
        for number, state in connection.execute("select * from example_order order by 1").fetchall():
            print(f"order {number}: {state}")
        holdfast.drop_queue(QUEUE)


if __name__ == "__main__":
    try:
        main()
    except EmbeddedError as error:
        sys.exit(f"{error.message}. {error.hint}")
