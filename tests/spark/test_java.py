"""Finding Java: JAVA_HOME, then the PATH, then the wheel behind its shim."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.spark import java
from holdfast.spark.java import JavaNotFoundError, java_home, java_version, shim


def fake(folder: Path, version: str) -> Path:
    """A Java of a version, which otherwise prints its arguments."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
[ "$1" = -version ] && echo 'openjdk version "{version}" 2030-01-01' >&2 && exit
printf '%s\\n' "$@"
"""
    )
    program.chmod(0o755)
    return folder


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_wheel", lambda: None)
    return tmp_path


@pytest.mark.parametrize(("version", "number"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_the_version_of_a_java_is_known(tmp_path: Path, version: str, number: int) -> None:
    assert java_version(fake(tmp_path, version) / "bin" / "java") == number


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "one", "21")))
    monkeypatch.setenv("PATH", str(fake(bare / "two", "17") / "bin"))

    assert java_home() == bare / "one"


def test_a_java_that_is_too_old_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "one", "11.0.1")))
    monkeypatch.setenv("PATH", str(fake(bare / "two", "17") / "bin"))

    assert java_home() == bare / "two"


def test_without_java_the_error_says_what_to_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(bare / "one", "1.8.0")))

    with pytest.raises(JavaNotFoundError, match=r"Java 17 or newer \(JAVA_HOME: Java 8\).*holdfast\[spark\]"):
        java_home()


def test_the_shim_drops_one_option_and_no_other(tmp_path: Path) -> None:
    home = shim(fake(tmp_path / "real", "25"), inside=tmp_path / "cache")
    again = shim(tmp_path / "real", inside=tmp_path / "cache")

    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", ""]
    answer = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    assert answer.stdout.split("\n") == ["-Xmx1g", "two words", "", ""]
    assert again == home


def test_the_wheel_has_a_java_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    home = java._wheel()

    assert home is not None
    assert (java_version(home / "bin" / "java") or 0) >= java.OLDEST
