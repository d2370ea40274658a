"""One connection to a pinned host, plain or by TLS, on which everything together ends by a deadline.

A server that sends a byte a second never runs into a timeout that is set for each read. Here each read and write gets
what is left of the whole. The certificate is checked against the host's name, whatever address is connected to.
"""

from __future__ import annotations

import http.client
import io
import ssl
import time
from contextlib import suppress
from socket import create_connection, socket
from typing import TYPE_CHECKING

from weever_stream.alerts.hosts import TargetError
from weever_stream.alerts.notice import DeliveryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from weever_stream.alerts.hosts import Pin

__all__ = ["Deadline", "Wire", "failure", "trust"]


def trust(ca_file: str | None) -> ssl.SSLContext:
    """Whose certificates are believed: of the authorities in a file, else of those that the machine knows.

    The machine's are what OpenSSL finds, SSL_CERT_FILE and SSL_CERT_DIR included.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError):
        raise TargetError(
            "the target's `ca_file` cannot be read, or holds no certificate", hint="name a file in PEM format"
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class Deadline:
    """A moment by which something is over."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    def left(self) -> float:
        """The seconds that are left. Raises `TimeoutError` if none are."""
        left = self._end - self._clock()
        if left <= 0:
            raise TimeoutError
        return left


class Wire:
    """A connected socket: as much of one as `http.client` and `smtplib` ask for."""

    def __init__(self, connected: socket, deadline: Deadline) -> None:
        self._socket = connected
        self._deadline = deadline

    @classmethod
    def to(cls, pin: Pin, deadline: Deadline, tls: ssl.SSLContext | None) -> Wire:
        """Connects to the first address of a host that can be reached. Raises `DeliveryError`, `OSError`."""
        addresses = pin.addresses()
        for number, address in enumerate(addresses):
            wire = None
            try:
                share = deadline.left() / (len(addresses) - number)  # one that never answers leaves time for the rest
                wire = cls(create_connection((address, pin.port), share), deadline)
                if tls is not None:
                    wire.start_tls(tls, pin.host)
            except OSError:  # a wrong certificate is one too: another may live there now
                if wire is not None:
                    wire.close()
                if number + 1 == len(addresses):
                    raise
            except BaseException:
                if wire is not None:
                    wire.close()
                raise
            else:
                pin.reached(address)
                return wire
        raise DeliveryError(f"{pin.host} has no address", again=True)

    def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Speaks TLS from now on, with nobody but the host."""
        self._socket.settimeout(self._deadline.left())
        self._socket = context.wrap_socket(self._socket, server_hostname=host)

    def sendall(self, data: bytes) -> None:
        """Sends all of it."""
        self._socket.settimeout(self._deadline.left())
        self._socket.sendall(data)

    def makefile(self, mode: str = "rb", *_: object) -> io.BufferedReader:
        """A file that reads from it."""
        return io.BufferedReader(_Reader(self))

    def receive_into(self, buffer: memoryview) -> int:
        """Waits for some bytes; 0 when the other side has ended."""
        self._socket.settimeout(self._deadline.left())
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Lets go of it."""
        with suppress(OSError):
            self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        return self._wire.receive_into(buffer)


def failure(error: Exception, host: str, seconds: float, *, sent: bool) -> DeliveryError:
    """What is told of an error on the way: the host and the kind of it, never what an exception's own text holds.

    `sent`: whether anything of the notice had gone out, so that it may have arrived.
    """
    if isinstance(error, DeliveryError):
        return error
    if isinstance(error, TimeoutError):
        reason = f"{host} was not done within {seconds:g} seconds"
    elif isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the certificate of {host} is not valid: {error.verify_message}"
    elif isinstance(error, ssl.SSLError):
        reason = f"TLS with {host} failed ({error.reason or 'it ended early'})"
    elif isinstance(error, ConnectionRefusedError):
        reason = f"{host} refused the connection"
    elif isinstance(error, ConnectionError | http.client.RemoteDisconnected):
        reason = f"{host} broke off the connection"
    elif isinstance(error, OSError):
        reason = f"{host} cannot be reached ({error.strerror or type(error).__name__})"
    else:
        reason = f"{host} gave an answer that is none"
    return DeliveryError(reason, again=True, unsure=sent)
