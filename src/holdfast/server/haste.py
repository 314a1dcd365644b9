"""Haste: what another open transaction keeps is waited for, but not for long where others wait behind."""

from __future__ import annotations

from collections.abc import Sized

# What follows has to depend on it, so that it is done first.
IN_HASTE = b"with haste as materialized (select set_config('lock_timeout', %s, true) is not null as is_set) "
HASTE, GREATER_HASTE = "200ms", "50ms"  # of several requests, of one


def patience(requests: Sized) -> str:
    """How long a call for so many requests may wait for a lock."""
    return GREATER_HASTE if len(requests) == 1 else HASTE
