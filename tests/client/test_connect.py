"""One way to any door: the URL says which, and what is not needed is not imported."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import holdfast
from holdfast import AsyncHoldfast, AsyncHttpHoldfast, Holdfast, HttpHoldfast

MORE_THAN_SQL = {"work"}
LOGIN = "user:hidden"
# What makes httpx and msgspec impossible to import.
WITHOUT_PACKAGES = """
import sys
sys.modules["httpx"] = sys.modules["msgspec"] = None
import holdfast
holdfast.Holdfast("postgresql://127.0.0.1/x")
try:
    holdfast.connect("http://127.0.0.1:1")
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1/x", "postgres://127.0.0.1/x", "host=127.0.0.1"])
def test_the_url_of_a_database_gives_the_client_over_sql(url: str) -> None:
    assert type(holdfast.connect(url, max_size=3)) is Holdfast
    assert type(holdfast.async_connect(url, prepare=True)) is AsyncHoldfast


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "https://localhost/holdfast/", "HTTP://[::1]:1"])
async def test_the_url_of_a_server_gives_the_client_over_http(url: str) -> None:
    plain, later = holdfast.connect(url, key="hf_x"), holdfast.async_connect(url, patience=1)

    assert (type(plain), type(later)) == (HttpHoldfast, AsyncHttpHoldfast)
    assert isinstance(plain, HttpHoldfast)
    assert isinstance(later, AsyncHttpHoldfast)
    plain.close()
    await later.close()


@pytest.mark.parametrize("url", ["mysql://127.0.0.1", "localhost:8080", "", f"ftp://{LOGIN}@localhost"])
def test_another_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ValueError, match="a URL begins with postgresql, http or https") as caught:
        holdfast.connect(url)

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://", f"http://{LOGIN}@localhost/?a=1", "https://localhost/#part"])
def test_an_address_that_no_server_has_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="a server is at an address such as") as caught:
        holdfast.connect(url)

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("key", ["hf with spaces", "hf_\nInjected: 1", "hf_é"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match="an API key is text such as hf_…") as caught:
        holdfast.connect("http://127.0.0.1:1", key=key)

    assert key not in str(caught.value)


def test_an_option_of_the_other_door_is_refused() -> None:
    with pytest.raises(TypeError, match="max_size"):
        holdfast.connect("http://127.0.0.1:1", max_size=3)
    with pytest.raises(TypeError, match="key"):
        holdfast.connect("postgresql://127.0.0.1/x", key="hf_x")


def test_without_the_packages_for_http_everything_else_works() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_PACKAGES], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "a client over HTTP needs more packages: pip install 'holdfast[http]'\n"


@pytest.mark.parametrize(("sql", "http"), [(Holdfast, HttpHoldfast), (AsyncHoldfast, AsyncHttpHoldfast)])
def test_both_doors_have_the_same_methods_with_the_same_arguments(sql: type[Any], http: type[Any]) -> None:
    assert signatures(sql) == {
        name: taken for name, taken in signatures(http).items() if name not in MORE_THAN_SQL
    }


def signatures(kind: type[Any]) -> dict[str, list[inspect.Parameter]]:
    """The public methods of a client, each with its parameters."""
    members = inspect.getmembers(kind, inspect.isfunction)
    return {
        name: list(inspect.signature(method).parameters.values())
        for name, method in members
        if not name.startswith("_")
    }
