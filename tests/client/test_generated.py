"""The synchronous client is made from the asynchronous one, and can do the same."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import holdfast
from holdfast import AsyncHoldfast, AsyncTransaction, Holdfast, Transaction
from holdfast.client import _calls

ROOT = Path(__file__).parents[2]


def generate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "generate_sync.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def public(kind: type) -> dict[str, list[str]]:
    """The methods of a class with the names of their parameters."""
    methods = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(method).parameters) for name, method in methods if name[0] != "_"}


def test_the_generated_client_is_up_to_date() -> None:
    check = generate("--check")

    assert check.returncode == 0, check.stdout + check.stderr


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    assert public(Holdfast) == public(AsyncHoldfast)
    assert public(Transaction) == public(AsyncTransaction)


def test_no_asynchronous_word_is_left_in_the_generated_client() -> None:
    sources = (ROOT / "src" / "holdfast" / "client" / "_sync").glob("*.py")
    text = "\n".join(line for path in sources for line in path.read_text().splitlines()[1:])

    assert not [word for word in ("async", "await", "Async") if word in text]


def test_the_package_exports_what_the_client_exports() -> None:
    assert holdfast.__all__ == holdfast.client.__all__


def test_statements_pass_arguments_by_name_and_leave_none_out() -> None:
    text, parameters = _calls.call("claim", {"queue": "q", "lease": None, "alone": True})

    assert text == b'select * from holdfast.claim("queue" => %s::text, "alone" => %s::boolean)'
    assert parameters == ["q", True]


def test_the_version_is_that_of_the_package() -> None:
    assert holdfast.__version__ == version("holdfast")
