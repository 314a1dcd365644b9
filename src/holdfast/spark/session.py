"""A Spark session that is ready for Holdfast: on this machine, or on a cluster that is named."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from holdfast.database import URL_VARIABLE, configured_url, has_server
from holdfast.embedded import EmbeddedPostgres

from .java import java_home
from .options import URL_SETTING, OptionError, Secret

LOCAL = "local[*]"
# What Spark hides in its UI, its logs and its event log: its own words, and where a database URL may stand.
REDACTED = "(?i)secret|password|token|access[.]?key|holdfast.*url"
SETTINGS: Mapping[str, str] = {
    "spark.log.level": "ERROR",
    "spark.redaction.regex": REDACTED,
    "spark.sql.redaction.options.regex": "(?i)url",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.ui.enabled": "false",
}


def make_session(
    name: str = "holdfast",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    embedded: bool = True,
    quiet: bool = False,
) -> SparkSession:
    """Start Spark, or take the session that is there. Settings given here go before those set by default.

    embedded: if no database is named, that of this folder is used, as by the command line, and runs as long
    as this process. Not on a cluster, whose machines cannot reach it.
    quiet: what Spark and its workers write to stderr is thrown away, as long as this process lives.
    """
    prepare_environment()
    chosen = dict(settings or {})
    master = master or chosen.get("spark.master") or LOCAL
    wanted = {**SETTINGS, **(LOCAL_SETTINGS if master.startswith("local") else {}), **chosen}
    if url := wanted.pop(URL_SETTING, None) or (embedded and _embedded_url(master)):
        _refuse_late(url)
        # By way of the environment, which the processes of Spark inherit and show nobody.
        os.environ[URL_VARIABLE] = url
    if quiet and SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll([*wanted.items(), ("spark.master", master)])
        SparkContext._ensure_initialized(gateway=_launched(conf))
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _launched(conf: SparkConf) -> Any:
    return launch_gateway(conf, {"stderr": subprocess.DEVNULL})  # type: ignore[no-untyped-call]


def prepare_environment() -> None:
    """Let Spark find Java, and its workers this Python. What the user has set stays."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def started_with(url: Secret) -> bool:
    """Whether the processes of Spark know this database from their environment."""
    jvm = SparkContext._jvm  # outlives a session that is stopped
    return jvm is not None and bool(jvm.java.lang.System.getenv(URL_VARIABLE) == url.reveal())


def _embedded_url(master: str) -> str | None:
    """The database of this folder, if no other is named, and Spark can learn of it and reach it."""
    is_late = SparkContext._jvm is not None
    if configured_url() or is_late or not master.startswith("local") or not has_server():
        return None
    server = EmbeddedPostgres()
    # Until the process ends, not the session: Spark itself goes on when a session is stopped.
    atexit.register(server.release)
    return server.ensure_running()


def _refuse_late(url: str) -> None:
    """Refuse a database that Spark was not started with: its processes know that one, or none."""
    if SparkContext._jvm is not None and not started_with(Secret(url)):
        raise OptionError(
            URL_SETTING,
            "it for a Spark that runs already, with another database or none",
            "it before Spark starts in this process; from then on, name the database by the option url",
        )
