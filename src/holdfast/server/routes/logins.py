"""Logging in: a key, exchanged for a token that counts for a quarter of an hour."""

from __future__ import annotations

from holdfast.server.auth import LOGIN_SECONDS, address
from holdfast.server.endpoint import Book, Call
from holdfast.wire import requests as wire
from holdfast.wire.answers import stating

OPEN_TOKEN = "open"  # before the first key, whatever is sent is ignored

book = Book("logins")
Token = stating("Token", token=str, expires_in=int)
AuthStatus = stating("AuthStatus", auth_required=bool)


@book.add("POST", "/api/auth/login", None, body=wire.Login, answer=Token)
async def login(call: Call[wire.Login]) -> object:
    """Exchange a key, as the password of any user, for a token."""
    door = call.service.door
    if await door.is_open():
        return Token(OPEN_TOKEN, LOGIN_SECONDS)
    token = await door.log_in(call.asked.password.encode(), address(call.request))
    return Token(token, LOGIN_SECONDS)


@book.add("GET", "/api/auth/status", None, answer=AuthStatus)
async def auth_status(call: Call[None]) -> object:
    """Whether requests need a key."""
    return AuthStatus(not await call.service.door.is_open())
