"""The dispatch delivers beside the stream: in its own threads, noted before and after, never lost.

Catches: a slow or dead target that holds up a batch or another target; a notice that a crash forgets, before or after
its delivery; deliveries that go on although they cannot be noted or the checkpoint belongs to another; a thread that
an unexpected fault ends; back-off that does not back off.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.desks import news, rules, target
from weever_stream.alerts.dispatch import ALERTS, SILENCES, Dispatch, backoff, written_silences
from weever_stream.alerts.notice import Delivered, DeliveryError, Notice
from weever_stream.errors import OutputError, StateError
from weever_stream.job.alerts import Silence
from weever_stream.job.routes import routes_of
from weever_stream.state.notes import Notes
from weever_stream.state.store import StoreOptions
from weever_stream.stream.alerting import _message


class Inbox:
    """A target that keeps what it is sent. `script` says how each delivery goes; the last one is for all that follow."""

    repeats = None

    def __init__(self, name: str = "ops", *script: Callable[[Notice], Delivered | None]) -> None:
        self.name, self._script = name, list(script)
        self.sent: list[Notice] = []
        self.memories: list[dict[str, str]] = []
        self.closed = False

    def send(self, notice: Notice, memory: Mapping[str, str]) -> Delivered:
        self.sent.append(notice)
        self.memories.append(dict(memory))
        step = self._script.pop(0) if len(self._script) > 1 else self._script[0] if self._script else None
        return (step(notice) if step else None) or Delivered()

    def close(self) -> None:
        self.closed = True

    def told(self) -> list[tuple[str, str]]:
        return [(one.what, one.rule) for one in self.sent]


def fails(again: bool = True) -> Callable[[Notice], Delivered]:
    def fail(_: Notice) -> Delivered:
        raise DeliveryError("no", again=again)

    return fail


def eventually(holds: Callable[[], Any], what: str = "") -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until, what or "it did not happen in time"
        time.sleep(0.01)


class Place:
    """A folder for notes, and dispatches on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = Notes(StoreOptions(str(folder)))
        self.events: list[tuple[str, str]] = []
        self.log: list[str] = []
        self.length = 0

    def alert(self, target: str, outcome: str) -> None:
        self.events.append((target, outcome))

    def queue(self, target: str, length: int) -> None:
        self.length = length

    def dispatch(self, *inboxes: Inbox, quiet: str = "0 seconds", **more: Any) -> Dispatch:
        routes = routes_of([target(name=one.name, quiet=quiet) for one in inboxes], rules())
        return Dispatch(
            "packages",
            routes,
            inboxes,
            self.notes,
            job="nightly",
            watchers=[self],
            log=lambda e, _: self.log.append(e),
            **more,
        )

    def noted(self) -> dict[str, Any]:
        return json.loads((self.folder / ALERTS).read_text())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def hurried() -> Iterator[None]:
    """Back-off without the waiting."""
    import weever_stream.alerts.dispatch as module

    before, module._LONGEST_WAIT = module._LONGEST_WAIT, 0.01
    try:
        yield
    finally:
        module._LONGEST_WAIT = before


def test_what_is_taken_is_noted_and_told(place: Place):
    inbox = Inbox()
    with place.dispatch(inbox) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=2))
        assert place.noted()["through"] == 0
        eventually(lambda: place.noted()["alerts"] and "opened_at" in place.noted()["alerts"][0][-1])
        dispatch.take(news(dispatch.desk, 1))
        eventually(lambda: not place.noted()["alerts"])
    assert inbox.told() == [("open", "zips"), ("resolve", "zips")]
    assert inbox.closed
    assert place.events == [("ops", "sent"), ("ops", "sent")]
    assert place.log == ["alert_sent", "alert_sent"]


def test_a_batch_that_changes_nothing_is_not_written(place: Place):
    with place.dispatch(Inbox()) as dispatch:
        dispatch.take(news(dispatch.desk, 0))
        assert not (place.folder / ALERTS).exists()


def test_a_slow_target_holds_up_nobody(place: Place):
    gate = threading.Event()
    slow = Inbox("slow", lambda _: gate.wait(30) and None)
    swift = Inbox("swift")
    with place.dispatch(slow, swift) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: slow.sent)
        for batch in range(1, 4):  # the stream goes on
            dispatch.take(news(dispatch.desk, batch, zips=1 + batch))
        eventually(lambda: swift.told() == [("open", "zips")])
        gate.set()
        assert dispatch.drain()


def test_failures_are_tried_again_and_counted(place: Place):
    inbox = Inbox("ops", fails(), fails(), lambda _: Delivered({"thread": "9"}))
    with hurried(), place.dispatch(inbox) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: len(inbox.sent) == 3)
        eventually(lambda: place.events == [("ops", "failed"), ("ops", "failed"), ("ops", "sent")])
        assert place.length == 0
        dispatch.take(news(dispatch.desk, 1))
        eventually(lambda: len(inbox.sent) == 4)
    assert len({one.dedup_key for one in inbox.sent}) == 1
    assert inbox.memories[-1] == {"thread": "9"}


def test_failures_are_logged_as_states_and_not_one_by_one(place: Place, monkeypatch: pytest.MonkeyPatch):
    import weever_stream.alerts.dispatch as module

    monkeypatch.setattr(module, "backoff", lambda tries: 0.0)
    inbox = Inbox("ops", *[fails()] * 25, lambda _: Delivered())
    with place.dispatch(inbox) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: len(place.events) == 26)
        dispatch.take(news(dispatch.desk, 1))
        eventually(lambda: len(place.events) == 27)
    assert [event for event in place.log if event != "alert_retried"] == [
        "alert_failed",
        "alert_still_failing",
        "alert_sent_again",
        "alert_sent",
    ]
    assert place.log.index("alert_still_failing") == 9


def test_what_cannot_arrive_is_given_up_and_said(place: Place):
    inbox = Inbox("ops", fails(again=False))
    with place.dispatch(inbox) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: place.events == [("ops", "gave_up")])
        assert dispatch.drain()
    assert len(inbox.sent) == 1
    assert place.noted()["history"][-1]["event"] == "gave up"


def test_a_fault_in_a_target_does_not_end_its_thread(place: Place):
    def faulty(_: Notice) -> Delivered:
        raise ValueError("a value of a row")

    inbox = Inbox("ops", faulty, lambda _: None)
    with hurried(), place.dispatch(inbox) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: ("ops", "sent") in place.events)
    assert "a value of a row" not in json.dumps(place.noted())
    assert "unexpected ValueError" in json.dumps(place.noted())


def test_what_was_not_delivered_is_delivered_by_the_next_start(place: Place):
    dead = Inbox("ops", fails())
    with place.dispatch(dead) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: place.events)
    alive = Inbox()
    with hurried(), place.dispatch(alive) as dispatch:
        dispatch.desk.alerts[next(iter(dispatch.desk.alerts))].again_at = None  # time has passed
        eventually(lambda: alive.told() == [("open", "zips")])
    assert alive.sent[0].dedup_key == dead.sent[0].dedup_key


def test_a_crash_between_delivery_and_its_note_repeats_it_with_the_same_key(place: Place):
    crashed = []

    def die(_: Notice) -> None:
        crashed.append((place.folder / ALERTS).read_bytes())  # all that a new driver would find

    first = Inbox("ops", die, lambda _: None)
    with place.dispatch(first) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: place.events)
    (place.folder / ALERTS).write_bytes(crashed[0])
    again = Inbox()
    with place.dispatch(again):
        eventually(lambda: again.told() == [("open", "zips")])
    assert again.sent[0].dedup_key == first.sent[0].dedup_key

    (place.folder / ALERTS).write_bytes(crashed[0])
    over = Inbox()
    with place.dispatch(over) as dispatch:
        dispatch.take(news(dispatch.desk, 1))  # mended before the new driver could tell it again
        eventually(lambda: over.sent)
        dispatch.drain()
    assert over.told()[-1] == ("resolve", "zips")
    assert over.sent[-1].dedup_key == first.sent[0].dedup_key


def test_a_note_of_another_format_is_refused(place: Place):
    place.notes.write(ALERTS, {"format": 1})
    with pytest.raises(StateError, match="another release"):
        place.dispatch(Inbox())


def test_nothing_is_sent_while_it_cannot_be_noted(place: Place):
    inbox = Inbox()
    with place.dispatch(inbox) as dispatch:
        whole, dispatch._notes = dispatch._notes, Notes(StoreOptions("/dev/null/nowhere"))
        with pytest.raises(OutputError):
            dispatch.take(news(dispatch.desk, 0, zips=1))
        assert not dispatch.drain(0.5)
        assert inbox.sent == []
        assert not dispatch.drain(0.5)
        assert place.log.count("alerts_not_noted") == 1, "not once more for each try"
        dispatch._notes = whole
        dispatch.take(news(dispatch.desk, 0, zips=1))  # the batch is repeated
        eventually(lambda: inbox.told() == [("open", "zips")])
    assert place.log.count("alerts_noted_again") == 1


def test_nothing_is_sent_by_one_who_has_lost_the_checkpoint(place: Place):
    inbox, ours = Inbox(), [True]
    with place.dispatch(inbox, ours=lambda: ours[0]) as dispatch:
        ours[0] = False
        dispatch.take(news(dispatch.desk, 0, zips=1))
        assert not dispatch.drain(0.5)
    assert inbox.sent == []


def test_a_silence_that_is_set_by_hand_is_heeded(place: Place):
    silence = Silence.model_validate({"until": "2999-01-01", "rules": ["zips"], "why": "moving"})
    place.notes.write(SILENCES, written_silences([silence]))
    inbox = Inbox()
    with place.dispatch(inbox) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1, codes=1))
        eventually(lambda: inbox.told() == [("open", "codes")])
        assert dispatch.drain()
    assert inbox.told() == [("open", "codes")]
    assert "moving" in json.dumps(place.noted()["history"])


def test_silences_that_cannot_be_read_stop_nothing(place: Place, monkeypatch: pytest.MonkeyPatch):
    import weever_stream.alerts.dispatch as module

    monkeypatch.setattr(module, "_LOOKS_EVERY", 0.05)
    inbox = Inbox()
    with place.dispatch(inbox) as dispatch:
        place.notes.write(SILENCES, {"silences": [{"until": "soon"}]})
        eventually(lambda: "silences_unreadable" in place.log)
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: inbox.told() == [("open", "zips")])
        time.sleep(0.3)
        assert place.log.count("silences_unreadable") == 1, "not once more for each look"
        place.notes.write(SILENCES, {"silences": []})
        eventually(lambda: "silences_read_again" in place.log)
        place.notes.write(SILENCES, {"silences": [{"until": "soon"}]})
    with pytest.raises(StateError, match="unsilence"):
        place.dispatch(inbox).__enter__()


@pytest.mark.parametrize(
    "event",
    ["alerts_not_noted", "alerts_noted_again", "silences_unreadable", "silences_read_again", "alerts_disturbed"],
)
def test_what_is_logged_of_a_disturbance_is_a_sentence_with_a_hint(event: str):
    told = _message(event, {"target": "ops", "reason": "the disk is full", "hint": "make room"})
    assert len(told.split()) > 5
    assert told.endswith("(hint: make room)")


def test_the_length_of_the_queue_falls_when_what_failed_is_over(place: Place):
    inbox = Inbox("ops", fails())
    with place.dispatch(inbox) as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        eventually(lambda: place.length == 1)
        dispatch.take(news(dispatch.desk, 1))
        eventually(lambda: place.length == 0)


def test_what_is_known_at_the_end_is_noted(place: Place):
    with place.dispatch(Inbox(), quiet="1 hour") as dispatch:
        dispatch.take(news(dispatch.desk, 0, zips=1))
        assert dispatch.drain()
        dispatch.take(news(dispatch.desk, 1))
        assert dispatch.drain()
    assert "over" in place.noted()["alerts"][0][-1]


def test_waits_grow_and_are_bounded():
    waits = [backoff(tries, lambda: 0.0) for tries in range(12)]
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == 300
    assert backoff(3, lambda: 1.0) == 12
    assert backoff(10_000, lambda: 1.0) == 450
