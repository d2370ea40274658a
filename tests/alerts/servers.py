"""Servers on loopback that answer alerts as a script says: HTTP, with or without TLS, and bare connections.

Each request takes the next step of the script; the last one stays. What was received is kept. Steps that never end go
on until the other side has gone or the server ends.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DRIP = 0.02


@dataclass
class Request:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Step = Callable[["Scripted"], None]


@dataclass
class Server:
    port: int
    script: list[Step]
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def url(self, path: str = "/hook", scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


class Scripted(BaseHTTPRequestHandler):
    """Takes one request and answers it by the script."""

    protocol_version = "HTTP/1.1"
    state: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        state = self.state
        state.requests.append(Request(self.path, dict(self.headers.items()), body))
        step = state.script.pop(0) if len(state.script) > 1 else state.script[0]
        self.close_connection = True
        with contextlib.suppress(OSError):  # the other side may have had enough
            step(self)

    def log_message(self, format: str, *args: object) -> None:
        pass


def answer(status: int, body: bytes | str = b"", **headers: str) -> Step:
    content = body.encode() if isinstance(body, str) else body

    def step(request: Scripted) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return step


def says(code: int, /, **fields: Any) -> Step:
    return answer(code, json.dumps(fields))


def _drip(request: Scripted, piece: bytes) -> None:
    while not request.state.ended.wait(DRIP):
        request.wfile.write(piece)
        request.wfile.flush()


def slow_headers(request: Scripted) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    _drip(request, b"a")


def slow_body(status: int = 200) -> Step:
    def step(request: Scripted) -> None:
        request.wfile.write(f"HTTP/1.1 {status} OK\r\nContent-Length: 1000000\r\n\r\n".encode())
        _drip(request, b" ")

    return step


def endless_body(request: Scripted) -> None:
    request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000000\r\n\r\n")
    while not request.state.ended.is_set():
        request.wfile.write(b"x" * 65536)


def silence(request: Scripted) -> None:
    request.state.ended.wait()


def endless_continue(request: Scripted) -> None:
    while not request.state.ended.is_set():
        request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def hang_up(request: Scripted) -> None:
    request.connection.shutdown(socket.SHUT_RDWR)


def reset(request: Scripted) -> None:
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.close()


def raw(content: bytes) -> Step:
    return lambda request: request.wfile.write(content) and None


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    state: Server
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.state.connections += 1
        if self.tls is not None:  # in the connection's own thread: a handshake must not stop the others
            try:
                request = self.tls.wrap_socket(request, server_side=True)
            except OSError:
                return
        super().finish_request(request, client_address)
        with contextlib.suppress(OSError):
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@contextmanager
def serving(*script: Step, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """An HTTP server while the block lasts."""
    handler = type("Handler", (Scripted,), {})
    server = _Quiet(("127.0.0.1", 0), handler)
    state = Server(server.server_address[1], list(script) or [answer(200, "ok")])
    handler.state, server.state, server.tls = state, state, tls  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        state.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def talking(talk: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """A bare TCP server, for one connection at a time, while the block lasts. Gives its port."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def serve() -> None:
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                talk(connection, ended)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        thread.join()
        listener.close()
