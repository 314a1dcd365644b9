"""Which addresses a delivery may reach: the public internet, and what is on an allow list. Nothing else.

An endpoint's URL comes from somebody else, and requests to it from inside of the network. So a URL is refused
that names an address of this machine, of a private network, or of a cloud's metadata service, in whichever
form; and since a name can mean another address at any time, what it means is checked again with every
connection, on the very address that is then connected to. A URL is read here and nowhere else: what is
checked and what is connected to cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

PORTS = {"http": 80, "https": 443}
LONGEST_URL = 2_048
URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][\x21-\x7e]*)?",
    re.IGNORECASE,
)
NOT_IN_TARGET = frozenset('#"<>\\^`{|}')
# By programs a label that looks like a number is read as one: 2130706433, 0x7f.1, 0177.0.0.1 are 127.0.0.1.
NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
LOCAL_NAMES = ("localhost", "local", "internal", "localdomain", "home.arpa")

FORBIDDEN = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' own; a cloud's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's metadata
        "169.254.0.0/16",  # link-local; most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; a cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved; broadcast
    )
)
# Of IPv6, only what is assigned to the internet: loopback, link-local, unique local, multicast, mapped and
# translated IPv4 (::ffff:0:0/96, 64:ff9b::/96) are all outside of it.
GLOBAL = IPv6Network("2000::/3")
FORBIDDEN_GLOBAL = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",  # documentation
    )
)


class ForbiddenAddress(Exception):
    """A delivery would have gone where none may go. It says where, and nothing was sent."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL, read once: what is connected to, and what is asked for there."""

    scheme: str
    host: str  # without brackets
    port: int
    target: str

    @property
    def address(self) -> Address | None:
        """The host, if it is an address."""
        try:
            return ip_address(self.host)
        except ValueError:
            return None

    @property
    def origin(self) -> str:
        """Where, without what: a path or a query can be secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if PORTS[self.scheme] == self.port else f":{self.port}")


def read_url(url: str) -> Place:
    """The parts of a URL; ValueError says what is wrong with it, and does not repeat it."""
    if len(url) > LONGEST_URL:
        raise ValueError(f"a URL has at most {LONGEST_URL:,} characters")
    found = URL.fullmatch(url)
    if found is None or NOT_IN_TARGET & set(found["target"] or ""):
        raise ValueError(
            "a URL is http:// or https:// with a host in ASCII, without user, password, fragment or spaces"
        )
    scheme, host = found["scheme"].lower(), found["host"].lower()
    port = int(found["port"] or PORTS[scheme])
    if not 1 <= port <= 65_535:
        raise ValueError("the port of a URL is 1 to 65535")
    target = found["target"] or "/"
    return Place(scheme, read_host(host), port, target if target.startswith("/") else f"/{target}")


def read_host(host: str) -> str:
    """A host as it is connected to; ValueError for what others may read as another address."""
    if host.startswith("["):
        try:
            return IPv6Address(host[1:-1]).compressed
        except ValueError:
            raise ValueError("the host in brackets is no IPv6 address") from None
    name = host.removesuffix(".")
    labels = name.split(".")
    if NUMERIC.fullmatch(labels[-1]):
        try:
            return str(IPv4Address(name))
        except ValueError:
            raise ValueError("an IPv4 address has four decimal parts, without leading zeros") from None
    if len(name) > 253 or not all(re.fullmatch(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", label) for label in labels):
        raise ValueError("the host is no name")
    return name


def is_public(address: Address) -> bool:
    """Whether an address is one of the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in FORBIDDEN)
    return address in GLOBAL and not any(address in network for network in FORBIDDEN_GLOBAL)


def is_local(host: str) -> bool:
    """Whether a name means something within a private network, or on this machine."""
    return "." not in host or host.endswith(tuple(f".{name}" for name in LOCAL_NAMES))


@dataclass(frozen=True, slots=True)
class Allowed:
    """One entry of an allow list: a network or a host, with a port or with all."""

    network: Network | None
    host: str | None
    port: int | None

    @classmethod
    def read(cls, text: str) -> Allowed:
        """An entry as it is written: 10.1.0.0/16, 127.0.0.1:8080, [fd00::/8]:443, ::1, hooks.intern:80."""
        bare, port = text.strip(), None
        if found := re.fullmatch(r"\[([^\]]*)\](?::([0-9]{1,5}))?|([^:]*):([0-9]{1,5})", bare):
            bare = found[1] or found[3] or ""
            port = int(found[2] or found[4]) if found[2] or found[4] else None
        if port is not None and not 1 <= port <= 65_535:
            raise ValueError(f"{text!r} allows nothing: a port is 1 to 65535")
        try:
            return cls(ip_network(bare), None, port)
        except ValueError:
            pass
        if "/" in bare or ":" in bare:
            raise ValueError(f"{text!r} allows nothing: it is no network, address or host name")
        try:
            return cls(None, read_host(bare.lower()), port)
        except ValueError:
            raise ValueError(f"{text!r} allows nothing: it is no network, address or host name") from None

    def fits(self, host: str, address: Address | None, port: int) -> bool:
        """Whether it allows a host, or an address that the host means."""
        if self.port not in (None, port):
            return False
        if self.host is not None:
            return self.host == host
        return address is not None and self.network is not None and address in self.network


class Guard:
    """Says where deliveries may go."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        """allow: networks, addresses and hosts beyond the public internet; ValueError for what is none."""
        self._allowed = tuple(Allowed.read(text) for text in allow)
        # What a name of a private network means is then up to the check of the connection.
        self._allows_networks = any(allowed.network is not None for allowed in self._allowed)

    def allows(self, host: str, address: Address | None, port: int) -> bool:
        """Whether it is on the list."""
        return any(allowed.fits(host, address, port) for allowed in self._allowed)

    def check_place(self, place: Place) -> None:
        """Refuse a URL that can be told to be forbidden without asking what its host means now."""
        address = place.address
        if self.allows(place.host, address, place.port):
            return
        if address is not None:
            self.check_address(place.host, address, place.port)
        elif is_local(place.host) and not self._allows_networks:
            raise ForbiddenAddress(f"{place.host} is a name of a private network, and not allowed")

    def check_address(self, host: str, address: Address, port: int) -> None:
        """Refuse an address that a host means."""
        if not is_public(address) and not self.allows(host, address, port):
            meant = str(address) if host == str(address) else f"{host}, which means {address},"
            raise ForbiddenAddress(f"{meant} is no address of the public internet, and not allowed")

    def check_all(self, host: str, addresses: Sequence[Address], port: int) -> None:
        """Refuse a host if any of what it means is forbidden: which one is connected to may be chance."""
        for address in addresses:
            self.check_address(host, address, port)


def check_url(url: str, allow: Iterable[str] = ()) -> Place:
    """Refuse a URL to which no delivery may go: ForbiddenAddress, or ValueError if it is none."""
    place = read_url(url)
    Guard(allow).check_place(place)
    return place
