"""Wrong keys: how many an address may try."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address
from math import ceil
from time import monotonic

AT_ONCE = 10
PER_SECOND = AT_ONCE / 60
MOST_ADDRESSES = 10_000


class Tries:
    """A bucket of tries for each address, in this process; one that nobody uses fills up."""

    def __init__(self) -> None:
        self._full_at: OrderedDict[str, float] = OrderedDict()  # when the bucket would be full again

    def __len__(self) -> int:
        """How many addresses are remembered."""
        return len(self._full_at)

    def are_left(self, address: str) -> bool:
        """Whether an address may try another key."""
        return self._debt(site(address)) <= (AT_ONCE - 1) / PER_SECOND

    def take(self, address: str) -> int | None:
        """Count a wrong key; returns after how many seconds to come again if it was one too many."""
        address = site(address)
        debt = self._debt(address)
        if debt > (AT_ONCE - 1) / PER_SECOND:
            return ceil(debt - (AT_ONCE - 1) / PER_SECOND)
        self._full_at[address] = monotonic() + debt + 1 / PER_SECOND
        self._full_at.move_to_end(address)
        if len(self._full_at) > MOST_ADDRESSES:
            self._full_at.popitem(last=False)
        return None

    def _debt(self, address: str) -> float:
        """How many seconds the bucket needs to fill up."""
        return max(0.0, self._full_at.get(address, 0.0) - monotonic())


def site(address: str) -> str:
    """Whose address it is: in IPv6 everybody has a network of 64 bits, and any address of it."""
    try:
        given = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(given, IPv6Address):
        return address
    return str(given.ipv4_mapped or IPv6Address(int(given) >> 64 << 64))
