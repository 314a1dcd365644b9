"""Bytes of write-ahead log that the whole server has written."""

from __future__ import annotations

from bench.link import Link


class WalMeter:
    def __init__(self, link: Link) -> None:
        self._link = link

    def read(self) -> int:
        return int(self._link.value("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))
