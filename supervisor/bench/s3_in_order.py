"""moto's S3 server on a free port of loopback, one request after the other. A program without arguments.

moto looks whether an object is there and then writes it, without a lock: of writers at the same moment two may win, which no
store does that honours conditions (seen on a busy machine: 2 of 16).
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

App = Callable[[dict[str, Any], Any], Iterable[bytes]]


def in_order(app: App) -> App:
    """The same WSGI application behind a lock. What is sent is read before it: nobody waits for a slow sender."""
    turn = threading.Lock()

    def answered(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if length := environ.get("CONTENT_LENGTH"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        with turn:
            return list(app(environ, start_response))

    return answered


if __name__ == "__main__":
    moto = in_order(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", 0, moto, threaded=True, request_handler=MotoRequestHandler)
