"""Ids: the first id of a message, which it keeps through every move, as a UUID and back.

The UUID is of version 8, whose contents are up to who makes it: the 64 bits of the id in front, so that
UUIDs sort as ids do, and fixed bits behind, by which one that was not made here is told apart.
"""

from __future__ import annotations

from uuid import UUID

MARK_BITS = 58
MARK = int.from_bytes(b"holdfast") & ((1 << MARK_BITS) - 1)
VERSION, VARIANT = 8 << 76, 2 << 62
LARGEST = 2**63 - 1


def uuid_of(id: int) -> str:
    """The UUID of a message, by its first id."""
    high, middle, low = id >> 16, (id >> 4) & 0xFFF, id & 0xF
    return str(UUID(int=high << 80 | VERSION | middle << 64 | VARIANT | low << MARK_BITS | MARK))


def id_of(text: str) -> int | None:
    """The first id in a UUID; None: it was not made here."""
    try:
        number = UUID(text).int
    except ValueError:
        return None
    id = (number >> 80) << 16 | ((number >> 64) & 0xFFF) << 4 | (number >> MARK_BITS) & 0xF
    return id if id <= LARGEST and UUID(uuid_of(id)).int == number else None
