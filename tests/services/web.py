"""Serves HTTP from a thread of this process: what stands in for a service at the edge of its protocol."""

from __future__ import annotations

import ssl
import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.services.processes import HOST


class Handler(BaseHTTPRequestHandler):
    """Answers all methods as GET, and says nothing."""

    @abstractmethod
    def respond(self) -> None: ...

    def do_GET(self) -> None:
        self.respond()

    def do_POST(self) -> None:
        self.respond()

    def do_HEAD(self) -> None:
        self.respond()

    def do_DELETE(self) -> None:
        self.respond()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, code: int, content: bytes, **headers: str) -> None:
        """As JSON."""
        self.send_response(code)
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """The port, until the context ends."""
    server = ThreadingHTTPServer((HOST, 0), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
