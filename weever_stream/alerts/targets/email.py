"""E-mail, by SMTP: plain text and HTML, each alert a thread.

Message ids are made of the alert's key, so a mail that is sent again is the same mail, and what comes later answers the
first. The server's certificate is checked; without TLS only servers that are allowed by name are used, and never with a
password. Nothing of an alert can become a header: headers are one line and encoded.
"""

from __future__ import annotations

import hashlib
import json
import re
import smtplib
import ssl
from collections.abc import Callable, Mapping
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from email.utils import format_datetime, parseaddr
from typing import TYPE_CHECKING, Any, NoReturn, cast

from weever_stream.alerts.hosts import Pin, TargetError, allowed_hosts, check_mail_host
from weever_stream.alerts.http import timeout_of
from weever_stream.alerts.notice import Delivered, DeliveryError, Notice
from weever_stream.alerts.texts import for_html, one_line, paragraphs, title
from weever_stream.alerts.wire import Deadline, Wire, failure, trust
from weever_stream.job.alerts import EmailAlert
from weever_stream.observe import logs

if TYPE_CHECKING:
    from socket import socket

__all__ = ["Email", "mail"]

_log = logs.get("alerts")
_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")
_PRIORITY = {"critical": "1", "error": "2", "warning": "3", "info": "3"}


class Email:
    """Some people's mailboxes."""

    repeats: float | None = None

    def __init__(self, options: EmailAlert) -> None:
        self.name = options.name
        allowed = allowed_hosts(options.allow_hosts)
        host = check_mail_host(options, allowed)
        self._sender, self._to = _address(options.sender), tuple(_address(one) for one in options.to)
        self._login = (options.username, options.password) if options.username and options.password else None
        if (options.username is None) != (options.password is None):
            raise TargetError("e-mail needs a username and a password, or neither")
        if options.tls == "none" and self._login:
            raise TargetError("a password is not sent without TLS", hint="use tls: starttls, or leave the username out")
        self._mode = options.tls
        self._tls = trust(options.ca_file) if options.tls != "none" else None
        self._timeout = timeout_of(options)
        self._pin = Pin(host, options.port, allowed)

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        """Sends one mail to all."""
        message, first = mail(notice, self._sender, self._to, memory.get("message_id"))
        connection: _Connection | None = None
        sent = False
        try:
            deadline = Deadline(self._timeout)
            connection = _Connection(self._pin, deadline, self._sender.domain, self._tls, self._mode == "tls")
            if self._mode == "starttls" and self._tls is not None:
                connection.starttls(context=cast("ssl.SSLContext", _Starting(self._tls)))
            if self._login is not None:
                connection.login(self._login[0], self._login[1].reveal())
            sent = True
            left_out = connection.send_message(message, self._sender.addr_spec, [one.addr_spec for one in self._to])
        except (smtplib.SMTPException, OSError, ValueError, MessageError) as error:
            self._raise(error, sent)
        finally:
            if connection is not None:
                connection.leave()
        self._pin.answered()
        if left_out:
            _log.warning(
                "mail_refused", "the server did not take some addresses", target=self.name, count=len(left_out)
            )
        return Delivered({"message_id": first})

    def close(self) -> None:
        """Nothing is kept open."""

    def _raise(self, error: Exception, sent: bool) -> NoReturn:
        """Tells the code and the host: a server's own words may repeat an address, or more."""
        host = self._pin.host
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            codes = sorted({int(code) for code, _ in error.recipients.values()})
            self._pin.answered()
            reason = f"{host} took none of the addresses ({', '.join(map(str, codes))})"
            raise DeliveryError(reason, again=any(400 <= code < 500 for code in codes)) from None
        if isinstance(error, smtplib.SMTPResponseException):
            self._pin.answered()
            what = " to the login" if isinstance(error, smtplib.SMTPAuthenticationError) else ""
            code = error.smtp_code
            raise DeliveryError(f"{host} answered {code}{what}", again=not 500 <= code < 600) from None
        if isinstance(error, smtplib.SMTPNotSupportedError):
            raise DeliveryError(f"{host} does not offer what is asked for: STARTTLS, or a login", again=False) from None
        self._pin.failed()
        if isinstance(error, smtplib.SMTPException):
            error = error.__context__ if isinstance(error.__context__, OSError) else ConnectionResetError()
        raise failure(error, host, self._timeout, sent=sent) from None


def mail(notice: Notice, sender: Address, to: tuple[Address, ...], first: str | None) -> tuple[EmailMessage, str]:
    """The mail, and the id of the one that began its thread."""
    itself = _message_id(sender, notice.dedup_key, notice.what, notice.serial or notice.at.isoformat())
    message = EmailMessage(policy=POLICY.clone(cte_type="7bit"))
    message["From"], message["To"] = sender, to
    message["Subject"] = title(notice, limit=200)
    message["Date"] = format_datetime(notice.at)
    message["Message-ID"] = itself
    if notice.what == "open" or not first or not re.fullmatch(r"<[!-;=?-~]{1,200}>", first):
        first = itself
    else:
        message["In-Reply-To"] = message["References"] = first
    message["Auto-Submitted"] = "auto-generated"
    message["X-Priority"] = "3" if notice.what == "resolve" else _PRIORITY[notice.severity]
    told = paragraphs(notice)
    message.set_content("\n\n".join("\n".join(lines) for lines in told) + "\n")
    message.add_alternative(_html(told), subtype="html")
    return message, first


def _html(told: list[list[str]]) -> str:
    head, *others = told
    parts = [f"<h3>{for_html(head[0])}</h3>"]
    parts += [f"<p>{'<br>'.join(for_html(line) for line in lines)}</p>" for lines in others]
    return f'<!DOCTYPE html><html><head><meta charset="utf-8"></head><body>{chr(10).join(parts)}</body></html>\n'


def _message_id(sender: Address, *parts: str) -> str:
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]
    return f"<weever.{digest}@{sender.domain}>"


def _address(text: str) -> Address:
    """`a@b.example` or `Somebody <a@b.example>`."""
    name, spec = parseaddr(text)
    if not _ADDRESS.fullmatch(spec) or not text.isprintable() or text.count("@") != 1:
        raise TargetError(
            "an address to send mail from or to is none",
            hint="write ops@example.com or Ops <ops@example.com>, in ASCII",
        )
    return Address(one_line(name), addr_spec=spec)


class _Starting:
    """What `smtplib` takes for an SSL context when it starts TLS on a `Wire`."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context

    def wrap_socket(self, wire: Wire, server_hostname: str) -> Wire:
        wire.start_tls(self._context, server_hostname)
        return wire


class _Connection(smtplib.SMTP):
    """SMTP over a `Wire`: to a pinned address, with a deadline for all of it."""

    def __init__(self, pin: Pin, deadline: Deadline, domain: str, tls: ssl.SSLContext | None, at_once: bool) -> None:
        self._open: Wire | None = None
        self._dial: Callable[[], Wire] = lambda: Wire.to(pin, deadline, tls if at_once else None)
        try:
            super().__init__(pin.host, pin.port, local_hostname=domain, timeout=deadline.left())
        except BaseException:
            self.leave()
            raise

    def _get_socket(self, host: str, port: int, timeout: float) -> socket:
        self._open = self._dial()
        return self._open  # type: ignore[return-value]

    def _print_debug(self, *args: Any) -> None:
        """Never: it would show the mail."""

    def leave(self) -> None:
        """Ends without a word: the mail has been taken, or never will be, and nobody waits for a farewell."""
        self.close()
        if self._open is not None:
            self._open.close()
