"""One POST against servers that answer every way they can. Catches: a failure that is taken for a delivery or the other
way round, one that is tried again in vain or given up too soon, a server that holds us for ever, a redirect that is
followed, a secret or a value in what is told of a failure, and a certificate of somebody else.
"""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.alerts import servers
from tests.alerts.certificates import presenting
from tests.alerts.notices import hostile, local, notice, options, secret
from tests.alerts.servers import Server, answer, serving
from tests.stream.servers.processes import free_port
from weever_stream.alerts import hosts
from weever_stream.alerts.hosts import TargetError
from weever_stream.alerts.http import LONGEST_ANSWER, LONGEST_WAIT, Post, retry_after
from weever_stream.alerts.notice import DeliveryError, Notice
from weever_stream.alerts.targets import open_target

CANARY = "WEEVERSECRET123"


def webhook(server: Server, **fields: Any) -> Any:
    return open_target(local("webhook", url=secret(server.url(f"/{CANARY}?key={CANARY}")), **fields))


def failing(target: Any, told: Notice | None = None) -> DeliveryError:
    with pytest.raises(DeliveryError) as error:
        target.send(told or hostile(CANARY), {})
    assert CANARY not in error.value.reason
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return error.value


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_any_good_status_is_a_delivery(status: int) -> None:
    with serving(answer(status)) as server:
        webhook(server).send(notice(), {})
        assert len(server.requests) == 1
        [request] = server.requests
        assert request.path == f"/{CANARY}?key={CANARY}"
        assert request.headers["Host"] == f"127.0.0.1:{server.port}"
        assert re.fullmatch(r"weever(/[0-9][0-9a-z.]*)?", request.headers["User-Agent"])
        assert request.headers["Content-Type"].startswith("application/json")


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with serving(answer(status, CANARY)) as server:
        error = failing(webhook(server))
        assert error.again
        assert error.reason == f"127.0.0.1 answered {status}"
        assert error.unsure == (status >= 500)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 410, 413, 422])
def test_what_would_fail_again_is_not(status: int) -> None:
    with serving(answer(status, CANARY)) as server:
        error = failing(webhook(server))
        assert (error.again, error.unsure) == (False, False)
        assert str(status) in error.reason


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(status: int) -> None:
    with serving() as other, serving(answer(status, Location=other.url())) as server:
        error = failing(webhook(server))
        assert not error.again
        assert "redirect" in error.reason
        assert other.connections == 0


NOW = datetime(2026, 3, 8, 7, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("3600", LONGEST_WAIT),
        ("9" * 400, LONGEST_WAIT),
        ("9" * 5000, None),
        (format_datetime(NOW + timedelta(seconds=30), usegmt=True), 30.0),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        (format_datetime(NOW + timedelta(days=9999), usegmt=True), LONGEST_WAIT),
        ("Sun, 08 Mar 2026 07:00:30", 30.0),
        ("-5", None),
        ("1.5", None),
        ("1e3", None),
        ("NaN", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Mon, 99 Foo 99999 99:99:99 GMT", None),
        ("7, 9", None),
        ("٧", None),
        (None, None),
    ],
)
def test_what_retry_after_asks_for_is_capped(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, NOW) == seconds


def test_retry_after_is_passed_on() -> None:
    later = format_datetime(datetime.now(timezone.utc) + timedelta(hours=5), usegmt=True)
    with serving(
        answer(429, Retry_After="17"), answer(503, Retry_After=later), answer(429, Retry_After="-1")
    ) as server:
        target = webhook(server)
        assert [failing(target).after for _ in range(3)] == [17.0, LONGEST_WAIT, None]


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (servers.silence, "was not done within 0.3 seconds"),
        (servers.slow_headers, "was not done within 0.3 seconds"),
        (servers.endless_continue, "was not done within 0.3 seconds"),
        (servers.hang_up, "broke off the connection"),
        (servers.reset, "broke off the connection"),
        (servers.raw(b"SSH-2.0-OpenSSH_9\r\n"), "gave an answer that is none"),
        (servers.raw(b"HTTP/1.1 " + b"9" * 9 + b"\r\n\r\n"), "gave an answer that is none"),
        (servers.raw(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000 + b"\r\n"), "gave an answer that is none"),
        (servers.raw(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000), "gave an answer that is none"),
    ],
)
def test_a_server_that_does_not_answer_ends_by_the_deadline(step: servers.Step, reason: str) -> None:
    with serving(step) as server:
        error = failing(webhook(server, timeout="300 ms"))
        assert error.again
        assert error.reason == f"127.0.0.1 {reason}"
        assert error.unsure


def test_a_body_that_drips_ends_too_and_its_status_counts() -> None:
    with serving(servers.slow_body(200), servers.slow_body(500)) as server:
        target = webhook(server, timeout="300 ms")
        target.send(notice(), {})
        assert failing(target).reason == "127.0.0.1 answered 500"


def test_of_an_answer_that_never_ends_only_the_beginning_is_read() -> None:
    with serving(servers.endless_body) as server:
        got = Post(server.url(), local("webhook", url=server.url())).send(b"{}")
        assert (len(got.body), got.whole) == (LONGEST_ANSWER, False)


def test_an_answer_that_broke_off_is_known_for_it() -> None:
    broken = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with serving(
        servers.raw(broken), servers.raw(chunks), servers.raw(chunks + b"0\r\n\r\n"), answer(200, "abc")
    ) as server:
        post = Post(server.url(), local("webhook", url=server.url()))
        assert [post.send(b"{}").whole for _ in range(4)] == [False, False, True, True]


def test_nobody_there_is_tried_again() -> None:
    target = open_target(local("webhook", url=f"http://127.0.0.1:{free_port()}/{CANARY}"))
    error = failing(target)
    assert (error.again, error.unsure) == (True, False)
    assert error.reason == "127.0.0.1 refused the connection"


def test_what_the_environment_says_of_proxies_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as proxy, serving() as server:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        webhook(server).send(notice(), {})
        assert (proxy.connections, len(server.requests)) == (0, 1)


def test_a_timeout_is_some_time() -> None:
    with pytest.raises(TargetError, match="timeout"):
        open_target(local("webhook", url="http://127.0.0.1:1/", timeout="0 seconds"))


def test_own_headers_are_sent_and_checked() -> None:
    with serving() as server:
        target = webhook(server, headers={"Authorization": secret(f"Bearer {CANARY}"), "X-Team": "data"})
        target.send(notice(), {})
        assert server.requests[0].headers["Authorization"] == f"Bearer {CANARY}"
        assert server.requests[0].headers["X-Team"] == "data"
        for headers in (
            {"X-Team": secret(f"{CANARY}\r\nX-Evil: 1")},
            {"X-Team": secret(f"{CANARY}ä")},
            {"X Team": "data"},
            {"X-Team\r\nX-Evil": "data"},
            {"Host": "evil"},
            {"content-length": "0"},
            {"Transfer-Encoding": "chunked"},
            {"X-Weever-Signature": "t=0"},
        ):
            with pytest.raises(TargetError) as error:
                webhook(server, headers=headers)
            assert CANARY not in error.value.render()


# Names and certificates


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Names that lead where a test says; connections go where they go."""
    table: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *rest: Any, **options: Any) -> Any:
        return [one for address in table.get(host, [host]) for one in real(address, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return table


def by_name(server: Server, ca_file: str | None, **fields: Any) -> Any:
    url = server.url(f"/{CANARY}", "https", "hooks.example.test")
    return open_target(options("webhook", url=url, allow_hosts=["hooks.example.test"], ca_file=ca_file, **fields))


def test_the_certificate_is_checked_against_the_name_not_the_address(
    authority: tuple[trustme.CA, str], named: dict[str, list[str]]
) -> None:
    ca, ca_file = authority
    named["hooks.example.test"] = ["127.0.0.1"]
    with serving(tls=presenting(ca, "hooks.example.test")) as server:
        by_name(server, ca_file).send(notice(), {})
        assert server.requests[0].headers["Host"] == f"hooks.example.test:{server.port}"
    for wrong in ("other.example.test", "127.0.0.1", "*.test"):
        with serving(tls=presenting(ca, wrong)) as server:
            error = failing(by_name(server, ca_file))
            assert (error.again, error.unsure) == (True, False)
            assert error.reason.startswith("the certificate of hooks.example.test is not valid: Hostname mismatch")
            assert not server.requests


def test_the_name_is_sent_as_sni(authority: tuple[trustme.CA, str], named: dict[str, list[str]]) -> None:
    ca, ca_file = authority
    named["hooks.example.test"] = ["127.0.0.1"]
    seen: list[str | None] = []
    context = presenting(ca, "hooks.example.test")
    context.sni_callback = lambda _, name, __: seen.append(name)
    with serving(tls=context) as server:
        by_name(server, ca_file).send(notice(), {})
    assert seen == ["hooks.example.test"]


def test_certificates_of_nobody_we_know_or_of_yesterday_are_refused(
    authority: tuple[trustme.CA, str], named: dict[str, list[str]]
) -> None:
    ca, ca_file = authority
    named["hooks.example.test"] = ["127.0.0.1"]
    with serving(tls=presenting(trustme.CA(), "hooks.example.test")) as server:
        assert "unable to get local issuer" in failing(by_name(server, ca_file)).reason
        assert "certificate of hooks.example.test is not valid" in failing(by_name(server, None)).reason
    past = datetime(2020, 1, 1, tzinfo=timezone.utc)
    with serving(tls=presenting(ca, "hooks.example.test", not_after=past)) as server:
        assert "expired" in failing(by_name(server, ca_file)).reason


def test_a_plain_server_behind_https_fails_clearly(
    authority: tuple[trustme.CA, str], named: dict[str, list[str]]
) -> None:
    named["hooks.example.test"] = ["127.0.0.1"]
    with serving() as server:
        error = failing(by_name(server, authority[1]))
        assert error.again
        assert error.reason.startswith("TLS with hooks.example.test failed (")
        assert not server.requests


def test_a_handshake_that_never_ends_does(authority: tuple[trustme.CA, str], named: dict[str, list[str]]) -> None:
    named["hooks.example.test"] = ["127.0.0.1"]

    def mute(_: socket.socket, ended: threading.Event) -> None:
        ended.wait()

    with servers.talking(mute) as port:
        target = by_name(Server(port, []), authority[1], timeout="300 ms")
        assert failing(target).reason == "hooks.example.test was not done within 0.3 seconds"


def test_a_ca_file_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no")
    for name in ("no.pem", "none.pem"):
        with pytest.raises(TargetError, match="ca_file"):
            open_target(
                options("webhook", url="https://127.0.0.1/", allow_hosts=["127.0.0.1"], ca_file=str(tmp_path / name))
            )


def test_the_next_address_is_tried_where_one_cannot_be_reached(named: dict[str, list[str]]) -> None:
    named["hooks.example.test"] = ["127.0.0.2", "127.0.0.1"]
    with serving(answer(200)) as server:
        url = server.url("/", "http", "hooks.example.test")
        target = open_target(options("webhook", url=url, allow_hosts=["hooks.example.test"]))
        target.send(notice(), {})
        assert len(server.requests) == 1


def test_a_name_that_moves_is_not_followed_until_it_has_long_been_silent(
    named: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    named["hooks.example.test"] = ["127.0.0.1"]
    with serving(answer(200)) as server:
        url = server.url("/", "http", "hooks.example.test")
        target = open_target(options("webhook", url=url, allow_hosts=["hooks.example.test"]))
        named["hooks.example.test"] = ["127.0.0.3"]
        target.send(notice(), {})
        assert len(server.requests) == 1
    named["hooks.example.test"] = ["169.254.169.254"]
    assert "refused the connection" in failing(target).reason
    monkeypatch.setattr(hosts, "ASK_AGAIN", 0.0)
    assert "metadata service" in failing(target).reason


def test_many_deliveries_leave_no_connection_and_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    left_to_the_collector: list[Any] = []  # a socket that nobody closed says so when it is collected
    monkeypatch.setattr(sys, "unraisablehook", left_to_the_collector.append)

    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with serving(answer(200), answer(500), servers.reset, servers.hang_up, answer(200)) as server:
        target = webhook(server)
        before = (threading.active_count(), descriptors())
        for _ in range(30):
            with contextlib.suppress(DeliveryError):
                target.send(notice(), {})
        end = time.monotonic() + 10
        while (threading.active_count(), descriptors()) > before and time.monotonic() < end:
            time.sleep(0.01)  # the server's side ends in its own time
        assert (threading.active_count(), descriptors()) <= before
        assert not left_to_the_collector
        target.close()
