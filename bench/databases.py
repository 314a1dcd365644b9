"""A database for every block: a copy of one in which the contender was installed, so that no block meets what
another left behind, and autovacuum has nothing to catch up on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from psycopg.conninfo import make_conninfo

from bench.arena import Arena
from bench.contenders.contender import Contender
from bench.link import Link


class Databases:
    def __init__(self, url: str) -> None:
        self._url = url
        self._admin = Link(url)
        self._postmaster = int(self._admin.value("select pg_read_file('postmaster.pid')").split()[0])
        self._count = 0
        self._kept: dict[tuple[str, str], Arena] = {}
        self._stack = ExitStack()

    @property
    def admin(self) -> Link:
        return self._admin

    @property
    def postmaster(self) -> int:
        """The server's first process."""
        return self._postmaster

    def install(self, contenders: Sequence[Contender]) -> None:
        for contender in contenders:
            name = _template(contender)
            self._create(name, "template1")
            self._stack.callback(self._drop, name)
            contender.install(self._at(name))

    @contextmanager
    def fresh(self, contender: Contender) -> Iterator[Arena]:
        """An arena that is gone afterwards."""
        self._count += 1
        name = f"bench_{contender.name.lower()}_{self._count}"
        self._create(name, _template(contender))
        try:
            with Arena(contender=contender, url=self._at(name), postmaster=self._postmaster) as arena:
                arena.checkpoint()
                yield arena
        finally:
            self._drop(name)

    def kept(self, contender: Contender, key: str) -> tuple[Arena, bool]:
        """An arena that stays until `forget`; and whether it is new."""
        known = self._kept.get((contender.name, key))
        if known is not None:
            return known, False
        arena = self._stack.enter_context(self.fresh(contender))
        self._kept[contender.name, key] = arena
        return arena, True

    def close(self) -> None:
        """Drop everything that was made."""
        self._stack.close()
        self._admin.close()

    def _at(self, name: str) -> str:
        return make_conninfo(self._url, dbname=name)

    def _create(self, name: str, template: str) -> None:
        self._drop(name)
        self._admin.run(f"create database {name} template {template}")

    def _drop(self, name: str) -> None:
        self._admin.run(f"drop database if exists {name} with (force)")


def _template(contender: Contender) -> str:
    return f"bench_{contender.name.lower()}"
