"""The benchmark of Spark runs as a whole, on a few messages: every case, every rival, all figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.spark.__main__ import main
from bench.spark.ground import JDBC_JAR

ROOT = Path(__file__).parents[2]
FIGURES = {"cpu_us", "client_us", "per_second", "jvm_mib", "worker_mib", "driver_mib"}
RIVALS = {
    "read": ["Holdfast", "JDBC", "COPY"],
    "read-columns": ["Holdfast", "JDBC", "COPY"],
    "send": ["Holdfast", "JDBC", "COPY"],
    "consume": ["Holdfast", "claims of 100", "claims of 1"],
    "insights": ["Holdfast", "one count"],
}


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_every_case_is_measured(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"

    run = subprocess.run(
        [sys.executable, "-m", "bench.spark", "--messages", "2000", "--rounds", "1", "--json", str(figures)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stderr
    found = json.loads(figures.read_text())
    assert {case: list(rivals) for case, rivals in found["cases"].items()} == RIVALS
    samples = [sample for rivals in found["cases"].values() for (sample,) in rivals.values()]
    assert all(set(sample) == FIGURES for sample in samples)
    assert all(sample["per_second"] > 0 for sample in samples)
    assert len(found["expectations"]) == 11
    assert "messages/s over those of JDBC" in run.stdout


def test_the_cases_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(RIVALS)


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(SystemExit, match="no case is called nonsense; --list names them"):
        main(["--case", "nonsense"])


def test_a_missing_driver_is_said_with_what_brings_it(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="make debian/libpostgresql-jdbc-java brings it"):
        main(["--jdbc-jar", str(tmp_path / JDBC_JAR.name)])
