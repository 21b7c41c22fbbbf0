"""A web site on loopback for a browser: pages by path, and what was asked for."""

from __future__ import annotations

import base64
import hashlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from support.http_thread import http_server

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = "javascript:"


class Site:
    """`pages` has HTML by path; one that begins with `location:` redirects, or is a script."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pages: dict[str, str] = {}
        self.asked: list[str] = []
        self.upgraded: list[str] = []

    def paths(self) -> set[str]:
        """The paths that were asked for, since the last call."""
        found, self.asked = set(self.asked), []
        return found


def _answer(site: Site) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            site.asked.append(path if self.command == "GET" else f"{self.command} {path}")
            self.rfile.read(int(self.headers.get("content-length") or 0))
            if "websocket" in self.headers.get("upgrade", "").lower():
                self._upgrade(path)
                return
            page = site.pages.get(path, "<title>other</title>nothing here")
            redirect = page.startswith("location:")
            self.send_response(302 if redirect else 200)
            if redirect:
                self.send_header("location", page.removeprefix("location:"))
                page = ""
            script = page.startswith(SCRIPT)
            kind = "text/javascript" if script else "text/html; charset=utf-8"
            body = page.removeprefix(SCRIPT).encode()
            self.send_header("content-type", kind)
            self.send_header("access-control-allow-origin", "*")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def _upgrade(self, path: str) -> None:
            site.upgraded.append(path)
            key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            self.send_response(101)
            self.send_header("upgrade", "websocket")
            self.send_header("connection", "Upgrade")
            self.send_header("sec-websocket-accept", accept)
            self.end_headers()
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Answer


@contextmanager
def web_site(*, tls: bool = False) -> Iterator[Site]:
    """Serve a site; with `tls` as `far.test`, with a certificate of our own authority."""
    site = Site(0)
    with http_server(_answer(site), tls=tls) as site.port:
        yield site
