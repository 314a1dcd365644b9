"""The pipeline stream in processes of its own.

1. kill -9 between the commit of a table and Spark's: after a restart every row is there once.
2. Ctrl-C lets the batch that is under way finish, and leaves nothing in flight.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.database import URL_VARIABLE
from tests.engine.engine import Engine
from tests.spark.conftest import ROOT, STARTING, Start
from tests.spark.frames import payload_counts
from tests.spark.held_back import GO, NOTE
from tests.spark.table_streamer import FATE
from tests.waiting import eventually

pytestmark = pytest.mark.verify

MESSAGES = 1200  # three batches


def test_a_stream_that_is_killed_when_the_table_has_its_rows_writes_them_once(
    queue: Engine, start: Start, tmp_path: Path
) -> None:
    queue.conn.execute("create table numbers (n int)")
    queue.send_numbers(MESSAGES)

    killed = start("table_streamer", tmp_path / "checkpoint", **{FATE: "1"}).wait(STARTING)
    (between,) = queue.conn.execute("select count(*) from numbers").fetchall()
    finished = start("table_streamer", tmp_path / "checkpoint").wait(STARTING)

    assert (killed, between, finished) == (-signal.SIGKILL, (1000,), 0)
    found = queue.conn.execute("select n from numbers").fetchall()
    assert Counter(n for (n,) in found) == Counter(range(MESSAGES))
    assert queue.stats()["depth"] == 0


@pytest.fixture
def streaming(database_url: str, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The command, from q to out, in batches of 10 that stop half way."""
    words = ["pipeline", "run", "stream", "--from", "q", "--to", "out", "--max-messages", "10"]
    words += ["--function", "tests.spark.held_back:held_back", "--checkpoint", str(tmp_path / "checkpoint")]
    places = {NOTE: str(tmp_path / "note"), GO: str(tmp_path / "go")}
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "holdfast"), *words, "--master", "local[2]"],
        cwd=ROOT,
        env={**os.environ, URL_VARIABLE: database_url, **places},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_ctrl_c_lets_the_batch_finish_and_leaves_nothing_in_flight(
    queue: Engine, streaming: subprocess.Popen[str], tmp_path: Path
) -> None:
    queue.create("out")
    queue.send_numbers(30)
    note = tmp_path / "note"
    eventually(lambda: note.exists() or streaming.poll(), what="a batch is under way", timeout=STARTING)

    streaming.send_signal(signal.SIGINT)
    assert streaming.stderr is not None
    heard = any(line == "Ending. Once more breaks it off.\n" for line in streaming.stderr)
    (tmp_path / "go").touch()
    stdout, stderr = streaming.communicate(timeout=STARTING)

    assert (streaming.returncode, heard) == (0, True), stderr
    assert payload_counts(queue, "out") == Counter(range(10))
    assert (queue.stats()["ready"], queue.stats()["in_flight"]) == (20, 0)
    assert "messages" in stdout
    (run,) = queue.rows("runs")
    assert run["state"] == "done"
    assert {name: run["figures"][name] for name in ("batches", "messages", "rows")} == {
        "batches": 1,
        "messages": 10,
        "rows": 10,
    }
