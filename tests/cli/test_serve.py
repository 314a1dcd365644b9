"""holdfast serve: what it is told, looked at before it serves.

1. Files for HTTPS are there and fit together, or it is wrong usage that names option and file.
2. Origins and proxies are what they are called, or it is wrong usage.
3. A database user who may not serve is told which role that takes.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.cli.conftest import NOWHERE, Answer, Run, environment, execute
from tests.fix_http import ServeProcess, certified

Pair = tuple[Path, Path]


def refused(*words: str) -> Answer:
    """What `holdfast serve` says of words that it cannot serve with."""
    answer = execute("serve", *words, "--json", env=environment(NOWHERE))
    assert (answer.code, answer.out) == (2, "")
    return answer


# --- 1. HTTPS --------------------------------------------------------------------------------------


def test_a_file_with_certificate_and_key_is_enough(
    serve_process: ServeProcess, certificate: Pair, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(certificate[0].read_bytes() + certificate[1].read_bytes())

    address = serve_process("--tls-certificate", str(both)).address

    assert address.startswith("https" + "://127.0.0.1:")
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    assert httpx.get(address + "/healthz", verify=trusting, trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (lambda mine, _: ("--tls-key", mine[1]), "--tls-key {} needs its certificate"),
        (lambda mine, _: ("--tls-certificate", mine[0]), "--tls-certificate {}: its key is not in it"),
        (lambda mine, _: ("--tls-certificate", mine[1]), "--tls-certificate {}: there is no certificate"),
        (lambda *_: ("--tls-certificate", "/nowhere/c"), "--tls-certificate {}: No such file or directory"),
        (
            lambda mine, _: ("--tls-certificate", mine[0], "--tls-key", "/nowhere/k"),
            "--tls-key {}: No such file or directory",
        ),
        (
            lambda mine, other: ("--tls-certificate", mine[0], "--tls-key", other[1]),
            "--tls-key {}: it is no key in PEM, without a password, of the certificate",
        ),
    ],
    ids=["key alone", "certificate alone", "no certificate", "no file", "no file of a key", "no pair"],
)
def test_files_that_are_no_pair_are_wrong_usage(
    certificate: Pair, tmp_path: Path, words: Callable[[Pair, Pair], tuple[object, ...]], said: str
) -> None:
    given = [str(word) for word in words(certificate, certified(tmp_path))]

    assert said.format(given[-1]) in refused(*given).err


# --- 2. origins and proxies -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "word"),
    [
        *(("--cors", word) for word in ("*", "example.com", "https" + "://example.com/", "https" + "://A.com")),
        *(("--proxy", word) for word in ("proxy.internal", "10.0.0.5/24", "10.0.0.0/99")),
    ],
)
def test_what_is_no_origin_or_no_address_is_wrong_usage(option: str, word: str) -> None:
    assert f"Invalid value for '{option}'" in refused(option, word).err


# --- 3. rights -------------------------------------------------------------------------------------


def test_a_user_without_rights_is_told_which_role_serves(
    run: Run, conn: psycopg.Connection[Any], database_url: str
) -> None:
    conn.execute("create role test_serving login password 'secret'")
    url = make_conninfo(database_url, user="test_serving", password="secret")
    try:
        nobody = run("serve", "--port", "0", "--database-url", url, "--json")
        conn.execute("grant holdfast_consumer to test_serving")
        consumer = run("serve", "--port", "0", "--database-url", url, "--json")
    finally:
        conn.execute("drop role test_serving")

    for answer in (nobody, consumer):
        error = json.loads(answer.err)["error"]
        assert (answer.code, answer.out, error["code"]) == (1, "", "42501")
        assert error["hint"] == "the server needs a role that this user does not have: holdfast_admin."
