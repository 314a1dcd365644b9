"""A standalone Spark cluster on loopback: a master and two workers, each a process with a folder of its own.

The workers are told nothing of the tests: their environment is a few variables, and the second has another
address, so that Spark takes the two for two machines.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from holdfast.spark.java import java_home
from tests.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
HOSTS = ("127.0.0.1", "127.0.0.2")
STARTING = 90.0  # seconds for a process of Spark
ENDING = 30.0  # seconds
ADDRESS = re.compile(r"Starting Spark master at (spark://[0-9.:]+)")
REGISTERED = re.compile(r"Successfully registered with master (\S+)")
LOG = "log"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True)
class Cluster:
    """Where the master is, and where workers and executors have their files."""

    master: str
    folder: Path

    def executors(self) -> list[psutil.Process]:
        """The JVMs that run tasks at the moment."""
        return [each for each in living_in(self.folder) if "CoarseGrainedExecutorBackend" in words_of(each)]


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster that is gone afterwards, whatever happens: processes are known by their working folder."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(folder / "master", "master.Master", HOSTS[0], "--port", "0"))
        master = _awaited(folder / "master", ADDRESS)
        for number, host in enumerate(HOSTS):
            room = ("--cores", "1", "--memory", "1g", master)
            started.append(_start(folder / f"worker-{number}", "worker.Worker", host, *room))
        for number, _ in enumerate(HOSTS):
            _awaited(folder / f"worker-{number}", REGISTERED)
        yield Cluster(master, folder)
    finally:
        _end_all(folder, started)


def bare_environment(home: Path) -> dict[str, str]:
    """What a process of Spark needs to start, and nothing else."""
    return {"HOME": str(home), "JAVA_HOME": str(java_home()), "PATH": "/usr/bin:/bin"}


def living_in(folder: Path) -> list[psutil.Process]:
    """The processes whose working folder is this one, or lies in it."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process)
    return found


def words_of(process: psutil.Process) -> str:
    """The command line of a process, also of one that has just ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _start(place: Path, kind: str, host: str, *words: str) -> subprocess.Popen[bytes]:
    place.mkdir(parents=True)
    environment = bare_environment(place) | {
        "SPARK_LOCAL_IP": host,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} -Dspark.master.rest.enabled=false",
        "SPARK_WORKER_DIR": str(place),
    }
    program = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
    with (place / LOG).open("wb") as log:
        return subprocess.Popen(
            [*program, "--host", host, "--webui-port", "0", *words],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _awaited(place: Path, line: re.Pattern[str]) -> str:
    """What a process says about itself, once it does."""
    log = place / LOG
    told = eventually(lambda: line.search(log.read_text()), what=line.pattern, timeout=STARTING)
    assert told is not None
    return told[1]


def _end_all(folder: Path, started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask all to end, then see that they do: executors and their Pythons too."""
    for signalled in (psutil.Process.terminate, psutil.Process.kill):
        left = living_in(folder)
        for process in left:
            with suppress(psutil.Error):
                signalled(process)
        psutil.wait_procs(left, timeout=ENDING)
    for each in started:
        each.wait(ENDING)
    assert not living_in(folder)
