"""A database's schema as text, to compare two ways of making it."""

from __future__ import annotations

import re
import subprocess

from holdfast._programs import find_programs

# PostgreSQL 18 puts a random word around a dump, so that no data can pass for psql's commands.
RANDOM = re.compile(r"^\\(un)?restrict .*$", re.MULTILINE)


def program(name: str) -> str:
    """The path of one of PostgreSQL's client programs, of the version under test."""
    return str(find_programs()[name])


def schema_dump(url: str) -> str:
    """All of the schema, with its rights and comments, in an order that tells nothing of when it was made."""
    command = [program("pg_dump"), "--schema-only", "--dbname", url]
    dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return RANDOM.sub("", dump)
