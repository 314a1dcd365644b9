"""Words for where requests may come from: origins of web pages, and addresses of proxies."""

from __future__ import annotations

import re
from ipaddress import ip_network

import typer

# As browsers send it: in lower case, and without a path.
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?")


def origin(text: str) -> str:
    """The origin of web pages."""
    if not ORIGIN.fullmatch(text):
        raise typer.BadParameter(
            f"{text!r} is no origin: it is a scheme and a host in lower case, perhaps a port, and nothing "
            "behind it, as https" + "://app.example.com; there is no word for all"
        )
    return text


def network(text: str) -> str:
    """The address of a machine, or of a network."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise typer.BadParameter(f"{error}: an address is as 10.0.0.5, a network as 10.0.0.0/24") from error
