"""Mail, to a real SMTP server on loopback. Catches: mail or a password in the clear, a certificate of somebody else, a
thread that does not form, a failure that is tried again in vain or given up too soon, and a server that holds us.
"""

from __future__ import annotations

import email
import email.policy
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from email.message import EmailMessage
from pathlib import Path
from socket import create_connection
from socket import socket as Socket
from threading import Event
from typing import Any

import pytest
import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from tests.alerts.certificates import presenting
from tests.alerts.notices import hostile, notice, options, secret
from tests.alerts.servers import talking
from tests.stream.servers.processes import free_port
from weever_stream.alerts.hosts import TargetError
from weever_stream.alerts.notice import DeliveryError
from weever_stream.alerts.targets import open_target

CANARY = "WEEVERSECRET123"


class Mailbox:
    """Keeps what comes, and answers as a test says."""

    def __init__(self, **replies: str) -> None:
        self.replies = replies
        self.mails: list[EmailMessage] = []
        self.greeted: list[str] = []
        self.encrypted: list[bool] = []
        self.logins: list[tuple[bytes, bytes]] = []

    async def handle_EHLO(self, server: Any, session: Any, envelope: Any, hostname: str, replies: list[str]) -> Any:
        session.host_name = hostname
        self.greeted.append(hostname)
        return replies

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        reply = self.replies.get("RCPT", "250 OK")
        if reply.startswith("250") or address.startswith(self.replies.get("only", "")):
            if reply.startswith("250"):
                envelope.rcpt_tos.append(address)
            return reply
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        reply = self.replies.get("DATA", "250 OK")
        if reply.startswith("250"):
            parsed = email.message_from_bytes(envelope.content, policy=email.policy.default)
            assert isinstance(parsed, EmailMessage)
            self.mails.append(parsed)
            self.encrypted.append(server.transport.get_extra_info("ssl_object") is not None)
        return reply

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == CANARY.encode(), handled=False)


@contextmanager
def receiving(mailbox: Mailbox, **settings: Any) -> Iterator[int]:
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port(), ready_timeout=20, **settings)
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


def mailing(port: int, **fields: Any) -> Any:
    known = {"host": "127.0.0.1", "port": port, "sender": "Weever <weever@example.com>", "to": ["ops@example.com"]}
    return open_target(options("email", **{**known, "allow_hosts": ["127.0.0.1"], "timeout": "5 seconds", **fields}))


def failing(target: Any, told: Any = None) -> DeliveryError:
    with pytest.raises(DeliveryError) as error:
        target.send(told or hostile(CANARY), {})
    assert CANARY not in error.value.reason
    assert "ops@example.com" not in error.value.reason
    return error.value


def test_an_alert_is_a_thread_of_mails() -> None:
    mailbox = Mailbox()
    with receiving(mailbox) as port:
        target = mailing(port, tls="none", to=["ops@example.com", "Ana <ana@example.com>"])
        memory: dict[str, str] = {}
        for what in ("open", "update", "resolve"):
            memory |= target.send(notice(what), memory).memory
    first, second, third = mailbox.mails
    assert first["Subject"] == "zip_determines_city: 12 violations open in packages"
    assert third["Subject"] == "zip_determines_city is fixed: no violation open in packages"
    assert (first["From"], first["To"]) == ("Weever <weever@example.com>", "ops@example.com, Ana <ana@example.com>")
    assert first["Auto-Submitted"] == "auto-generated"
    assert first["In-Reply-To"] is None
    for later in (second, third):
        assert later["In-Reply-To"] == later["References"] == first["Message-ID"]
    assert len({mail["Message-ID"] for mail in mailbox.mails}) == 3
    text = first.get_body(("plain",))
    page = first.get_body(("html",))
    assert text is not None
    assert page is not None
    assert "List them: weever violations JOB_FILE --rule zip_determines_city" in text.get_content()
    assert "<h3>zip_determines_city: 12 violations open in packages</h3>" in page.get_content()
    assert set(mailbox.greeted) == {"example.com"}


def test_a_mail_that_is_sent_again_is_the_same_mail() -> None:
    mailbox = Mailbox()
    with receiving(mailbox) as port:
        target = mailing(port, tls="none")
        for told in (notice(), replace(notice(), at=notice().at + timedelta(minutes=3), open=13), notice(serial="2")):
            target.send(told, {})
    first, again, other = (mail["Message-ID"] for mail in mailbox.mails)
    assert first == again != other


def test_starttls_with_a_login(authority: tuple[trustme.CA, str]) -> None:
    ca, ca_file = authority
    mailbox = Mailbox()
    settings = {"auth_required": True, "authenticator": mailbox.authenticate, "require_starttls": True}
    with receiving(mailbox, tls_context=presenting(ca, "127.0.0.1"), **settings) as port:
        login = {"username": "weever", "ca_file": ca_file}
        mailing(port, password=secret(CANARY), **login).send(notice(), {})
        assert mailbox.encrypted == [True]
        assert (b"weever", CANARY.encode()) in mailbox.logins
        error = failing(mailing(port, password=secret("wrong"), **login))
        assert (error.again, error.reason) == (False, "127.0.0.1 answered 535 to the login")
    assert len(mailbox.mails) == 1


def test_tls_from_the_start(authority: tuple[trustme.CA, str]) -> None:
    ca, ca_file = authority
    mailbox = Mailbox()
    with receiving_tls(mailbox, presenting(ca, "127.0.0.1")) as port:
        mailing(port, tls="tls", ca_file=ca_file).send(notice(), {})
    assert mailbox.encrypted == [True]


@contextmanager
def receiving_tls(mailbox: Mailbox, context: ssl.SSLContext) -> Iterator[int]:
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port(), ready_timeout=20, ssl_context=context)
    controller._trigger_server = lambda: _knock(controller.port)  # type: ignore[method-assign]
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


def _knock(port: int) -> None:
    """The server's own way to see that it runs takes its context for a client's."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with create_connection(("127.0.0.1", port)) as plain, anybody.wrap_socket(plain) as connection:
        connection.recv(1000)


@pytest.mark.parametrize("mode", ["starttls", "tls"])
def test_a_certificate_for_another_name_is_refused(authority: tuple[trustme.CA, str], mode: str) -> None:
    ca, ca_file = authority
    mailbox, context = Mailbox(), presenting(ca, "mail.example.test")
    serving = receiving(mailbox, tls_context=context) if mode == "starttls" else receiving_tls(mailbox, context)
    with serving as port:
        error = failing(mailing(port, tls=mode, ca_file=ca_file))
        assert error.again
        assert error.reason.startswith("the certificate of 127.0.0.1 is not valid: IP address mismatch")
        assert "not valid" in failing(mailing(port, tls=mode)).reason
    assert not mailbox.mails


def test_a_server_without_starttls_gets_nothing() -> None:
    mailbox = Mailbox()
    with receiving(mailbox) as port:
        error = failing(mailing(port))
        assert not error.again
        assert "STARTTLS" in error.reason
    assert not mailbox.mails


@pytest.mark.parametrize(
    ("replies", "again", "reason"),
    [
        ({"RCPT": f"550 no {CANARY}"}, False, "took none of the addresses (550)"),
        ({"RCPT": "451 greylisted"}, True, "took none of the addresses (451)"),
        ({"DATA": f"554 spam {CANARY}"}, False, "answered 554"),
        ({"DATA": "452 full"}, True, "answered 452"),
        ({"DATA": "421 closing"}, True, "answered 421"),
    ],
)
def test_what_the_server_answers_decides_whether_it_is_tried_again(
    replies: dict[str, str], again: bool, reason: str
) -> None:
    mailbox = Mailbox(**replies)
    with receiving(mailbox) as port:
        error = failing(mailing(port, tls="none"))
        assert (error.again, error.reason) == (again, f"127.0.0.1 {reason}")


def test_one_bad_address_does_not_keep_the_others_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    mailbox = Mailbox(RCPT="550 no", only="bad")
    with receiving(mailbox) as port:
        mailing(port, tls="none", to=["bad@example.com", "ops@example.com"]).send(notice(), {})
    assert len(mailbox.mails) == 1
    [record] = caplog.records
    assert record.getMessage() == "mail_refused"
    assert "bad@example.com" not in str(record.__dict__)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ([b"220 hi\r\n", b""], "broke off the connection"),
        ([b"554 go away\r\n"], "answered 554"),
        ([b"421 busy\r\n"], "answered 421"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], "answered -1"),
        ([None], "was not done within 0.3 seconds"),
        ([b"220 hi\r\n", None], "was not done within 0.3 seconds"),
        ([b"220-", None], "was not done within 0.3 seconds"),
    ],
)
def test_servers_that_are_none(script: list[bytes | None], reason: str) -> None:
    def talk(connection: Socket, ended: Event) -> None:
        for said in script:
            if said is None:
                while not ended.wait(0.02):
                    connection.sendall(b"a")  # a line that never ends
            elif said == b"":
                return
            else:
                connection.sendall(said)
                connection.recv(1000)

    with talking(talk) as port:
        error = failing(mailing(port, tls="none", timeout="300 ms"))
        assert error.reason == f"127.0.0.1 {reason}"
        assert error.again == ("554" not in reason)


def test_nobody_there_is_tried_again() -> None:
    error = failing(mailing(free_port(), tls="none"))
    assert (error.again, error.reason) == (True, "127.0.0.1 refused the connection")


@pytest.mark.parametrize(
    "fields",
    [
        {"tls": "none", "allow_hosts": [], "host": "93.184.216.34"},
        {"tls": "none", "username": "weever", "password": secret(CANARY)},
        {"username": "weever"},
        {"allow_hosts": []},
        {"host": "127.1"},
        {"host": "mail.example.com@evil"},
        {"sender": "weever"},
        {"sender": "weever@example.com\r\nBcc: evil@example.com"},
        {"to": ["a@example.com, b@example.com"]},
        {"to": ["a@example.com\nBcc: b@example.com"]},
        {"to": ["<script>@example.com"]},
    ],
    ids=str,
)
def test_what_would_not_be_safe_is_refused_at_the_start(fields: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(TargetError) as error:
        mailing(25, **fields)
    assert CANARY not in error.value.render()
