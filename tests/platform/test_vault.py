"""Secrets at rest.

1. What is sealed can be opened again, with the same key and for the same purpose, and not otherwise.
2. No part of the secret, and no key, is in what is sealed, or in an error.
3. An older key opens, and does not seal.
4. Beside the embedded server the key is a file for its owner alone; of several who make it, one counts.
5. Without a key, or with one that is none, the error says what to do.
"""

from __future__ import annotations

import stat
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import SealedError, SecretKeyError
from holdfast.vault import Vault

KEY, OLDER = (b64encode(bytes([n]) * 32).decode() for n in (1, 2))
SECRET = "postgresql://me:hunter2@db/shop ü"


def test_what_is_sealed_can_be_opened_again() -> None:
    vault = Vault(KEY)
    sealed = vault.seal(SECRET, "service:shop")

    assert vault.open(sealed, "service:shop") == SECRET
    assert Vault(KEY).open(sealed, "service:shop") == SECRET


def test_a_sealed_text_shows_nothing_and_is_never_the_same() -> None:
    vault = Vault(KEY)
    sealed = {vault.seal(SECRET, "p") for _ in range(20)}

    assert len(sealed) == 20
    assert not [each for each in sealed if "hunter2" in each or KEY in each]
    assert KEY not in repr(vault)


def test_it_cannot_be_opened_for_another_purpose() -> None:
    vault = Vault(KEY)

    with pytest.raises(SealedError) as caught:
        vault.open(vault.seal(SECRET, "service:shop"), "service:other")
    assert caught.value.code == "QH841"
    assert "another purpose" in str(caught.value)


@pytest.mark.parametrize("place", [0, 5, 10, 15, 40, -3])
def test_what_was_changed_cannot_be_opened(place: int) -> None:
    vault = Vault(KEY)
    sealed = vault.seal(SECRET, "p")
    other = "A" if sealed[place] != "A" else "B"
    changed = sealed[:place] + other + sealed[place % len(sealed) + 1 :]

    with pytest.raises(SealedError):
        vault.open(changed, "p")


@pytest.mark.parametrize("text", ["", "hfs1", "hfs1..", "hfs1.abc.!!", "hfs1.abc.ü", "hfs2.a.AAAA", SECRET])
def test_what_was_never_sealed_cannot_be_opened(text: str) -> None:
    with pytest.raises(SealedError) as caught:
        Vault(KEY).open(text, "p")
    assert "hunter2" not in str(caught.value)


def test_an_older_key_opens_and_does_not_seal() -> None:
    before = Vault(OLDER).seal(SECRET, "p")
    both = Vault(f"{KEY}, {OLDER}")

    assert both.open(before, "p") == SECRET
    assert not both.is_current(before)
    again = both.seal(both.open(before, "p"), "p")
    assert both.is_current(again)
    assert Vault(KEY).open(again, "p") == SECRET


def test_another_key_is_named_by_its_id_alone() -> None:
    sealed = Vault(OLDER).seal(SECRET, "p")

    with pytest.raises(SealedError) as caught:
        Vault(KEY).open(sealed, "p")
    assert sealed.split(".")[1] in str(caught.value)
    assert KEY not in str(caught.value)


def test_without_a_key_the_error_says_how_to_make_one() -> None:
    with pytest.raises(SecretKeyError) as caught:
        Vault().seal(SECRET, "p")
    assert caught.value.code == "QH840"
    assert "openssl rand -base64 32" in str(caught.value)


def test_without_a_key_what_was_sealed_names_the_one_it_takes(tmp_path: Path) -> None:
    sealed = Vault(KEY).seal(SECRET, "p")

    beside = Vault(folder=tmp_path), str(tmp_path / "secret_key")
    for vault, place in ((Vault(), "HOLDFAST_SECRET_KEY"), beside):
        with pytest.raises(SecretKeyError) as caught:
            vault.open(sealed, "p")
        told = " ".join(filter(None, [caught.value.message, caught.value.detail, caught.value.hint]))
        assert caught.value.code == "QH840"
        assert sealed.split(".")[1] in told
        assert place in told
        assert "Nothing was stored" not in told


@pytest.mark.parametrize("keys", [" ", ",", "abc", f"{KEY},abc", b64encode(b"short").decode(), "ä" * 44])
def test_a_key_that_is_none_is_refused_and_not_shown(keys: str) -> None:
    with pytest.raises(SecretKeyError) as caught:
        Vault(keys).seal(SECRET, "p")
    assert "32 bytes in base64" in str(caught.value)
    assert keys.strip(", ") == "" or keys not in str(caught.value)


def test_the_environment_goes_before_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", KEY)
    sealed = Vault.found(tmp_path).seal(SECRET, "p")

    assert Vault(KEY).open(sealed, "p") == SECRET
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_made_at_the_first_seal_for_its_owner_alone(tmp_path: Path) -> None:
    vault = Vault(folder=tmp_path)
    with pytest.raises(SecretKeyError):
        vault.open(Vault(KEY).seal(SECRET, "p"), "p")
    assert list(tmp_path.iterdir()) == []

    sealed = vault.seal(SECRET, "p")

    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600
    assert Vault(folder=tmp_path).open(sealed, "p") == SECRET


def test_of_several_who_make_the_file_one_counts(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        sealed = list(pool.map(lambda _: Vault(folder=tmp_path).seal(SECRET, "p"), range(40)))

    assert {Vault(folder=tmp_path).open(each, "p") for each in sealed} == {SECRET}
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def test_the_file_may_have_an_older_key_on_its_second_line(tmp_path: Path) -> None:
    (tmp_path / "secret_key").write_text(f"{KEY}\n{OLDER}\n")
    vault = Vault(folder=tmp_path)

    assert vault.open(Vault(OLDER).seal(SECRET, "p"), "p") == SECRET
    assert vault.is_current(vault.seal(SECRET, "p"))
