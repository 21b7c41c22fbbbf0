"""Logging in to a server as a browser does."""

from __future__ import annotations

from urllib.parse import urlencode

from support.server import TOKEN, Answer, Client

FORM = {"content-type": "application/x-www-form-urlencoded"}


def log_in(client: Client, token: str = TOKEN, **headers: str) -> Answer:
    body = urlencode({"token": token}).encode()
    return Client(client.port).ask("POST", "/login", body=body, headers={**FORM, **headers})


def cookie_of(answer: Answer) -> str:
    (cookie,) = answer.cookies
    return cookie.partition(";")[0]


def with_cookie(client: Client, cookie: str, path: str = "/api/runs") -> Answer:
    return Client(client.port).get(path, cookie=cookie)
