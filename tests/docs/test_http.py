"""The pages about HTTP: the tables are what the server has, and the quick start runs as it is written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.server.app import endpoints
from holdfast.server.refusals import ALWAYS, WITH_BODY, WITH_KEY, WITH_QUEUE
from tests.cli.conftest import PROGRAM, environment
from tests.docs.pages import DOCS, blocks, quoted, rows, sections, text_of
from tests.fix_http import ServeProcess
from tools.describe_http import main

REFERENCE = DOCS / "http.md"
QUICKSTART = DOCS / "http-quickstart.md"
ADDRESS = "127.0.0.1:8080"  # what readers type
MARK = "\x1e"
OF_KEYS = re.compile("Created key 1, |It is the first: ")  # what goes to stderr beside a key
PATIENCE = 120.0  # seconds for the whole page


def test_the_tables_are_what_the_server_has() -> None:
    assert main(["--check"]) == 0


def test_every_route_is_in_a_table_with_its_scope() -> None:
    named = {None: "none", "any": "any key"}
    told = {
        quoted(row[0])[0]: row[1] for row in rows(sections(text_of("http.md"), 2)["Routes"]) if len(row) == 6
    }

    assert told == {
        f"{endpoint.method} {endpoint.path}": named.get(endpoint.scope, endpoint.scope)
        for endpoint in endpoints()
    }


def test_the_errors_of_all_routes_are_told_once() -> None:
    text = sections(text_of("http.md"), 2)["Errors"].rpartition("\n\nAny route")[2]

    codes = {*ALWAYS, *WITH_KEY, *WITH_QUEUE, *WITH_BODY}
    assert set(re.findall(r"QH\d{3}", text)) == codes


def steps() -> Iterator[tuple[str, list[str]]]:
    """What is typed, and what is promised to be printed then."""
    for language, block in blocks(QUICKSTART):
        if language != "sh" or block.startswith("make run"):
            continue
        commands: list[str] = []
        promises: list[str] = []
        for line in block.splitlines():
            if promises and not line.startswith("# "):
                yield "\n".join(commands), promises
                commands, promises = [], []
            if line.startswith("# "):
                promises.append(line.removeprefix("# "))
            else:
                commands.append(line)
        yield "\n".join(commands), promises


def fits(promise: str, printed: str) -> bool:
    """Whether a line is what was promised; … stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, promise.split("…"))), printed) is not None


def test_the_quick_start_runs_as_it_is_written(
    serve_process: ServeProcess, database_url: str, tmp_path: Path
) -> None:
    curl, bash = shutil.which("curl"), shutil.which("bash")
    if curl is None or bash is None:
        pytest.fail(
            "the quick start needs curl and bash, and the machine lacks one: apt-get install curl bash"
        )
    typed = list(steps())
    page = "".join(f"{commands}\nprintf '\\n{MARK}\\n'\n" for commands, _ in typed)
    server = serve_process()
    (tmp_path / ".venv").symlink_to(PROGRAM.parent.parent)  # as in the folder of `make run`

    done = subprocess.run(
        [bash, "-us"],
        input=page.replace(f"http://{ADDRESS}", server.address),
        env=environment(database_url),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    printed = [part.strip().splitlines() for part in done.stdout.split(MARK)[:-1]]
    for (commands, promises), lines in zip(typed, printed, strict=False):
        assert len(lines) == len(promises), (commands, lines)
        for promise, line in zip(promises, lines, strict=True):
            assert fits(promise, line), (commands, promise, line)
    complaints = [line for line in done.stderr.splitlines() if not OF_KEYS.match(line)]
    assert (len(printed), complaints) == (len(typed), [])


def test_the_example_of_a_stream_acks_what_is_done_and_no_more(
    serve_process: ServeProcess, engine: Holdfast
) -> None:
    server = serve_process()
    engine.create_queue("orders")
    ids = engine.send_batch("orders", [1, 2, 3])
    ((_, example),) = [block for block in blocks(REFERENCE) if "/work" in block[1]]

    with subprocess.Popen(
        [shutil.which("bash") or "bash", "-uc", example.replace(f"http://{ADDRESS}", server.address)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        printed = b""
        while printed.count(b"}") < len(ids) and (more := os.read(running.stdout.fileno(), 1000)):
            printed += more
        os.killpg(running.pid, signal.SIGTERM)

    answers = [json.loads(answer + "}") for answer in printed.decode().split("}")[:-1]]
    assert [answer["settled"] for answer in answers] == [[str(id)] for id in ids]
