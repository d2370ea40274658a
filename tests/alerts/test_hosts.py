"""Where alerts may go. Catches: a private address that gets through in some spelling, or by a name that moves; and hosts
inside a network that cannot be used although they are named.
"""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weever_stream.alerts.hosts import ASK_AGAIN, Pin, TargetError, allowed_hosts, read_host, read_url, refusal
from weever_stream.alerts.notice import DeliveryError

NOBODY: frozenset[str] = frozenset()
PUBLIC, PUBLIC_6 = "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"


def names(monkeypatch: pytest.MonkeyPatch, table: dict[str, list[str]]) -> list[str]:
    """Answers look-ups from a table that a test may change. Returns the names that were asked for, as they come."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: str, port: int, *rest: object, **options: object) -> list[object]:
        asked.append(host)
        if host in table and not table[host]:
            raise socket.gaierror(socket.EAI_AGAIN, "try again")
        return [one for address in table.get(host, [host]) for one in real(address, port, type=socket.SOCK_STREAM)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked


def pinned(url: str, allow: list[str] | None = None) -> Pin:
    allowed = allowed_hosts(allow or [])
    site = read_url(url, allowed)
    return Pin(site.host, site.port, allowed)


REFUSED = {
    "http://hooks.example.com/x": "https",
    "ftp://hooks.example.com/x": "https://",
    "file:///etc/passwd": "https://",
    "https:hooks.example.com": "https://",
    "//hooks.example.com": "https://",
    "https://": "none",
    "https://localhost/x": "loopback",
    "https://LOCALHOST/x": "loopback",
    "https://localhost./x": "loopback",
    "https://localhost../x": "none",
    "https://127.0.0.1/x": "loopback",
    "https://127.0.0.1./x": "loopback",
    "https://127.1/x": "odd spelling",
    "https://127.0.1/x": "odd spelling",
    "https://0x7f000001/x": "odd spelling",
    "https://0x7f.1/x": "odd spelling",
    "https://0X7F.0.0.0x1/x": "odd spelling",
    "https://017700000001/x": "odd spelling",
    "https://0177.0.0.1/x": "odd spelling",
    "https://127.0.0.01/x": "odd spelling",
    "https://2130706433/x": "odd spelling",
    "https://4294967297/x": "odd spelling",
    "https://127.0.0.1.1/x": "odd spelling",
    "https://0/x": "odd spelling",
    "https://0x/x": "odd spelling",
    "https://0.0.0.0/x": "unspecified",
    "https://10.1.2.3/x": "private",
    "https://172.16.0.1/x": "private",
    "https://172.31.255.255/x": "private",
    "https://192.168.1.1/x": "private",
    "https://100.64.0.1/x": "carrier-grade NAT",
    "https://169.254.0.1/x": "link-local",
    "https://169.254.169.254/latest/meta-data": "metadata",
    "https://168.63.129.16/x": "metadata",
    "https://100.100.100.200/x": "metadata",
    "https://192.0.0.8/x": "reserved",
    "https://192.0.2.7/x": "reserved",
    "https://198.18.0.1/x": "reserved",
    "https://203.0.113.7/x": "reserved",
    "https://224.0.0.1/x": "multicast",
    "https://240.0.0.1/x": "reserved",
    "https://255.255.255.255/x": "reserved",
    "https://[::1]/x": "loopback",
    "https://[0:0:0:0:0:0:0:1]/x": "loopback",
    "https://[::]/x": "unspecified",
    "https://[::ffff:169.254.169.254]/x": "metadata",
    "https://[::ffff:a9fe:a9fe]/x": "metadata",
    "https://[::ffff:127.0.0.1]/x": "loopback",
    "https://[::127.0.0.1]/x": "reserved",
    "https://[::ffff:0:127.0.0.1]/x": "reserved",
    "https://[2002:7f00:1::]/x": "loopback",
    "https://[2002:a9fe:a9fe::1]/x": "metadata",
    "https://[64:ff9b::10.0.0.1]/x": "private",
    "https://[64:ff9b::169.254.169.254]/x": "metadata",
    "https://[64:ff9b:1::1]/x": "reserved",
    "https://[2001:0:7f00:1::]/x": "reserved",
    "https://[2001:db8::1]/x": "reserved",
    "https://[fd00:ec2::254]/x": "metadata",
    "https://[fd12::1]/x": "private",
    "https://[fe80::1]/x": "link-local",
    "https://[fe80::1%25eth0]/x": "none",
    "https://[fe80::1%eth0]/x": "none",
    "https://[fec0::1]/x": "private",
    "https://[ff02::1]/x": "multicast",
    "https://[100::1]/x": "reserved",
    "https://[::1/x": "read",
    "https://::1/x": "read",
    "https://user@hooks.example.com/x": "user",
    "https://hooks.example.com@127.0.0.1/x": "user",
    "https://hooks.example.com:x@127.0.0.1/x": "user",
    "https://hooks.example.com\\@127.0.0.1/x": "backslash",
    "https://127.0.0.1\\.example.com/x": "backslash",
    "https://%6c%6f%63alhost/x": "none",
    "https://127%2e0%2e0%2e1/x": "none",
    "https://ⓛocalhost/x": "ASCII",
    "https://127。0。0。1/x": "ASCII",
    "https://１２７.0.0.1/x": "ASCII",
    "https://hooks.exаmple.com/x": "ASCII",  # the а is Cyrillic
    "https://hooks.example.com /x": "space",
    "https://hooks.example.com\r\nHost: evil/x": "space",
    "https://hooks.example.com/x\r\nX: y": "space",
    "https://hooks.example.com/x#y": "fragment",
    "https://hooks.example.com:0/x": "port 0",
    "https://hooks.example.com:99999/x": "read",
    "https://hooks.example.com:8a/x": "read",
    "https://-hooks.example.com/x": "none",
    "https://hooks..example.com/x": "none",
    "https://" + "a" * 5000 + ".com/x": "long",
}


@pytest.mark.parametrize("url", REFUSED, ids=lambda url: ascii(url)[:60])
def test_an_address_that_is_not_public_is_refused_in_every_spelling(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"hooks.example.com": [PUBLIC], "localhost": ["127.0.0.1", "::1"]})
    with pytest.raises(TargetError, match=r"\S") as error:
        pinned(url)
    assert REFUSED[url] in error.value.message
    assert error.value.hint
    assert "/x" not in error.value.render()


def test_public_hosts_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"hooks.example.com": [PUBLIC, PUBLIC_6], "xn--bcher-kva.example": [PUBLIC]})
    assert pinned("https://hooks.example.com/x").addresses() == (PUBLIC, PUBLIC_6)
    assert pinned("https://Hooks.Example.com./x").host == "hooks.example.com"
    assert pinned("https://hooks.example.com:8443/x").port == 8443
    assert pinned(f"https://{PUBLIC}/x").addresses() == (PUBLIC,)
    assert pinned(f"https://[{PUBLIC_6}]/x").addresses() == (PUBLIC_6,)
    assert pinned("https://xn--bcher-kva.example/x").addresses() == (PUBLIC,)


def test_the_host_header_names_the_port_only_if_it_is_not_the_usual_one() -> None:
    allowed = allowed_hosts(["am", "[::1]"])
    assert read_url("https://hooks.example.com:443/x", NOBODY).netloc == "hooks.example.com"
    assert read_url("http://am:9093/x?y=1", allowed).netloc == "am:9093"
    assert read_url("http://am:9093/x?y=1", allowed).target == "/x?y=1"
    assert read_url("http://[::1]:9093", allowed).netloc == "[::1]:9093"
    assert read_url("http://[::1]:9093", allowed).target == "/"


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.7", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "fe80::1"])
def test_a_name_is_refused_if_one_of_its_addresses_is_not_public(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"hooks.example.com": [PUBLIC, address]})
    with pytest.raises(TargetError, match="not public"):
        pinned("https://hooks.example.com/x")
    assert pinned("https://hooks.example.com/x", ["Hooks.Example.com."]).addresses() == (PUBLIC, address)


def test_allowing_one_host_allows_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"am": ["10.0.0.7"], "other": ["10.0.0.7"]})
    assert pinned("http://am:9093/", ["am"]).addresses() == ("10.0.0.7",)
    for url in ("https://other/", "https://10.0.0.7/", "http://am.evil.example.com/"):
        with pytest.raises(TargetError):
            pinned(url, ["am"])
    assert pinned("https://[::1]/", ["::1"]).addresses() == ("::1",)
    with pytest.raises(TargetError, match="odd spelling"):
        pinned("https://127.1/", ["127.0.0.1"])


def test_the_metadata_service_must_be_named_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"inner": ["169.254.169.254"], "mapped": ["::ffff:169.254.169.254"]})
    for name in ("inner", "mapped"):
        with pytest.raises(TargetError, match="metadata") as error:
            pinned(f"https://{name}/", [name])
        assert "169.254.169.254" in str(error.value.hint)
        assert pinned(f"https://{name}/", [name, "169.254.169.254"]).addresses()
    with pytest.raises(TargetError, match="not public"):
        pinned("https://inner/", ["169.254.169.254"])
    assert pinned("http://169.254.169.254/", ["169.254.169.254"]).addresses()


def test_a_name_is_looked_up_once_and_held_to(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"hooks.example.com": [PUBLIC]}
    asked = names(monkeypatch, table)
    pin = pinned("https://hooks.example.com/x")
    table["hooks.example.com"] = ["127.0.0.1"]
    assert [pin.addresses() for _ in range(5)] == [(PUBLIC,)] * 5
    assert asked == ["hooks.example.com"]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_name_that_has_long_been_silent_is_looked_up_again_with_the_same_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = {"hooks.example.com": [PUBLIC]}
    asked, clock = names(monkeypatch, table), Clock()
    pin = Pin("hooks.example.com", 443, NOBODY, clock)
    table["hooks.example.com"] = ["10.0.0.7"]
    pin.failed()
    clock.now += ASK_AGAIN - 1
    pin.failed()
    assert pin.addresses() == (PUBLIC,)
    clock.now += 1
    with pytest.raises(DeliveryError, match="not public") as error:
        pin.addresses()
    assert error.value.again
    table["hooks.example.com"] = ["1.1.1.1"]
    assert pin.addresses() == ("1.1.1.1",)
    pin.failed()
    pin.answered()
    clock.now += 10 * ASK_AGAIN
    assert pin.addresses() == ("1.1.1.1",)
    assert len(asked) == 3


def test_addresses_stay_while_the_name_server_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, list[str]] = {"hooks.example.com": [PUBLIC]}
    asked, clock = names(monkeypatch, table), Clock()
    pin = Pin("hooks.example.com", 443, NOBODY, clock)
    pin.failed()
    clock.now += ASK_AGAIN
    table["hooks.example.com"] = []
    assert pin.addresses() == pin.addresses() == (PUBLIC,)
    assert len(asked) == 2


def test_a_name_that_is_unknown_at_the_start_is_looked_up_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    table: dict[str, list[str]] = {"hooks.example.com": []}
    names(monkeypatch, table)
    pin = pinned("https://hooks.example.com/x")
    with pytest.raises(DeliveryError, match=r"hooks\.example\.com cannot be looked up") as error:
        pin.addresses()
    assert error.value.again
    table["hooks.example.com"] = ["127.0.0.1"]
    with pytest.raises(DeliveryError, match="not public"):
        pin.addresses()
    table["hooks.example.com"] = [PUBLIC]
    assert pin.addresses() == (PUBLIC,)


def test_the_address_that_could_be_reached_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"hooks.example.com": [PUBLIC_6, PUBLIC]})
    pin = pinned("https://hooks.example.com/x")
    pin.reached(PUBLIC)
    assert pin.addresses() == (PUBLIC, PUBLIC_6)


@given(
    st.lists(
        st.sampled_from(
            ["127", "0", "1", "0x7f", "017", "0177", "65536", "2130706433", "9999999999", "0x", "08", "a", ""]
        ),
        min_size=1,
        max_size=5,
    ).map(".".join)
)
@example("127.0.0.1")
@example("0x7f.0x0.0.1")
def test_no_spelling_means_another_address_than_it_is_read_as(text: str) -> None:
    """What the C library takes for an address is refused, or read as the address that the C library sees."""
    try:
        seen = socket.inet_ntoa(socket.inet_aton(text.removesuffix(".")))
    except OSError:
        return
    with suppress(TargetError):
        assert read_host(text) == seen


@given(st.ip_addresses(v=4))
def test_private_addresses_are_refused_within_ipv6_too(address: ipaddress.IPv4Address) -> None:
    if not address.is_global:
        for number in (0xFFFF << 32 | int(address), 0x64FF9B << 96 | int(address), 0x2002 << 112 | int(address) << 80):
            assert refusal(str(ipaddress.IPv6Address(number))) == refusal(str(address)) is not None
