"""moto's server whose conditional writes are atomic, as those of S3 are.

moto looks whether an object exists and then writes it: between these two steps, another thread's request may write it,
and both are told that they have created it. Here, conditional requests wait for each other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")


def one_at_a_time(app: WSGIApplication) -> WSGIApplication:
    """``app``, of whose conditional requests one is answered at a time."""
    lock = threading.Lock()

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        is_conditional = any(condition in environ for condition in CONDITIONS)
        with lock if is_conditional else nullcontext():
            return app(environ, start_response)

    return answer


def main() -> None:
    """Serves at the host and port that are given as arguments, until the process is ended."""
    host, port = sys.argv[1:]
    app = one_at_a_time(DomainDispatcherApplication(create_backend_app))
    run_simple(host, int(port), app, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
