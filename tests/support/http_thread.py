"""An HTTP server in a thread of the test. With TLS it is `far.test`, certified by our authority."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.paths import FIXTURES

HOST = "far.test"
AUTHORITY = FIXTURES / "tls" / "authority.pem"


def certified() -> ssl.SSLContext:
    """Return what a server needs to be `far.test`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(FIXTURES / "tls" / "far.pem")
    return context


def trusting() -> ssl.SSLContext:
    """Return what a client needs to believe that."""
    return ssl.create_default_context(cafile=AUTHORITY)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client closes connections as it likes."""


@contextmanager
def http_server(handler: type[BaseHTTPRequestHandler], *, tls: bool = False) -> Iterator[int]:
    """Serve on loopback; yield the port."""
    server = _Server(("127.0.0.1", 0), handler)
    if tls:
        server.socket = certified().wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
