"""What an error of the database means: is there one, did something happen, and whose fault is it."""

from __future__ import annotations

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from holdfast.client import HoldfastError, OutcomeUnknownError, UnavailableError

# Connection trouble, a server that starts or stops, one that takes no more connections, a standby.
GONE = ("08", "57P", "53300", "25006")
# Of these, it has certainly not begun.
REFUSED = ("57P03", "53300", "25006")
# Out of memory or disk, a lock that was not to be had, too long: rolled back, and perhaps better later.
MOMENTARY = ("53", "55P03", "57014")
HELD_UP = "55P03"
NO_CONNECTION = (PoolTimeout, PoolClosed, TooManyRequests)

AGAIN = "Ask again; with an idempotency key nothing is sent again while the first message lives."


def is_gone(error: BaseException) -> bool:
    """Whether there is no database to talk to; what was asked may have happened or not."""
    if not isinstance(error, psycopg.Error) or isinstance(error, NO_CONNECTION):
        return False
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(GONE)


def is_momentary(error: BaseException) -> bool:
    """Whether nothing has happened, for a reason that may be over soon."""
    if isinstance(error, NO_CONNECTION):
        return True
    return isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(MOMENTARY)


def is_held_up(error: BaseException) -> bool:
    """Whether nothing has happened, since somebody else keeps what it takes."""
    return isinstance(error, psycopg.Error) and error.sqlstate == HELD_UP


def may_be_of_one(error: BaseException) -> bool:
    """Whether nothing has happened, by the fault of what may be one among several that were asked for."""
    if isinstance(error, UnavailableError) or is_gone(error) or is_momentary(error):
        return False
    return isinstance(error, HoldfastError) or (isinstance(error, psycopg.Error) and bool(error.sqlstate))


def unavailable(error: BaseException) -> UnavailableError | None:
    """What to answer while the database cannot do its work; None if it can."""
    if isinstance(error, UnavailableError):
        return error
    if isinstance(error, NO_CONNECTION):
        return UnavailableError(
            "QH930", "no connection to the database is free", "Nothing was done.", "Ask again."
        )
    if isinstance(error, psycopg.Error) and error.sqlstate in REFUSED:
        return away()
    if is_gone(error):
        return OutcomeUnknownError(
            "QH932",
            "the database went away during the request",
            "Whether the request took effect is not known.",
            AGAIN,
        )
    if is_momentary(error):
        detail = f"It says: {said(error)}. Nothing was done."
        return UnavailableError("QH930", "the database cannot do this now", detail, "Ask again.")
    return None


def away() -> UnavailableError:
    """What to answer while it is known that there is no database: nothing is even tried."""
    return UnavailableError("QH930", "the database does not answer", "Nothing was done.", "Ask again.")


def crowded() -> UnavailableError:
    """What to answer where too many wait already for somebody else's transaction."""
    detail = "Another transaction keeps what this takes, and others wait for it already. Nothing was done."
    return UnavailableError("QH930", "the database cannot do this now", detail, "Ask again.")


def interrupted() -> OutcomeUnknownError:
    """What to answer when a server that ends breaks a request off."""
    return OutcomeUnknownError(
        "QH932", "the server is shutting down", "Whether the request took effect is not known.", AGAIN
    )


def said(error: BaseException) -> str:
    """What an error says, in a line; of one of the database, without what it quotes in its details."""
    text = error.message if isinstance(error, HoldfastError) else None
    if isinstance(error, psycopg.Error):
        text = error.diag.message_primary
    return text or " ".join(str(error).split()) or type(error).__name__
