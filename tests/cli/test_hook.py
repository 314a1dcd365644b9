"""holdfast hook: hooks are made, changed, rotated, looked at and removed.

1. Slugs and secrets that were made are shown once; those that are read from stdin are not shown at all.
2. What is in force, and what became of calls, can be looked at.
"""

from __future__ import annotations

from base64 import b64encode

import pytest

from holdfast import Holdfast
from holdfast.client._hooks import hash_of
from tests.cli.conftest import Run

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SLUG = "a-slug-that-somebody-chose"


@pytest.fixture(autouse=True)
def secret_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that secrets are sealed with."""
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", b64encode(b"k" * 32).decode())


def test_a_hook_is_made_and_its_path_shown_once(run: Run) -> None:
    made = run("hook", "create", "shop", "rate_limit=5", "--queue", "orders")
    listed = run("hook", "list", "--json")
    shown = run("hook", "show", "shop", "--json")

    assert made.code == 0, made.err
    path = made.out.strip()
    assert path.startswith("/wh/wh_")
    assert "shown this once" in made.err
    assert [(each["hook"], each["queue"]) for each in listed.lines] == [("shop", "orders")]
    assert shown.lines[0]["config"]["rate_limit"] == 5
    assert path.removeprefix("/wh/") not in listed.out + shown.out


def test_slug_and_secret_come_from_stdin(run: Run, database_url: str) -> None:
    options = ("--slug-from-stdin", "--secret-from-stdin")
    made = run("hook", "create", "shop", *options, stdin=f"{SLUG}\n{SECRET}\n")

    assert (made.code, made.out.strip()) == (0, f"/wh/{SLUG}")
    assert SECRET not in made.out + made.err
    with Holdfast(database_url) as client:
        (info,) = client.hooks()
    assert [slug["prefix"] for slug in info.slugs] == [SLUG[:8]]
    assert len(info.secrets) == 1


def test_a_hook_is_changed_rotated_and_removed(run: Run, database_url: str) -> None:
    run("hook", "create", "shop")

    changed = run("hook", "set", "shop", "enabled=false", "--json")
    slug = run("hook", "rotate", "shop", "--slug", "--overlap", "1 hour", "--json")
    secret = run("hook", "rotate", "shop", "--secret")
    given = run("hook", "rotate", "shop", "--secret-from-stdin", stdin=f"{SECRET}\n")
    nothing = run("hook", "rotate", "shop")
    calls = run("hook", "calls", "shop")
    gone = run("hook", "drop", "shop", "--with-queue", "--yes")

    assert changed.lines[0]["enabled"] is False
    assert slug.lines[0]["path"] == f"/wh/{slug.lines[0]['slug']}"
    assert secret.out.startswith("whsec_")
    assert given.out == "Rotated hook shop.\n"
    assert "QH882" in nothing.err
    assert "Nobody has called shop." in calls.out + calls.err
    assert gone.out == "Removed hook shop.\n"
    with Holdfast(database_url) as client:
        assert (client.hooks(), client.queues()) == ([], [])


def test_what_is_not_there_or_wrong_is_said(run: Run) -> None:
    run("hook", "create", "shop", "--slug-from-stdin", stdin=f"{SLUG}\n")

    for words, code in (
        (("show", "none"), "QH880"),
        (("set", "none", "enabled=true"), "QH880"),
        (("calls", "none"), "QH880"),
        (("create", "shop"), "QH881"),
        (("set", "shop", "colour=red"), "QH882"),
    ):
        result = run("hook", *words)
        assert (result.code, code in result.err) == (1, True), result.err
    assert run("hook", "drop", "none", "--yes").out == "There was no hook none.\n"
    assert hash_of(SLUG).hex() not in run("hook", "show", "shop", "--json").out
