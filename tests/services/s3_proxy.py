"""A proxy before a real S3 server that gives it the habits of others: what they ignore, say, or lose."""

from __future__ import annotations

import contextlib
import http.client
import queue
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Habit = Literal[
    "none",
    "ignores conditions",  # If-None-Match is accepted and means nothing
    "names no condition",  # as minio: 412 without <Condition>, which s3fs does not know as FileExistsError
    "loses answers",  # every first successful create is done, and its connection dropped
    "unavailable",  # every request is refused for now
    "expired",  # refuses everything, as AWS does with a token that was good until now
]


class S3Proxy:
    def __init__(self, upstream: str) -> None:
        self.habit: Habit = "none"
        #: The first write below such a path is refused, and everything after it.
        self.expires_at: str | None = None
        #: A write whose path holds this is never answered; whose it was then stands in ``kept_waiting``.
        self.silent_at: str | None = None
        self.kept_waiting: queue.Queue[str] = queue.Queue()
        self.ended = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, upstream))
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.lost = 0

    def __enter__(self) -> S3Proxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()


_EXPIRED = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ExpiredToken</Code>'
    b"<Message>The provided token has expired.</Message><Token-0>planted-in-xml</Token-0></Error>"
)


_UNAVAILABLE = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>ServiceUnavailable</Code>'
    b"<Message>Reduce your request rate.</Message></Error>"
)


def _handler(proxy: S3Proxy, upstream: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # answers `Expect: 100-continue`, which botocore waits for

        def _pass_on(self) -> None:
            conditional = "If-None-Match" in self.headers
            if self._writes_below(proxy.silent_at):
                proxy.kept_waiting.put(self.headers.get("User-Agent", ""))
                proxy.ended.wait()
                self.close_connection = True
                return
            if self._writes_below(proxy.expires_at):
                proxy.habit = "expired"
            if proxy.habit == "unavailable":
                self._body()
                self._answer(503, [("Content-Type", "application/xml")], _UNAVAILABLE)
                return
            if proxy.habit == "expired":
                self._body()
                self._answer(403, [("Content-Type", "application/xml")], _EXPIRED)
                return
            # The name it was asked by is signed.
            headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
            if proxy.habit == "ignores conditions":
                headers.pop("If-None-Match", None)
            status, answer, body = _ask(upstream, self.command, self.path, headers, self._body())
            if proxy.habit == "names no condition":
                body = re.sub(rb"<Condition>.*?</Condition>", b"", body)
            if proxy.habit == "loses answers" and conditional and status == 200:
                proxy.lost += 1
                self.close_connection = True
                return
            self._answer(status, answer, body)

        def _writes_below(self, path: str | None) -> bool:
            return path is not None and self.command == "PUT" and path in self.path

        def _answer(self, status: int, answer: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            for name, value in answer:
                if name.lower() not in ("content-length", "transfer-encoding", "connection", "server", "date"):
                    self.send_header(name, value)
            length = {name.lower(): value for name, value in answer}.get("content-length", "0")
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else body)

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def log_message(self, format: str, *args: object) -> None:
            return

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815

    return Handler


def _ask(
    upstream: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    with contextlib.closing(http.client.HTTPConnection(upstream.removeprefix("http://"), timeout=30)) as connection:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
