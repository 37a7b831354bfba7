"""Gateways on loopback that take what is sent, answer 500, hang, or close: what apprise and a dead man's switch are tried on."""

from __future__ import annotations

import json
import socketserver
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any


class Sink:
    """What came, in order; and what is answered next. `held`: calls that hang wait for it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.came: Queue[Any] = Queue()
        self.status = 200
        self.hangs = False
        self.held = threading.Event()
        self.calls = threading.Semaphore(0)

    def url(self, scheme: str = "json", path: str = "/t0ps3cret") -> str:
        return f"{scheme}://us3rname:passw0rd@127.0.0.1:{self.port}{path}"


@contextmanager
def http_sink():
    class Answer(BaseHTTPRequestHandler):
        def do(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            sink.came.put((self.command, self.path, json.loads(body) if body else None))
            sink.calls.release()
            if sink.hangs:
                sink.held.wait()
            self.send_response(sink.status)
            if sink.status == 302:
                self.send_header("location", "file:///etc/passwd")
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST = do  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:  # a caller that was killed has closed its end
            pass

    server = Quiet(("127.0.0.1", 0), Answer)
    sink = Sink(server.server_address[1])
    yield from _serve(server, sink)


@contextmanager
def smtp_sink():
    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 sink\r\n")
            while line := self.rfile.readline():
                word = line[:4].upper().strip()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = []
                    while (one := self.rfile.readline()) not in {b".\r\n", b""}:
                        lines.append(one)
                    sink.came.put(b"".join(lines))
                    self.wfile.write(b"250 taken\r\n" if sink.status == 200 else b"554 passw0rd is not liked\r\n")
                elif word == b"QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                else:
                    self.wfile.write(b"250 sink\r\n")

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    sink = Sink(server.server_address[1])
    yield from _serve(server, sink)


def _serve(server: socketserver.TCPServer, sink: Sink):
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        sink.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
