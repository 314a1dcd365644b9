"""Secrets in texts: hidden in every way in which they are written, and nothing else with them."""

from __future__ import annotations

import pytest

from holdfast.spark._redact import redacted

URL = "postgresql://shop:hush@127.0.0.1/shop"
REFUSED = "permission denied for function writes"


@pytest.mark.parametrize("password", ["c", "on", "fun", "den"])
def test_words_that_have_a_short_password_in_them_stay(password: str) -> None:
    url = f"postgresql://shop:{password}@127.0.0.1/shop"

    assert redacted(REFUSED, url) == REFUSED
    assert redacted(f"{REFUSED}: {url}", url) == f"{REFUSED}: ***"
    assert redacted(f"host=h password={password} x", url) == "host=h password=*** x"


@pytest.mark.parametrize(
    ("connection", "text", "told"),
    [
        (URL, "hush is wrong, hushed is not", "*** is wrong, hushed is not"),
        (URL, "user=shop password=hush", "user=shop password=***"),
        (URL, "postgres://shop:hush@other/db and more", "*** and more"),
        (URL, r"'it is\nhush'", r"'it is\n***'"),
        (URL, "shop_hush", "shop_***"),
        ("postgresql://u:s%40fe!word@h/d", "got s@fe!word", "got ***"),
        ("postgresql://u:s%40fe!word@h/d", "got s%40fe%21word and s%40fe!word", "got *** and ***"),
        ("postgresql://h/d?user=u&password=hidden", "got hidden", "got ***"),
        ("host=x password='hu sh' user=y", "no hu sh, no password = 'hu sh'", "no ***, no password = ***"),
        (r"host=x password='it\'s' user=y", r"it's and it\'s", "*** and ***"),
        ("host=x sslpassword=keykey", "keykey", "***"),
        ("postgresql://u:correct-horse@h/d", "xcorrect-horsex", "x***x"),
        # No URL that is right: libpq quotes what it took for the port.
        ("postgresql://u:left/right@h/d", 'invalid port "left", right', 'invalid port "***", ***'),
        (URL, "s3a://key:other@bucket/x", "s3a://***@bucket/x"),
        ("dbname=shop", "shop is shut", "shop is shut"),
    ],
)
def test_a_password_is_hidden_however_it_is_written(connection: str, text: str, told: str) -> None:
    assert redacted(text, connection) == told
