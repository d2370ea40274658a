"""Delivers what the desk wants: one thread for each target, beside the stream, which waits for none of them.

A batch is taken in by the thread of the stream, which notes the desk before the batch is committed; each delivery is
noted when it is known how it went. Between the two a crash may repeat a notice, with the same key, and loses none.
While the desk cannot be noted nothing is sent. Failures are tried again after 1, 2, 4 … seconds, at most five minutes,
each with up to half as much again by chance, or when the other side says.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

from weever_stream.alerts.alert import Want
from weever_stream.alerts.desk import Desk
from weever_stream.alerts.notice import DeliveryError, Notice, Target
from weever_stream.errors import StateError, WeeverError
from weever_stream.job.alerts import Silence

if TYPE_CHECKING:
    from weever_stream.alerts.news import News, Question
    from weever_stream.job.routes import Route
    from weever_stream.state.notes import Notes

__all__ = [
    "ALERTS",
    "SILENCES",
    "Dispatch",
    "Watcher",
    "backoff",
    "silences_of",
    "utc_now",
    "written_silences",
]

ALERTS, SILENCES = "alerts.json", "silences.json"
"""The notes beside the checkpoint: the desk; what people have silenced by hand."""
_LONGEST_WAIT = 300.0
_LOOKS_EVERY = 10.0
"""Seconds after which silences set by hand are looked for."""


class Watcher(Protocol):
    """Someone who counts what is sent: the metrics."""

    def alert(self, target: str, outcome: str) -> None:
        """A delivery ended: `sent`, `failed`, `gave_up`."""
        ...

    def queue(self, target: str, length: int) -> None:
        """So many deliveries have failed and are tried again."""
        ...


def utc_now() -> datetime:
    """The wall clock."""
    return datetime.now(timezone.utc)


def backoff(tries: int, chance: Callable[[], float] = random.random) -> float:
    """Seconds before the next try, after so many that failed."""
    wait: float = min(_LONGEST_WAIT, 2.0 ** min(tries, 20))
    return wait * (1 + 0.5 * chance())


class Dispatch:
    """A desk with its targets and its note. Use it as a context: threads run within."""

    def __init__(
        self,
        table: str,
        routes: Sequence[Route],
        targets: Sequence[Target],
        notes: Notes,
        *,
        job: str,
        watchers: Sequence[Watcher] = (),
        log: Callable[[str, Mapping[str, Any]], None] = lambda event, about: None,
        now: Callable[[], datetime] = utc_now,
        ours: Callable[[], bool] = lambda: True,
        rules: Sequence[str] = (),
    ) -> None:
        """`ours`: whether the checkpoint still is this job's; if not, nothing more is sent or noted."""
        self._notes, self._watchers, self._log, self._now = notes, watchers, log, now
        self._ours = ours
        self._targets = {target.name: target for target in targets}
        self._changed = threading.Condition()
        self._ending = self._ended = False
        self._silences_from = time.monotonic() + _LOOKS_EVERY
        self._queues: dict[str, int] = {}
        self._failed_in_a_row: dict[str, int] = {}
        """By target. Each has one thread."""
        self._troubles: set[str] = set()
        """Events that last: each is logged when it begins and when it ends."""
        self._threads: list[threading.Thread] = []
        self.desk = Desk(table, routes, notes.read(ALERTS), job=job, rules=rules)
        self.desk.repeats = {target.name: target.repeats for target in targets}

    # For the stream

    def question(self) -> Question:
        """What the next batch is to be asked."""
        with self._changed:
            return self.desk.question()

    def take(self, news: News) -> None:
        """Takes in a batch, and notes it before it returns. Raises `OutputError` if that cannot be done."""
        with self._changed:
            self.desk.take(news)
            if self.desk.unnoted:
                self._write()
                self._changed.notify_all()

    # Threads

    def __enter__(self) -> Dispatch:
        self.desk.silences = silences_of(self._notes)
        for target in self._targets.values():
            name = f"weever alerts {target.name}"
            thread = threading.Thread(target=self._serve, args=(target,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, patience: float = 5.0) -> None:
        """Ends the threads when what they have in hand is done. What could not be sent is sent by the next start."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(patience)
        with self._changed:
            self._note_if_needed()
            self._ended = True  # a thread that hangs in a delivery writes nothing any more
        for target in self._targets.values():
            with suppress(Exception):
                target.close()

    def drain(self, patience: float = 20.0) -> bool:
        """Waits until all that is to be told now is told or has failed once. Whether that was so in time."""
        until = time.monotonic() + patience
        with self._changed:
            while any(self._due(name) for name in self._targets) or self.desk.busy:
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 0.5))
        return True

    def _serve(self, target: Target) -> None:
        """The life of a target's thread. Whatever goes wrong, it goes on."""
        while not self._ending:
            try:
                self._look_for_silences()
                self._serve_one(target)
            except Exception as error:
                self._log("alerts_disturbed", {"target": target.name, "reason": type(error).__name__})
                with self._changed:
                    self._changed.wait(1.0)

    def _serve_one(self, target: Target) -> None:
        """Tells a target one thing, or waits until there may be something to tell."""
        with self._changed:
            want = self._next(target.name)
            self._tell_queue(target.name)
            if want is None:
                if not self._ending:
                    self._changed.wait(self._pause())
                return
            notice = self.desk.sending(want, self._now())
            noted = want.what == "update" or self._note_if_needed()
        if noted:
            self._deliver(target, want, notice)
        else:
            self._failed(target.name, want, DeliveryError("it could not be noted", again=True))

    def _deliver(self, target: Target, want: Want, notice: Notice) -> None:
        key = (want.target, want.place)
        try:
            done = target.send(notice, self.desk.alerts[key].memory)
        except DeliveryError as error:
            self._failed(target.name, want, error)
        except Exception as error:  # a fault of ours must not end the thread; its text might hold a value
            fault = DeliveryError(f"unexpected {type(error).__name__}", again=True, unsure=True)
            self._failed(target.name, want, fault)
        else:
            with self._changed:
                self.desk.delivered(want, notice, done.memory, self._now())
                self._note_if_needed()
            self._tell("sent", target.name, want, None)

    def _failed(self, name: str, want: Want, error: DeliveryError) -> None:
        with self._changed:
            tries = self.desk.alerts[want.target, want.place].tries
            wait = max(error.after or 0.0, backoff(tries)) if error.again else None
            gave_up = self.desk.failed(want, error.reason, wait, self._now(), unsure=error.unsure)
            self._note_if_needed()
        self._tell("gave_up" if gave_up else "failed", name, want, error.reason)

    def _tell(self, outcome: str, name: str, want: Want, reason: str | None) -> None:
        event, attempts = self._event(outcome, name)
        about = {"target": name, "rule": want.place[0], "what": want.what, "reason": reason, "attempts": attempts}
        self._log(event, {field: value for field, value in about.items() if value is not None})
        for watcher in self._watchers:
            watcher.alert(name, outcome)
        with self._changed:
            self._tell_queue(name)
            self._changed.notify_all()

    def _event(self, outcome: str, name: str) -> tuple[str, int | None]:
        """What is logged of a delivery, and how many have failed in a row: states, not every attempt.

        The first failure is an event of its own, then the tenth, the hundredth and so on, and the end of it.
        """
        failed = self._failed_in_a_row.get(name, 0)
        if outcome != "failed":
            self._failed_in_a_row[name] = failed if outcome == "gave_up" else 0
            return ("alert_sent_again", failed) if failed and outcome == "sent" else (f"alert_{outcome}", None)
        self._failed_in_a_row[name] = failed = failed + 1
        if failed == 1:
            return "alert_failed", None
        rounded = failed == 10 ** (len(str(failed)) - 1)
        return "alert_still_failing" if rounded else "alert_retried", failed

    # Under the lock

    def _next(self, name: str) -> Want | None:
        """What a target is to be told now. Nothing while the desk cannot be noted."""
        want = self._due(name)
        return want if self._ours() and not self.desk.unnoted else None

    def _due(self, name: str) -> Want | None:
        wants, _ = self.desk.wants(self._now())
        self._note_if_needed()  # since when it lasts or is over must outlive this process
        return next((want for want in wants if want.target == name), None)

    def _pause(self) -> float:
        """Seconds until something may be due."""
        now = self._now()
        _, later = self.desk.wants(now)
        due = _LOOKS_EVERY if later is None else (later - now).total_seconds()
        return max(0.01, min(due, _LOOKS_EVERY))

    def _tell_queue(self, name: str) -> None:
        waiting = self.desk.waiting(name)
        if self._queues.get(name) != waiting:
            self._queues[name] = waiting
            for watcher in self._watchers:
                watcher.queue(name, waiting)

    def _note_if_needed(self) -> bool:
        """Whether all that the desk knows is noted."""
        if self.desk.unnoted and self._ours() and not self._ended:
            try:
                self._write()
            except WeeverError as error:
                self._trouble("alerts_not_noted", error)
        return not self.desk.unnoted

    def _write(self) -> None:
        self._notes.write(ALERTS, self.desk.noted(), compact=True)
        self.desk.unnoted = False
        self._no_trouble("alerts_not_noted", "alerts_noted_again")

    def _trouble(self, event: str, error: WeeverError) -> None:
        if event not in self._troubles:
            self._troubles.add(event)
            self._log(event, {"reason": error.message, **({"hint": error.hint} if error.hint else {})})

    def _no_trouble(self, event: str, over: str) -> None:
        if event in self._troubles:
            self._troubles.discard(event)
            self._log(over, {})

    def _look_for_silences(self) -> None:
        """Reads them from time to time, without the lock: a store may take its time."""
        with self._changed:
            now = time.monotonic()
            if now < self._silences_from:
                return
            self._silences_from = now + _LOOKS_EVERY
        try:
            found = silences_of(self._notes)
        except WeeverError as error:
            self._trouble("silences_unreadable", error)
            return
        self._no_trouble("silences_unreadable", "silences_read_again")
        with self._changed:
            self.desk.silences = found


def silences_of(notes: Notes) -> list[Silence]:
    """What people have silenced by hand."""
    noted = notes.read(SILENCES) or {}
    try:
        return [Silence.model_validate(one) for one in noted.get("silences", ())]
    except (ValueError, TypeError):
        raise StateError(
            f"{SILENCES} beside the checkpoint cannot be read", hint="`weever alerts unsilence` writes it anew"
        ) from None


def written_silences(silences: Sequence[Silence]) -> dict[str, Any]:
    """The note of silences."""
    return {"silences": [json.loads(one.model_dump_json(by_alias=True, exclude_none=True)) for one in silences]}
