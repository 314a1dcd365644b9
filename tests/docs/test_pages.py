"""All pages: links, make targets, tests that are named, hosts and paths.

1. Every relative link leads to a file that is there, and to a heading in it.
2. Every make target is in docs/development.md, and no page names one that does not exist.
3. Every test file and every case of the benchmark that docs/guarantees.md names exists.
4. Every page is reached from the README, and the README keeps a place for the measured figures.
5. No file names a host that is not meant to be public, or a path of the machine it was written on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, LINK, PAGES, ROOT, anchors, prose, quoted, rows, sections, text_of

README = ROOT / "README.md"
HOSTS = {"json-schema.org", "keepachangelog.com", "semver.org", "www.apache.org"}
HOSTS |= {"holdfast;"}  # what a proxy calls its servers
HOSTS |= {"api.foundrydb.com"}  # in the examples of a page, as they stand there
FOLDERS = (".ci", "bench", "docs", "examples", "src", "tests", "tools")
# Parted, so that this file is not found by its own rule.
MACHINE = re.compile("/" + r"(?:work|home|Users|root|mnt|tmp)" + r"/[\w.]")
RESERVED = re.compile(r"([\w-]+\.)*example(\.com|\.org)?(:\d+)?")  # for examples, and nobody's
URL = re.compile(r"\b(?:https?|ftp|ssh|git)" + r"://([^/\s)\"'`>]+)")


def links(page: Path) -> Iterator[str]:
    yield from LINK.findall(prose(page.read_text(encoding="utf-8")))


def files() -> Iterator[Path]:
    """Everything that is part of the project, as far as it is text."""
    for path in ROOT.iterdir():
        if path.is_file() and path.suffix in {"", ".md", ".toml", ".txt"}:
            yield path
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield path


def targets() -> set[str]:
    """What make can make, but for files."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z0-9/_-]*):(?!=)", makefile, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        if "://" in name:
            continue
        target = (page.parent / name).resolve() if name else page
        there = target.exists() and target.is_relative_to(ROOT)
        if not there or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)

    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached = {(ROOT / link.partition("#")[0]).resolve() for link in links(README)}

    assert sorted(set(DOCS.rglob("*.md")) - reached) == []


def test_every_make_target_is_documented_and_no_other() -> None:
    listed = [name for row in rows(text_of("development.md")) for name in quoted(row[0])]
    documented = [name.removeprefix("make ") for name in listed if name.startswith("make ")]

    assert sorted(documented) == sorted(targets())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:`|^|    )make ([a-z][a-z0-9/_-]*)", text, re.MULTILINE))

    assert named <= targets()


def test_every_test_that_the_guarantees_name_exists() -> None:
    named = {name for name in quoted(text_of("guarantees.md")) if name.endswith(".py")}

    assert len(named) > 15
    assert sorted(name for name in named if not (ROOT / "tests" / name).is_file()) == []


def test_every_guarantee_names_its_tests() -> None:
    parts = {title: body for title, body in sections(text_of("guarantees.md"), 2).items() if title[0] == "G"}

    assert [title[:2] for title in parts] == ["G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9"]
    for body in parts.values():
        assert body.count("**Means.**") == body.count("**Does not mean.**") == body.count("**Tests.**") == 1


def test_every_case_of_the_benchmark_that_the_guarantees_name_exists() -> None:
    cases = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "bench").rglob("*.py"))
    parts = sections(text_of("guarantees.md"), 2)
    named = {
        name
        for title, body in parts.items()
        if title[:2] in {"G7", "G8"}
        for name in quoted(body.split("**Tests.**")[1])
        if not name.endswith(".py")
    }

    assert len(named) >= 6
    assert sorted(name for name in named if f'"{name}"' not in cases) == []


def test_the_readme_keeps_a_place_for_the_measured_figures() -> None:
    text = README.read_text(encoding="utf-8")

    assert text.count("<!-- bench:start -->") == text.count("<!-- bench:end -->") == 1
    assert text.index("<!-- bench:start -->") < text.index("<!-- bench:end -->")


def test_no_file_names_a_host_that_is_not_meant_to_be_public() -> None:
    foreign = {
        (path.relative_to(ROOT).as_posix(), host)
        for path in files()
        for host in URL.findall(path.read_text(encoding="utf-8", errors="replace"))
        if host not in HOSTS and not host.startswith(("127.0.0.1", "localhost", "{"))
        if not RESERVED.fullmatch(host)
    }

    assert foreign == set()


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), line.strip())
        for path in files()
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
        if MACHINE.search(line)
    }

    assert found == set()
