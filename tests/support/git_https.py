"""A repository over https: git's own server behind TLS, with a certificate of our own authority."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from support import parts
from support.http_thread import http_server

USER, PASSWORD = "reader", "hunter22"


@contextmanager
def git_https(root: Path) -> Iterator[int]:
    """Serve the repositories below a directory to one user; yield the port of `far.test`."""
    backend = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip())
    if not (backend / "git-http-backend").exists():
        parts.missing("git-http-backend is missing: install git completely")
    with http_server(_handler(root, backend / "git-http-backend"), tls=True) as port:
        yield port


def _handler(root: Path, backend: Path) -> type[BaseHTTPRequestHandler]:
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") != expected:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            length = int(self.headers.get("Content-Length", 0))
            path, _, query = self.path.partition("?")
            variables = {
                "PATH": os.environ["PATH"],
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "REMOTE_USER": USER,
            }
            sent = self.rfile.read(length)
            done = subprocess.run(
                [backend], input=sent, env=variables, capture_output=True, check=True
            )
            head, _, body = done.stdout.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in {**fields, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  (the library's name)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
