"""How a command ends: its exit code, and what it says on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import psycopg
import typer

from holdfast.client import HoldfastError

from ._advice import advice
from ._output import Output

# SQLSTATE classes that mean: there is no working connection to the database.
UNREACHABLE = ("08", "28", "3D", "57")

# What the extra spark brings, as far as it is imported.
SPARK = frozenset({"adbc_driver_manager", "adbc_driver_postgresql", "pandas", "py4j", "pyarrow", "pyspark"})

# And the extra server.
SERVER = frozenset(
    {"httptools", "msgspec", "opentelemetry", "prometheus_client", "starlette", "uvicorn", "uvloop"}
)

# And the extra schema.
SCHEMA = frozenset({"fastavro", "jsonschema_rs"})

# And the extra secrets.
SECRETS = frozenset({"cryptography"})

INSTALL = "Install it with pip install 'holdfast[spark]' (in a checkout: make spark)."
INSTALL_SERVER = "Install it with pip install 'holdfast[server]'."
INSTALL_SCHEMA = "Install it with pip install 'holdfast[schema]'."
INSTALL_SECRETS = "Install it with pip install 'holdfast[secrets]'."


class ExitCode(IntEnum):
    """What the exit code says."""

    OK = 0
    ERROR = 1
    USAGE = 2
    NO_CONNECTION = 3
    NOTHING = 4
    NOT_HELD = 5
    INTERRUPTED = 130


@contextmanager
def ended(output: Output) -> Iterator[None]:
    """Turn errors into one clear message and an exit code."""
    try:
        yield
    except HoldfastError as error:
        hint = error.hint and advice(error.hint)
        output.error(error.message, code=error.code, detail=error.detail, hint=hint)
        raise typer.Exit(ExitCode.ERROR) from error
    except psycopg.Error as error:
        raise typer.Exit(report(output, error)) from error
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        output.error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        raise typer.Exit(ExitCode.ERROR) from error
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in SPARK | SERVER | SCHEMA | SECRETS:
            raise
        if missing in SCHEMA:
            output.error(f"a schema is checked with {missing}, which is not installed", hint=INSTALL_SCHEMA)
        elif missing in SECRETS:
            output.error(f"messages are sealed with {missing}, which is not installed", hint=INSTALL_SECRETS)
        elif missing in SPARK:
            output.error("pipelines need Spark, which is not installed", hint=INSTALL)
        else:
            output.error(f"the HTTP server needs {missing}, which is not installed", hint=INSTALL_SERVER)
        raise typer.Exit(ExitCode.ERROR) from error
    except KeyboardInterrupt as error:
        output.note("Interrupted.")
        raise typer.Exit(ExitCode.INTERRUPTED) from error


def report(output: Output, error: psycopg.Error) -> ExitCode:
    """Say what the database said."""
    if is_unreachable(error):
        output.error(
            f"can't connect to the database: {str(error).strip()}",
            hint="Check --database-url or HOLDFAST_DATABASE_URL, and whether the server runs.",
        )
        return ExitCode.NO_CONNECTION
    output.error(
        error.diag.message_primary or str(error).strip(),
        code=error.sqlstate,
        detail=error.diag.message_detail,
        hint=error.diag.message_hint or noted(error),
    )
    return ExitCode.ERROR


def noted(error: psycopg.Error) -> str | None:
    """What the client knows about an error of the database."""
    return " ".join(note.removeprefix("Hint: ") for note in getattr(error, "__notes__", ())) or None


def is_unreachable(error: psycopg.Error) -> bool:
    """Whether the connection, not the command, is what failed."""
    if error.sqlstate is not None:
        return error.sqlstate[:2] in UNREACHABLE
    return isinstance(error, psycopg.OperationalError | psycopg.ProgrammingError)
