"""docs/cli.md and the command tree say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from holdfast.cli import app
from holdfast.cli._ending import ExitCode

GUIDE = Path(__file__).parents[2] / "docs" / "cli.md"


def leaves(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Every command that does something, by the words that call it."""
    below = getattr(command, "commands", None)
    if below is None:
        return {" ".join(path): command}
    found: dict[str, Any] = {}
    for name, each in below.items():
        found |= leaves(each, (*path, name))
    return found


COMMANDS = leaves(typer.main.get_command(app))


def sections() -> dict[str, str]:
    """The text of each command's section, by the words that call it."""
    parts = re.split(r"^### `holdfast ([a-z_ ]+?)(?: [\[A-Z].*)?`$", GUIDE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert sorted(sections()) == sorted(COMMANDS)


def test_every_option_is_described_where_it_belongs() -> None:
    general = GUIDE.read_text().split("## Exit codes")[0]
    for_pipelines = GUIDE.read_text().split("## Pipelines")[1].split("###")[0]
    missing = [
        (name, option)
        for name, command in COMMANDS.items()
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("-") and f"`{option}" not in sections()[name] and f"`{option}" not in general
        if not (name.startswith("pipeline run ") and f"`{option}" in for_pipelines)
    ]

    assert missing == []


def test_every_command_and_option_has_a_help_text() -> None:
    silent = [name for name, command in COMMANDS.items() if not command.help]
    silent += [
        f"{name} {parameter.name}"
        for name, command in COMMANDS.items()
        for parameter in command.params
        if not getattr(parameter, "help", "")
    ]

    assert silent == []


def test_every_exit_code_is_described() -> None:
    described = re.findall(r"^\| (\d+) \|", GUIDE.read_text(), flags=re.MULTILINE)

    assert [int(code) for code in described] == sorted(ExitCode)


def test_json_and_the_database_url_are_options_of_every_command() -> None:
    for command in COMMANDS.values():
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "--database-url"} <= options
