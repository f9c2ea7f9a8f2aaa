"""The XML API of Google Cloud Storage before a server that has only the JSON API for writing.

`deltalake` and Sail (the object_store crate) write through the XML API, which fake-gcs-server lacks. Each of its
requests becomes one of the JSON API, conditions included; everything else is passed on as it is. Listings begin
where they should, and parts of an upload are kept here until it is completed. Source: https://cloud.google.com/storage/docs/xml-api/reference-methods
"""

from __future__ import annotations

import html
import http.client
import itertools
import json
import re
from collections import defaultdict
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from tests.services.processes import HOST
from tests.services.web import Handler

_JSON_API = ("/storage/", "/upload/", "/download/", "/batch/", "/_internal/")
_NOT_PASSED = ("transfer-encoding", "connection", "content-length", "server", "date")
Answer = tuple[int, list[tuple[str, str]], bytes]


def adapter(upstream: int) -> type[BaseHTTPRequestHandler]:
    """For the server that listens on the port ``upstream``."""
    parts: dict[str, dict[int, bytes]] = defaultdict(dict)
    uploads = itertools.count(1)

    class Adapter(Handler, BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet: two would wait for each other

        def do_PUT(self) -> None:
            self.respond()

        def do_DELETE(self) -> None:
            self.respond()

        def do_HEAD(self) -> None:
            self.respond()

        def do_PATCH(self) -> None:
            self.respond()

        def respond(self) -> None:
            body = self._read_body()
            url = urlsplit(self.path)
            bucket, _, name = url.path.lstrip("/").partition("/")
            query = {key: values[0] for key, values in parse_qs(url.query, keep_blank_values=True).items()}
            if not url.path.startswith(_JSON_API) and name and (self.command in ("PUT", "POST") or "uploadId" in query):
                self._send(*self._write(bucket, unquote(name), query, body))
                return
            status, headers, answer = self._ask(self.command, self.path, body)
            self._send(status, headers, _after(answer, query["start-after"]) if "start-after" in query else answer)

        def _read_body(self) -> bytes:
            """Spark's connector sends chunks."""
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            chunks = []
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

        def _write(self, bucket: str, name: str, query: dict[str, str], body: bytes) -> Answer:
            upload = query.get("uploadId", "")
            match self.command:
                case "POST" if "uploads" in query:
                    found = f"<InitiateMultipartUploadResult><UploadId>{next(uploads)}</UploadId>"
                    return 200, [], f"{found}</InitiateMultipartUploadResult>".encode()
                case "PUT" if upload:
                    parts[upload][int(query["partNumber"])] = body
                    return 200, [("ETag", f'"{query["partNumber"]}"')], b""
                case "POST" if upload:
                    whole = b"".join(part for _, part in sorted(parts.pop(upload).items()))
                    status, headers, answer = self._create(bucket, name, whole)
                    if status != 200:
                        return status, headers, answer
                    etag = f"<ETag>{dict(headers)['ETag']}</ETag>"
                    return (
                        200,
                        headers,
                        f"<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>".encode(),
                    )
                case "DELETE":
                    parts.pop(upload, None)
                    return 204, [], b""
                case _:
                    return self._create(bucket, name, body)

        def _create(self, bucket: str, name: str, body: bytes) -> Answer:
            condition = self.headers.get("x-goog-if-generation-match")
            conditions = {} if condition is None else {"ifGenerationMatch": condition}
            if source := self.headers.get("x-goog-copy-source"):
                of_bucket, _, of = unquote(source).lstrip("/").partition("/")
                path = f"/storage/v1/b/{of_bucket}/o/{quote(of, '')}/copyTo/b/{bucket}/o/{quote(name, '')}"
                found = self._ask("POST", f"{path}?{urlencode(conditions)}", b"{}")
            else:
                query = urlencode({"uploadType": "media", "name": name, **conditions})
                found = self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", body)
            if found[0] != 200:
                return found
            written = json.loads(found[2])
            return 200, [("ETag", f'"{written["etag"]}"'), ("x-goog-generation", str(written["generation"]))], b""

        def _ask(self, method: str, path: str, body: bytes) -> Answer:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED}
            server = http.client.HTTPConnection(HOST, upstream, timeout=60)
            try:
                server.request(method, path, body, headers)
                answer = server.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                server.close()

        def _send(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            given: dict[str, Any] = {name.lower(): value for name, value in headers}
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _NOT_PASSED:
                    self.send_header(name, value)
            length = given.get("content-length", "0") if self.command == "HEAD" else str(len(body))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Adapter


def _after(listing: bytes, start: str) -> bytes:
    """Without the names up to ``start``."""

    def kept(entry: re.Match[bytes]) -> bytes:
        return entry[0] if html.unescape(entry[1].decode()) > start else b""

    return re.sub(rb"<Contents><Key>(.*?)</Key>.*?</Contents>", kept, listing)
