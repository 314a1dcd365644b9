"""Where deliveries may go, told from a URL and from what a host means.

1. A URL that names an address outside of the public internet is refused, in whichever form.
2. What a host means is checked with every connection, all of it, and only that is connected to.
3. An allow list names networks, addresses and hosts, with a port or without.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.webhook.connect import GuardedBackend
from holdfast.webhook.guard import Address, ForbiddenAddress, Guard, check_url, is_public, read_url

FORBIDDEN = [
    "0.0.0.0",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.168.1.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700:4700::1111", "2a00:1450::1"]
ODD_HOSTS = [
    "2130706433/",
    "017700000001/",
    "0x7f000001/",
    "0x7f.1/",
    "127.1/",
    "127.0.1/",
    "0177.0.0.1/",
    "127.0.0.01/",
    "127.0.0.1.2/",
    "127.0.0.256/",
    "1.2.3.0x04/",
    "127.0.0.1../",
    "example.com..",
    ".example.com",
    "１２７.0.0.1/",
    "①②⑦.0.0.1/",
    "ex%61mple.com/",
    "[::1%25lo]/",
    "[fe80::1%eth0]/",
    "[::ffff:127.0.0.1",
    "user@example.com/",
    "user:secret@example.com/",
    "example.com\\@127.0.0.1/",
    "example.com#@127.0.0.1/",
    "example.com /",
    "example.com\t/",
    "example.com/a\r\nHost: b",
    "example.com:0/",
    "example.com:65536/",
    "example.com:/",
    "/path",
    "a" * 2100,
]
NO_URLS = ["//example.com/", "ftp:%s", "file:%s", "unix:%s", "https:/%s", "example.com", "", "http://"]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_an_address_outside_of_the_public_internet_is_refused(text: str) -> None:
    host = f"[{text}]" if ":" in text else text

    with pytest.raises(ForbiddenAddress, match="no address of the public internet"):
        check_url(f"https://{host}:8443/hook")


@pytest.mark.parametrize("text", PUBLIC)
def test_an_address_of_the_public_internet_is_taken(text: str) -> None:
    host = f"[{text}]" if ":" in text else text

    check_url(f"https://{host}/hook")


@given(st.ip_addresses())
def test_no_address_is_public_that_python_knows_to_be_none(address: IPv4Address | IPv6Address) -> None:
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_host_that_programs_read_in_different_ways_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"URL|host|address|characters") as refused:
        check_url(f"http://{host}")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", NO_URLS)
def test_what_is_no_url_of_a_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a URL is http"):
        check_url(text.replace("%s", "//example.com/"))


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "localhost.", "a.localhost", "intranet", "printer.local", "db.internal"],
)
def test_a_name_of_this_machine_or_a_private_network_is_refused(host: str) -> None:
    with pytest.raises(ForbiddenAddress, match="a name of a private network"):
        check_url(f"http://{host}/")


@pytest.mark.parametrize(
    ("scheme", "rest", "parts"),
    [
        ("https:", "//Example.com", ("https", "example.com", 443, "/")),
        ("http:", "//example.com.:8080/a?b=c", ("http", "example.com", 8080, "/a?b=c")),
        ("https:", "//example.com?a=1", ("https", "example.com", 443, "/?a=1")),
        ("https:", "//[2606:4700::0001]:444/x", ("https", "2606:4700::1", 444, "/x")),
    ],
)
def test_a_url_is_read_into_what_is_connected_to(
    scheme: str, rest: str, parts: tuple[str, str, int, str]
) -> None:
    place = read_url(scheme + rest)

    assert (place.scheme, place.host, place.port, place.target) == parts


@given(st.text(max_size=60))
def test_what_is_read_has_a_host_that_nobody_reads_otherwise(text: str) -> None:
    try:
        place = read_url(f"http://{text}")
    except ValueError:
        return
    assert place.host.isascii()
    assert not set(place.host) & set("@/\\%#?[] ")
    if place.address is None:
        assert not place.host.rpartition(".")[2].isdigit()


@pytest.mark.parametrize(
    ("allow", "rest"),
    [
        ("127.0.0.1", "//127.0.0.1:8080/"),
        ("127.0.0.0/8:8080", "//127.1.2.3:8080/"),
        ("10.0.0.0/8", "//10.2.3.4/"),
        ("::1", "//[::1]:99/"),
        ("[fd00::/8]:443", "//[fd00::5]:443/"),
        ("localhost", "//localhost:1/"),
        ("receiver:80", "//receiver/"),
    ],
)
def test_what_is_on_the_list_is_allowed(allow: str, rest: str) -> None:
    check_url(f"http:{rest}", [allow])


@pytest.mark.parametrize(
    ("allow", "rest"),
    [
        ("127.0.0.1:8080", "//127.0.0.1:8081/"),
        ("127.0.0.1", "//127.0.0.2/"),
        ("10.0.0.0/8", "//[::ffff:10.0.0.1]/"),
        ("localhost", "//127.0.0.1/"),
        ("receiver:80", "//receiver:81/"),
    ],
)
def test_what_is_beside_the_list_is_not(allow: str, rest: str) -> None:
    with pytest.raises(ForbiddenAddress):
        check_url(f"http:{rest}", [allow])


@pytest.mark.parametrize("text", ["", "10.0.0.0/33", "10.0.0.1/8", "a b", "host:0", "host:70000", "*", "1.2"])
def test_an_entry_that_allows_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="allows nothing"):
        Guard([text])


class Names:
    """What hosts mean, one answer after the other; and which connections were about to be made."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.connections: list[tuple[str, Address, int]] = []

    async def look_up(self, host: str, port: int) -> Sequence[Address]:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [ip_address(text) for text in answer]

    def note(self, host: str, address: Address, port: int) -> None:
        self.connections.append((host, address, port))

    async def connect(self, *allow: str, host: str = "hooks.example.com", port: int = 9) -> None:
        backend = GuardedBackend(Guard(allow), lookup=self.look_up, connecting=self.note)
        stream = await backend.connect_tcp(host, port, timeout=10)
        await stream.aclose()


@pytest.mark.parametrize("text", FORBIDDEN)
async def test_a_name_that_means_a_forbidden_address_is_refused_before_a_connection(text: str) -> None:
    names = Names([text])

    with pytest.raises(ForbiddenAddress, match="no address of the public internet"):
        await names.connect()

    assert names.connections == []


async def test_a_name_that_means_one_forbidden_address_among_others_is_refused() -> None:
    names = Names(["8.8.8.8", "127.0.0.1"])

    with pytest.raises(ForbiddenAddress, match=r"127\.0\.0\.1"):
        await names.connect()

    assert names.connections == []


async def test_what_was_checked_is_connected_to_though_the_name_means_something_else_by_then() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        names = Names(["127.0.0.1"], ["169.254.169.254"])

        await names.connect("127.0.0.1", port=port)

        assert (names.asked, names.connections) == (1, [("hooks.example.com", ip_address("127.0.0.1"), port)])
        with pytest.raises(ForbiddenAddress, match=r"169\.254\.169\.254"):
            await names.connect("127.0.0.1", port=port)
    assert len(names.connections) == 1


async def test_the_next_address_is_tried_where_one_takes_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        names = Names(["127.0.0.2", "127.0.0.1"])

        await names.connect("127.0.0.0/8", port=port)

    assert [str(address) for _, address, _ in names.connections] == ["127.0.0.2", "127.0.0.1"]


async def test_a_host_that_means_nothing_is_said_to_have_no_address() -> None:
    with pytest.raises(httpcore.ConnectError, match="the host has no address"):
        await Names([]).connect()


async def test_no_file_is_connected_to() -> None:
    with pytest.raises(ForbiddenAddress):
        await GuardedBackend(Guard()).connect_unix_socket("/run/postgresql/.s.PGSQL.5432")
