"""spark-submit for tests, as users call it: jobs on a cluster; their environment names the database."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.database import URL_VARIABLE
from tests.spark import cluster_job
from tests.spark.cluster import HOSTS, QUICK_JVM, SPARK_HOME, Cluster, bare_environment

WORKING = 240.0  # seconds for a job
SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.bindAddress": HOSTS[0],
    "spark.driver.host": HOSTS[0],
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",  # so that a part is staged bit by bit
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True)
class Job:
    """A job that runs, and what it leaves in its folder."""

    process: subprocess.Popen[bytes]
    folder: Path

    def found(self) -> dict[str, Any]:
        """What the job found out; it has to end well."""
        code = self.process.wait(WORKING)
        assert code == 0, (self.folder / "stderr").read_text()[-10_000:]
        found: dict[str, Any] = json.loads((self.folder / "stdout").read_text().splitlines()[-1])
        return found

    def hosts(self) -> dict[str, set[str]]:
        """Where tasks have run, by the description of their job; those of streams together."""
        steps: dict[int, str] = {}
        hosts: dict[str, set[str]] = {}
        for event in self._events():
            if event["Event"] == "SparkListenerStageSubmitted":
                told = event["Properties"]
                step = "stream" if "sql.streaming.queryId" in told else told.get("spark.job.description", "")
                steps[event["Stage Info"]["Stage ID"]] = step
            if event["Event"] == "SparkListenerTaskEnd":
                hosts.setdefault(steps[event["Stage ID"]], set()).add(event["Task Info"]["Host"])
        return hosts

    def tasks(self) -> list[dict[str, Any]]:
        """All attempts of tasks."""
        ends = (event for event in self._events() if event["Event"] == "SparkListenerTaskEnd")
        return [event["Task Info"] for event in ends]

    def event_log(self) -> str:
        """What Spark's history is made of."""
        (log,) = (self.folder / "events").iterdir()
        return log.read_text()

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self.event_log().splitlines():
            yield json.loads(line)


class Submit:
    """Submits jobs to a cluster, each once."""

    def __init__(self, cluster: Cluster, url: str, folder: Path) -> None:
        self._cluster = cluster
        self._url = url
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(self, job: str, *words: object, **settings: str) -> Job:
        """Start a job."""
        folder = self._folder / job
        (folder / "events").mkdir(parents=True)
        place = {"spark.master": self._cluster.master, "spark.eventLog.dir": f"file:{folder}/events"}
        configured = [f"--conf={name}={value}" for name, value in (SETTINGS | place | settings).items()]
        environment = {URL_VARIABLE: self._url, "PYSPARK_PYTHON": sys.executable}
        program = [str(SPARK_HOME / "bin" / "spark-submit"), *configured, cluster_job.__file__]
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [*program, job, *map(str, words)],
                cwd=folder,
                env=bare_environment(folder) | environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )
        self._started.append(process)
        return Job(process, folder)

    def end(self) -> None:
        """End the jobs that are left."""
        for process in self._started:
            process.kill()
            process.wait()
