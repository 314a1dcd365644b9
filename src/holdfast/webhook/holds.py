"""What a courier holds: messages under leases, which are kept as long as a delivery takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.client import Delivery


@dataclass(slots=True, eq=False)
class Held:
    """A message that was claimed, and is not settled yet."""

    delivery: Delivery
    probe: int | None = None
    lost: bool = False  # somebody else may have it


class Holds:
    """Messages by the token under which they are held."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, Held]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def take(self, deliveries: Sequence[Delivery], probe: int | None) -> list[Held]:
        """Hold what was claimed."""
        taken = [Held(delivery, probe) for delivery in deliveries]
        for held in taken:
            self._held.setdefault(held.delivery.token, {})[held.delivery.id] = held
        return taken

    def drop(self, held: Held) -> None:
        """Let go of a message: it is settled, or given back."""
        token = held.delivery.token
        if (under := self._held.get(token)) is not None:
            under.pop(held.delivery.id, None)
            if not under:
                del self._held[token]

    def all(self) -> list[Held]:
        """Everything that is held."""
        return [held for under in self._held.values() for held in under.values()]

    def tokens(self) -> list[tuple[int, list[int]]]:
        """Every token, with the messages under it."""
        return [(token, list(under)) for token, under in self._held.items()]

    def lose(self, token: int, ids: Sequence[int]) -> None:
        """Their lease is gone."""
        for id in ids:
            if (held := self._held.get(token, {}).get(id)) is not None:
                held.lost = True
