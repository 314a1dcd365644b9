"""The examples run as they are, and so does every piece of Python in docs/client.md."""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import ERRORS, AsyncHoldfast, AsyncHttpHoldfast, HttpHoldfast
from holdfast.embedded import EmbeddedPostgres
from holdfast.migrate import migrate
from tests.fix_http import Caller

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GUIDE = ROOT / "docs" / "client.md"
PATIENCE = 120.0  # seconds an example takes at most

EXPECTED = {
    "first_message.py": "got {'hello': 'world'} with the tag greeting",
    "worker.py": "dead: 0, because of division by zero",
    "async_worker.py": "done by all workers: 30",
    "transactions.py": "order 1: shipped\norder 2: cancelled",
    "bulk_load.py": "waiting in the queue: 100,000",
    "dead_letters.py": "done at last: {'invoice': 7}",
    "http_worker.py": "pushed and done: 12",
}
OVER_HTTP = {"http_worker.py"}  # they take the address of a server


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs_twice_and_prints_what_it_should(
    request: pytest.FixtureRequest, database_url: str, example: Path
) -> None:
    env = {**os.environ, "HOLDFAST_DATABASE_URL": database_url}
    command = [sys.executable, "-W", "error", str(example)]
    if example.name in OVER_HTTP:
        command.append(request.getfixturevalue("http").address)

    for _ in range(2):
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)

        assert (done.returncode, done.stderr) == (0, "")
        assert EXPECTED[example.name] in done.stdout


@pytest.mark.parametrize(
    "example", [path for path in EXAMPLES if path.name not in OVER_HTTP], ids=lambda path: path.name
)
def test_an_example_without_a_database_says_in_one_line_what_to_do(tmp_path: Path, example: Path) -> None:
    done = run_nowhere(example, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "there is no Holdfast in this folder. "
        "Run holdfast up here, or name a database in HOLDFAST_DATABASE_URL (or with --database-url).\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_example_without_a_server_says_in_one_line_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"

    done = run_nowhere(ROOT / "examples" / "http_worker.py", address, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"no server answers at {address}. Look at the address; holdfast serve starts a server.\n"
    )


def test_an_example_finds_the_embedded_server_of_the_folder(tmp_path: Path) -> None:
    with EmbeddedPostgres(data_dir=tmp_path / ".holdfast") as url:
        migrate(url)

    done = run_nowhere(ROOT / "examples" / "first_message.py", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert EXPECTED["first_message.py"] in done.stdout


def run_nowhere(example: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run an example in a folder, with no database in the environment."""
    env = {name: value for name, value in os.environ.items() if name != "HOLDFAST_DATABASE_URL"}
    command = [sys.executable, "-W", "error", str(example), *arguments]
    return subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def blocks() -> list[str]:
    """The pieces of Python in the guide."""
    return re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_every_piece_of_python_in_the_guide_runs(database_url: str, http: Caller) -> None:
    """In order and in one namespace, as a reader would type them, with the reader's database and server."""
    names: dict[str, object] = {"url": database_url, "server": http.address, "print": lambda *words: None}

    for number, block in enumerate(blocks()):
        code = compile(block, f"{GUIDE.name}, piece {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)


def test_the_guide_names_every_method_error_and_value() -> None:
    text = GUIDE.read_text()
    methods = {name for name, _ in inspect.getmembers(HttpHoldfast, inspect.isfunction) if name[0] != "_"}
    wanted = methods | set(ERRORS) | {kind.__name__ for kind in ERRORS.values()} | set(holdfast.__all__)

    assert not sorted(name for name in wanted if f"`{name}" not in text)


@pytest.mark.parametrize("kind", [AsyncHoldfast, AsyncHttpHoldfast])
def test_the_guide_names_every_option_of_the_constructor(kind: type[object]) -> None:
    options = set(inspect.signature(kind.__init__).parameters) - {"self"}

    assert not sorted(name for name in options if f"`{name}" not in GUIDE.read_text())
