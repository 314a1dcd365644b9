"""A real cluster: master, two workers and the driver are processes of their own, on loopback.

1. Reads, writes and streams need nothing of the driver but what Spark sends to tasks.
2. A part of a write that is run more than once is sent once: after an error, the loss of its executor, and
   beside a speculative copy.
3. Nothing that Spark leaves behind has the password: no log, no event log, of which its history is made, and
   no checkpoint.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.engine.engine import Engine
from tests.spark import cluster_job
from tests.spark.cluster import HOSTS, Cluster
from tests.spark.frames import payload_counts
from tests.spark.submit import WORKING, Submit
from tests.waiting import eventually

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]

ALL = Counter(range(cluster_job.ROWS))
STAGED = "select count(*) from holdfast.staged"
EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}
BOTH = set(HOSTS)


def files_with(text: object, *folders: Path) -> list[Path]:
    """The files in which a text stands."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in files if str(text).encode() in path.read_bytes()]


def test_a_job_needs_nothing_of_the_driver_but_what_spark_sends(
    submit: Submit, cluster: Cluster, queue: Engine, database_url: str, tmp_path: Path
) -> None:
    queue.create("out")
    password = conninfo_to_dict(database_url)["password"]

    job = submit("move", tmp_path / "checkpoint")
    found = job.found()

    folders, urls = zip(*found["tasks"], strict=True)
    workers = sorted(Path(folder).relative_to(cluster.folder).parts[0] for folder in folders)
    assert urls == (None, None)
    assert workers == ["worker-0", "worker-1"]
    assert found["cwd"] == str(job.folder)
    assert found["total"] == sum(ALL)
    assert (queue.stats()["depth"], payload_counts(queue, "out")) == (0, ALL)
    assert job.hosts() == {"look": BOTH, "write": BOTH, "read": BOTH, "stream": BOTH}
    assert files_with(password, job.folder, cluster.folder, tmp_path) == []
    assert files_with(str(job.folder), job.folder) != []


def test_a_task_that_fails_after_staging_and_runs_again_counts_once(submit: Submit, queue: Engine) -> None:
    job = submit("write_failing")
    job.found()

    assert [task["Attempt"] for task in job.tasks() if task["Failed"]] == [0]
    assert payload_counts(queue, "q") == ALL
    assert queue.look(STAGED) == 0


def test_of_a_task_and_its_speculative_copy_one_counts(submit: Submit, queue: Engine) -> None:
    job = submit("write_slowly", **EAGER)
    job.found()

    copies = [task for task in job.tasks() if task["Speculative"]]
    assert [task["Failed"] or task["Killed"] for task in copies] == [False]
    assert payload_counts(queue, "q") == ALL


def test_the_loss_of_executors_loses_and_doubles_nothing(
    submit: Submit, cluster: Cluster, queue: Engine
) -> None:
    others = cluster_job.ROWS - cluster_job.ROWS // cluster_job.PARTS
    job = submit("write_slowly")
    eventually(lambda: queue.look(STAGED) > others, what="some of the last part is staged", timeout=WORKING)

    for executor in cluster.executors():
        executor.kill()
    job.found()

    assert any(task["Failed"] for task in job.tasks())
    assert payload_counts(queue, "q") == ALL
    assert queue.look(STAGED) == 0
