"""The real Alertmanager, which tells a receiver of ours. Catches: labels or times that it does not take or understands
otherwise, so that it never tells, tells twice, or never hears the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.alerts.alertmanager import Alertmanager
from tests.alerts.notices import hostile, local, notice
from tests.alerts.servers import Server, answer, serving
from tests.alerts.test_texts import ATTACKS
from weever_stream.alerts.notice import Notice
from weever_stream.alerts.targets import open_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def manager() -> Iterator[tuple[Alertmanager, Server]]:
    with serving(answer(200)) as receiver, Alertmanager(receiver.url("/told")) as started:
        yield started, receiver


def fresh(what: str, key: str, opened: datetime, **fields: Any) -> Notice:
    """As the dispatcher sends it: decided just now."""
    return notice(what, dedup_key=key, opened_at=opened, at=datetime.now(timezone.utc), **fields)


def told(receiver: Server, key: str, status: str) -> list[dict[str, Any]]:
    found = [alert for request in list(receiver.requests) for alert in request.json["alerts"]]
    return [one for one in found if one["labels"]["dedup_key"] == key and one["status"] == status]


def await_(what: Callable[[], Any], seconds: float = 30) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return found


def test_what_opens_fires_and_what_is_over_resolves(manager: tuple[Alertmanager, Server]) -> None:
    started, receiver = manager
    opened = datetime.now(timezone.utc) - timedelta(seconds=5)
    target = open_target(local("alertmanager", url=started.url, labels={"team": "data"}))
    memory = target.send(fresh("open", "k1", opened), {}).memory
    [fired] = await_(lambda: told(receiver, "k1", "firing"))
    assert fired["labels"]["alertname"] == "zip_determines_city"
    assert (fired["labels"]["severity"], fired["labels"]["team"]) == ("error", "data")
    assert fired["annotations"]["summary"] == "zip_determines_city: 12 violations open in packages"
    # Told again, changed: it goes on, under the same labels.
    target.send(fresh("update", "k1", opened, open=15), memory)
    [held] = [one for one in started.alerts() if one["labels"]["dedup_key"] == "k1"]
    assert held["annotations"]["open_now"] == "15"
    target.send(fresh("resolve", "k1", opened, severity="critical"), memory)
    [over] = await_(lambda: told(receiver, "k1", "resolved"))
    assert over["labels"] == fired["labels"]
    assert over["annotations"]["summary"] == "zip_determines_city is fixed: no violation open in packages"
    assert not [one for one in started.alerts() if one["labels"]["dedup_key"] == "k1"]
    assert len(told(receiver, "k1", "firing")) == 1


def test_two_groups_are_two_alerts(manager: tuple[Alertmanager, Server]) -> None:
    started, receiver = manager
    opened = datetime.now(timezone.utc)
    target = open_target(local("alertmanager", url=started.url))
    for group in ("1050", "8010"):
        target.send(fresh("open", f"k2/{group}", opened, group={"zip": group}, group_id=group), {})
    target.send(fresh("resolve", "k2/1050", opened, group={"zip": "1050"}, group_id="1050"), {})
    await_(lambda: told(receiver, "k2/1050", "resolved"))
    assert await_(lambda: told(receiver, "k2/8010", "firing"))[0]["labels"]["group"] == "zip = 8010"
    assert not told(receiver, "k2/8010", "resolved")


def test_an_alert_of_which_nothing_is_heard_ends_by_itself_and_one_that_is_told_again_does_not(
    manager: tuple[Alertmanager, Server],
) -> None:
    started, receiver = manager
    opened = datetime.now(timezone.utc)
    target = open_target(local("alertmanager", url=started.url, expires="3 seconds"))
    for key in ("silent", "alive"):
        target.send(fresh("open", key, opened), {})
    assert target.repeats == 0.75

    def silent_is_over() -> bool:
        target.send(fresh("update", "alive", opened), {})
        return bool(told(receiver, "silent", "resolved"))

    await_(silent_is_over)
    assert told(receiver, "alive", "firing")
    assert not told(receiver, "alive", "resolved")


def test_it_takes_whatever_a_value_holds(manager: tuple[Alertmanager, Server]) -> None:
    started, _ = manager
    target = open_target(local("alertmanager", url=started.url))
    for name, text in ATTACKS.items():
        attack = replace(hostile(text), dedup_key=f"attack {name}", opened_at=datetime.now(timezone.utc))
        target.send(attack, {})
    held = {one["labels"]["dedup_key"] for one in started.alerts()}
    assert {f"attack {name}" for name in ATTACKS} <= held
