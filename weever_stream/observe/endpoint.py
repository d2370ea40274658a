"""Where metrics can be read: over HTTP while the job runs, and in a file after each batch for jobs that soon end.

    GET /metrics     the metrics, in the format that the reader asks for
    GET /healthz     200 and `ok`: the process is alive; whether the job gets on is what metrics tell

It is bound before Spark starts, so a port that is taken is told at once. Readers cannot change anything; each is served
in a thread of its own and let go after 10 seconds of silence. There is no TLS and no password: the default is this
machine only, and a wider one belongs behind a network that is trusted.
"""

from __future__ import annotations

import socket
import threading
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client.exposition import make_wsgi_app, write_to_textfile

from weever_stream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from weever_stream.observe.metrics import Metrics

__all__ = ["Endpoint", "write_file"]

_SILENCE = 10


class _Server(ThreadingMixIn, WSGIServer):
    """Serves several readers at once. None of them keeps the job from ending."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away in the middle of an answer is no news."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _SILENCE

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said of those who read."""


class Endpoint:
    """Serves metrics. `port` 0 takes any that is free. Raises `EngineError` where the address cannot be had."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        answer = make_wsgi_app(metrics.registry)

        def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            if path in ("/metrics", "/", "/favicon.ico"):
                served: Iterable[bytes] = answer(environ, start_response)
                return served
            found = path == "/healthz"
            start_response("200 OK" if found else "404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"ok\n" if found else b"metrics are at /metrics\n"]

        try:
            kind = _Server6 if _family(host, port) == socket.AF_INET6 else _Server
            self._server = make_server(host, port, app, kind, _Handler)
        except OSError as error:
            raise EngineError(
                f"metrics cannot be served at {_at(host, port)}: {error.strerror or type(error).__name__}",
                hint="give them another port: `metrics: {port: …}` of the job file, or --metrics-port; 0 takes any",
            ) from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="weever metrics", daemon=True
        )
        self._thread.start()
        self.url = f"http://{_at(host, self._server.server_port)}/metrics"

    def close(self) -> None:
        """Ends it, and lets go of the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def write_file(metrics: Metrics, path: str) -> None:
    """Replaces a file with the metrics as they are, whole or not at all. Raises `OSError`."""
    write_to_textfile(path, metrics.registry)


def _family(host: str, port: int) -> int:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
