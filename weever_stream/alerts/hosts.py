"""Where alerts may be sent: a URL or host is read strictly, looked up once, and held to the addresses found then.

A job file says where the driver connects to, and the driver stands inside somebody's network. So every address of a
host must be a public one, however it is spelled, unless the host is named in `allow_hosts`; that of a cloud's metadata
service must be named itself. The name is not asked again for each message, so nobody can move it to another address
between the check and the connection. It is asked again, with the same checks, when nothing has answered for
`ASK_AGAIN` seconds: services do move.

Errors name the host and never the rest of a URL, which is often a secret.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from weever_stream.alerts.notice import DeliveryError
from weever_stream.errors import WeeverError
from weever_stream.job.alerts import EmailAlert

__all__ = [
    "ASK_AGAIN",
    "Pin",
    "Site",
    "TargetError",
    "allowed_hosts",
    "check_literal",
    "check_mail_host",
    "read_host",
    "read_url",
    "refusal",
]

ASK_AGAIN = 60.0
"""Seconds without an answer after which a name is looked up again, and so often at most."""
_LONGEST = 4096

_IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMBER = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_V4: tuple[tuple[ipaddress.IPv4Network, str], ...] = tuple(
    (ipaddress.IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "private (carrier-grade NAT)"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
"""Own lists: what Python's `is_global` says has changed between its versions."""
_V6: tuple[tuple[ipaddress.IPv6Network, str], ...] = tuple(
    (ipaddress.IPv6Network(network), kind)
    for network, kind in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fe80::/10", "link-local"),
        ("fc00::/7", "private"),
        ("fec0::/10", "private"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
)
_V6_PUBLIC = ipaddress.IPv6Network("2000::/3")
_MAPPED, _6TO4, _NAT64 = (ipaddress.IPv6Network(one) for one in ("::ffff:0:0/96", "2002::/16", "64:ff9b::/96"))
_METADATA = frozenset(
    ipaddress.ip_address(one)
    for one in (
        "169.254.169.254",  # AWS, Azure, Google, Oracle and most others
        "169.254.170.2",  # AWS ECS
        "169.254.170.23",  # AWS EKS
        "100.100.100.200",  # Alibaba
        "168.63.129.16",  # Azure's host
        "192.0.0.192",  # Oracle
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    )
)


class TargetError(WeeverError):
    """An alert target that cannot be used as it is written: its address is not one that may be connected to, or a
    header or a mail address is none. The hint says what to write; hosts inside your own network go to `allow_hosts`.
    """

    code = "target"


@dataclass(frozen=True)
class Site:
    """A URL in its parts."""

    scheme: Literal["https", "http"]
    host: str
    """Lower case, without a last dot; an IPv6 address without brackets."""
    port: int
    target: str
    """Path and query: never shown."""

    @property
    def netloc(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.scheme == "https" else 80) else f"{host}:{self.port}"


def allowed_hosts(names: Iterable[str]) -> frozenset[str]:
    """The hosts of `allow_hosts`, spelled as `read_host` spells them."""
    return frozenset(read_host(name) for name in names)


def read_url(url: str, allowed: frozenset[str]) -> Site:
    """The parts of a URL. Raises `TargetError` for one that could mean two things, or that sends in the clear."""
    if len(url) > _LONGEST or not re.fullmatch(r"[!-~]+", url) or "\\" in url:
        raise TargetError(
            "the target's URL is too long, or holds a space, a backslash or a character that is not ASCII",
            hint="write names of hosts in their ASCII form (xn--…) and escape other characters as %..",
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise TargetError("the target's URL cannot be read", hint="write https://host/path") from None
    if parts.scheme not in ("https", "http") or not url[len(parts.scheme) :].startswith("://"):
        raise TargetError(
            "the target's URL does not begin with https://",
            hint="write https://host/path; http:// is for hosts that `allow_hosts` names",
        )
    if "@" in parts.netloc:
        raise TargetError(
            "the target's URL names a user before its host (user@host)",
            hint="send a password in `headers`, from ${env:…}",
        )
    if parts.fragment or port == 0:
        raise TargetError("the target's URL has a fragment (#) or the port 0", hint="write https://host/path")
    host = read_host(re.sub(r":[0-9]*\Z", "", parts.netloc))
    if parts.scheme == "http" and host not in allowed:
        raise TargetError(
            f"the URL of {host} is not https: anybody on the way could read and change alerts",
            hint=f"use https, or add {host} to `allow_hosts` if it is inside your own network",
        )
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    https = parts.scheme == "https"
    return Site("https" if https else "http", host, port or (443 if https else 80), target)


def check_mail_host(options: EmailAlert, allowed: frozenset[str]) -> str:
    """The host of a mail server. Raises `TargetError` if mail would go in the clear to one that is not allowed."""
    host = read_host(options.host)
    if options.tls == "none" and host not in allowed:
        raise TargetError(
            f"mail to {host} would go in the clear", hint=f"use tls: starttls, or add {host} to `allow_hosts`"
        )
    return host


def read_host(text: str) -> str:
    """A host's one spelling. Raises `TargetError` for what is none, and for addresses in other than usual form."""
    host = text.lower().removesuffix(".")
    if text.isascii() and text.startswith("[") and text.endswith("]"):
        host = text[1:-1].lower()
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host)) if "%" not in host else _no_host(text)
        except ValueError:
            return _no_host(text)
    if not _NAME.fullmatch(host):
        return _no_host(text)
    if _NUMBER.fullmatch(host.rpartition(".")[2]):  # no top-level domain is a number: this is an address
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise TargetError(
                f"{host[:60]} is an odd spelling of an IP address", hint="write four decimal numbers: 192.0.2.7"
            ) from None
    return host


def _no_host(text: str) -> str:
    shown = text[:60] if re.fullmatch(r"[A-Za-z0-9._:\[\]-]*", text) else ""
    hint = "write a name such as hooks.example.com, in ASCII (xn--…), or an address such as 192.0.2.7 or [2001:db8::7]"
    raise TargetError(f"the target's host {shown} is none".replace("  ", " "), hint=hint)


def refusal(address: str) -> str | None:
    """Why an address is not a public one; None if it is."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return next((kind for network, kind in _V4 if ip in network), "metadata" if ip in _METADATA else None)
    if (inner := _inside(ip)) is not None:
        return refusal(str(inner))
    named = next((kind for network, kind in _V6 if ip in network), None)
    return named or (None if ip in _V6_PUBLIC else "reserved")


def _inside(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to: mapped, by 6to4 or by NAT64."""
    number = int(ip)
    if ip in _6TO4:
        return ipaddress.IPv4Address(number >> 80 & 0xFFFFFFFF)
    return ipaddress.IPv4Address(number & 0xFFFFFFFF) if ip in _MAPPED or ip in _NAT64 else None


def _is_metadata(address: str) -> _IP | None:
    ip = ipaddress.ip_address(address.partition("%")[0])
    ip = (_inside(ip) if isinstance(ip, ipaddress.IPv6Address) else None) or ip
    return ip if ip in _METADATA else None


def _check(host: str, addresses: Iterable[str], allowed: frozenset[str]) -> None:
    """Raises `TargetError` if one of a host's addresses may not be connected to."""
    for address in addresses:
        itself = host == address
        if (ip := _is_metadata(address)) is not None and str(ip) not in allowed:
            raise TargetError(
                f"{host} is the metadata service of a cloud, which gives away credentials",
                hint=f"if you mean it, add {ip} to `allow_hosts`" + ("" if itself else f" as well as {host}"),
            )
        if host not in allowed and (kind := refusal(address)) is not None:
            raise TargetError(
                f"{host} is a {kind} address" if itself else f"{host} has an address that is not public: {kind}",
                hint=f"if it is inside your own network and meant, add {host} to `allow_hosts`",
            )


def check_literal(host: str, allowed: frozenset[str]) -> None:
    """Raises `TargetError` for a host that is written as an address, and may not be connected to."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return  # a name: it is looked up where the job runs
    _check(host, [host], allowed)


class Pin:
    """A host, and the addresses that it had when it was looked up."""

    def __init__(
        self, host: str, port: int, allowed: frozenset[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Looks the host up. Raises `TargetError` if it may not be connected to.

        A name that nobody knows just now is no reason not to start: it is looked up again when something is sent.
        """
        self.host, self.port = host, port
        self._allowed, self._clock = allowed, clock
        self._addresses: tuple[str, ...] = ()
        self._silent_since: float | None = None
        with suppress(DeliveryError):
            self._look_up()

    def addresses(self) -> tuple[str, ...]:
        """Where to connect to, best first. Raises `DeliveryError` if there is nowhere."""
        silent = self._silent_since is not None and self._clock() - self._silent_since >= ASK_AGAIN
        if silent or not self._addresses:
            try:
                self._look_up()
            except TargetError as error:
                self._addresses = ()
                raise DeliveryError(error.message, again=True) from None
        return self._addresses

    def reached(self, address: str) -> None:
        """A connection was made: this address is tried first from now on."""
        if self._addresses[:1] != (address,) and address in self._addresses:
            self._addresses = (address, *(one for one in self._addresses if one != address))

    def answered(self) -> None:
        """The host said something."""
        self._silent_since = None

    def failed(self) -> None:
        """The host did not answer, or somebody else did."""
        if self._silent_since is None:
            self._silent_since = self._clock()

    def _look_up(self) -> None:
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):  # the old addresses stay: the name server may be what is down
            self._silent_since = self._clock()
            if not self._addresses:
                raise DeliveryError(f"the name {self.host} cannot be looked up", again=True) from None
            return
        addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
        _check(self.host, addresses, self._allowed)
        self._addresses, self._silent_since = addresses, None
