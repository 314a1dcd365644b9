"""The files for HTTPS: whether they are there, and fit together, before anything is served."""

from __future__ import annotations

import ssl
from pathlib import Path

import typer

CERTIFICATE, KEY = "--tls-certificate", "--tls-key"


def check_pair(certificate: str | None, key: str | None) -> None:
    """Refuse files that no server could serve with."""
    if certificate is None:
        if key is not None:
            raise typer.BadParameter(f"{KEY} {key} needs its certificate: name it with {CERTIFICATE}")
        return
    check_readable(CERTIFICATE, certificate)
    if key is not None:
        check_readable(KEY, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_verify_locations(certificate)
    except ssl.SSLError as error:
        problem = f"{CERTIFICATE} {certificate}: there is no certificate in PEM in it"
        raise typer.BadParameter(problem) from error
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # else OpenSSL asks at the terminal
    except ssl.SSLError as error:
        raise typer.BadParameter(mismatch(certificate, key)) from error


def check_readable(option: str, file: str) -> None:
    """Refuse a file that is not there, or not ours to read."""
    try:
        Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{option} {file}: {error.strerror}") from error


def mismatch(certificate: str, key: str | None) -> str:
    """What is wrong where there is a certificate."""
    if key is None:
        return f"{CERTIFICATE} {certificate}: its key is not in it: name it with {KEY}"
    return f"{KEY} {key}: it is no key in PEM, without a password, of the certificate {certificate}"
