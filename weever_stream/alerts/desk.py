"""Decides what is told to whom, and when: pure, with a clock that is handed in. Cost: linear in the alerts that live.

Each target wants an alert to be open while enough violations have been for long enough; what it was told last is known
too. So there is no queue that could grow: what is to be sent is the difference between the two, and an alert that is
over before it was told is never told. All of it is one JSON value, `noted`, from which the desk goes on after a crash;
a notice that was delivered and not noted is delivered again, under the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

from weever_stream.alerts.alert import Alert, Want
from weever_stream.alerts.news import News, Question, Said
from weever_stream.alerts.notice import Example, Notice, What
from weever_stream.alerts.subjects import OTHERS, Place, Subject, Subjects
from weever_stream.errors import StateError
from weever_stream.job.alerts import Silence
from weever_stream.job.routes import Route

__all__ = ["HISTORY", "Desk", "dedup_key"]

_FORMAT = 2
HISTORY = 300
"""Events that are kept for `weever alerts history`."""
_LOOK_AGAIN = timedelta(seconds=30)
"""How often it is seen whether a silence or a window is over."""
Event = Literal["open", "update", "resolve", "failed", "gave up", "suppressed", "dropped"]


class Desk:
    """All subjects and alerts of a job."""

    def __init__(
        self,
        table: str,
        routes: Sequence[Route],
        noted: Mapping[str, Any] | None = None,
        *,
        job: str,
        rules: Iterable[str] = (),
    ) -> None:
        """`noted`: what an earlier desk left. What it had given up is tried again: something may have been fixed.

        `job`: its name, a part of every dedup key. `rules`: the names of all, also of those that no target hears of.
        """
        self.job, self.table = job, table
        self._rules = frozenset(rules)
        self.routes = {(route.target, route.rule): route for route in routes}
        self.repeats: dict[str, float | None] = {}
        """Of each target: the seconds after which an open alert is told again."""
        self.silences: Sequence[Silence] = ()
        """Those that were set by hand, for all targets."""
        self.history: list[dict[str, Any]] = []
        self.through, self.position = -1, ""
        self.backfilling: frozenset[str] = frozenset()
        """Rules of which not all violations are known yet: their alerts stay as they are."""
        self.agreed = False
        """Whether a batch has come: only then it is sure that rules which are not there any more may go."""
        self.unnoted = False
        """Whether the desk knows anything that its note does not."""
        self.subjects = Subjects()
        self._by_rule: dict[str, list[Route]] = {}
        for route in routes:
            self._by_rule.setdefault(route.rule, []).append(route)
        self._under_way: dict[tuple[str, Place], bool] = {}
        """What is being sent, and what `maybe` was before. Nothing is decided of it until it is known how that went."""
        self.alerts: dict[tuple[str, Place], Alert] = {}
        if noted:
            self._take_up(noted)

    # What the stream says

    def question(self) -> Question:
        """What the next batch is to be asked."""
        return self.subjects.question(self.routes.values())

    def take(self, news: News) -> bool:
        """Takes in a batch; one that was taken in before is passed over. Whether anything is different now."""
        self.agreed = True
        if news.batch <= self.through:
            return False
        if 0 <= self.through < news.batch - 1:
            self.subjects.lose_count()
        changed = self.subjects.take(news, self.question())
        changed = changed or news.backfilling != self.backfilling
        self.through, self.position, self.backfilling = news.batch, news.position, news.backfilling
        self._forget()
        self.unnoted = self.unnoted or changed
        return changed

    def _forget(self) -> None:
        self.subjects.forget({place for _, place in self.alerts})

    # What is to be told

    def wants(self, now: datetime) -> tuple[list[Want], datetime | None]:
        """What is to be told now, and when to ask again if nothing happens before."""
        found: list[Want] = []
        later: list[datetime] = []
        before = {key: alert.decided() for key, alert in self.alerts.items()}
        for place, subject in self.subjects.places.items():
            for route in self._routes(place):
                key = (route.target, place)
                if key not in self._under_way and (subject.open or key in self.alerts):
                    self._judge(route, place, subject, now, found, later)
        for (target, place), alert in list(self.alerts.items()):
            if self.agreed and self._route(target, place) is None and (target, place) not in self._under_way:
                self._judge_stray(target, place, alert, now, found, later)
        self._forget()
        self.unnoted = self.unnoted or before != {key: alert.decided() for key, alert in self.alerts.items()}
        return found, min(later, default=None)

    def _judge(
        self, route: Route, place: Place, subject: Subject, now: datetime, found: list[Want], later: list[datetime]
    ) -> None:
        key = (route.target, place)
        alert = self.alerts.setdefault(key, Alert(severity=route.severity))
        alert.not_after(now)
        due: What | None
        if subject.open >= route.after:
            if alert.over is not None:
                self._come_back(alert, now)
            told = alert.opened_at is not None and not alert.maybe
            judge = self._due_to_update if told else self._due_to_open
            due = judge(route, place, alert, subject, now, later)
        elif alert.opened_at is not None or alert.maybe:
            due = self._due_to_resolve(route, place, alert, now, later)
            if due is None and route.rule in self.backfilling and alert.told_at is not None and not alert.maybe:
                due = self._due_to_update(route, place, alert, subject, now, later)
        else:
            due = None
            alert.pending, alert.hushed, alert.gave_up = None, "", ""
            self._succeeded(alert)
            if self._may_forget(route, alert, now, later):
                del self.alerts[key]
        if due is not None and alert.gave_up != due:
            if alert.again_at is not None and alert.again_at > now:
                later.append(alert.again_at)
            else:
                found.append(Want(route.target, place, due))

    def _come_back(self, alert: Alert, now: datetime) -> None:
        """What was over is not. If its end was told, or may have been, it is a new alert."""
        alert.over, alert.gave_up = None, ""
        self._succeeded(alert)
        if alert.maybe:
            alert.pending = now

    def _due_to_open(
        self, route: Route, place: Place, alert: Alert, subject: Subject, now: datetime, later: list[datetime]
    ) -> What | None:
        alert.pending = alert.pending or now
        if (ready := alert.pending + timedelta(seconds=route.lasting)) > now:
            later.append(ready)
            return None
        if why := self._hushed(route, alert, now):
            later.append(now + _LOOK_AGAIN)
            if alert.hushed != why:
                alert.hushed = why
                self._note(now, "suppressed", route.target, place, why=why)
            return None
        alert.hushed = ""
        return "open"

    def _due_to_update(
        self, route: Route, place: Place, alert: Alert, subject: Subject, now: datetime, later: list[datetime]
    ) -> What | None:
        assert alert.told_at is not None
        shown = {said["id"] for said in subject.examples[: route.options.examples]}
        different = subject.open != alert.told_open or shown != {*alert.told_examples}
        changed = different and route.rule not in self.backfilling
        waits = [route.update_every] if changed else []
        repeats = self.repeats.get(route.target)
        if repeats is not None:
            waits.append(repeats)
        if not waits:
            return None
        ready = alert.told_at + timedelta(seconds=min(waits))
        if ready > now:
            later.append(ready)
            return None
        if repeats is None and self._hushed(route, alert, now):
            later.append(now + _LOOK_AGAIN)
            return None
        return "update"

    def _due_to_resolve(
        self, route: Route, place: Place, alert: Alert, now: datetime, later: list[datetime]
    ) -> What | None:
        if route.rule in self.backfilling:  # what is not open now may only not have been found yet
            alert.over = None
            return None
        if alert.over is None:
            alert.over = now
            self._succeeded(alert)
        if (ready := alert.over + timedelta(seconds=route.quiet)) > now:
            later.append(ready)
            return None
        if not route.options.resolve:
            self._note(now, "dropped", route.target, place, why="resolve: false")
            self._closed((route.target, place), alert, now)
            return None
        return "resolve"

    def _judge_stray(
        self, target: str, place: Place, alert: Alert, now: datetime, found: list[Want], later: list[datetime]
    ) -> None:
        """An alert that nobody would open today: its rule is gone, or the target hears of it no longer."""
        reachable = any(name == target for name, _ in self.routes) or target in self.repeats
        alert.not_after(now)
        if not (alert.opened_at or alert.maybe):
            del self.alerts[target, place]
        elif alert.gave_up == "resolve":
            pass  # until the next start
        elif not reachable:
            self._note(now, "dropped", target, place, why="there is no such target any more")
            del self.alerts[target, place]
        elif alert.again_at is not None and alert.again_at > now:
            later.append(alert.again_at)
        else:
            found.append(Want(target, place, "resolve", "not_routed" if place[0] in self._rules else "rule_removed"))

    def _hushed(self, route: Route, alert: Alert, now: datetime) -> str:
        """Why nothing new is told at this moment; empty if nothing stands against it."""
        for silence in (*route.options.silences, *self.silences):
            if silence.covers(route.rule, now):
                return f"silenced until {silence.until.isoformat()}" + (f": {silence.why}" if silence.why else "")
        if any(window.covers(now) for window in route.options.windows):
            return "in a window in which nothing is told"
        if alert.resolved_at is not None and now < alert.resolved_at + timedelta(seconds=route.suppressed):
            return "told and over a short time ago"
        return ""

    @staticmethod
    def _may_forget(route: Route, alert: Alert, now: datetime, later: list[datetime]) -> bool:
        """Whether nothing of an alert matters any more: how long ago it was over may."""
        if alert.resolved_at is None:
            return True
        until = alert.resolved_at + timedelta(seconds=route.suppressed)
        if until > now:
            later.append(until)
        return until <= now

    def sending(self, want: Want, now: datetime) -> Notice:
        """What is said of something that is wanted. It is under way from now on, until `delivered` or `failed`.

        The desk must be noted before an opening or an end is sent: else nobody would know, after a crash, that it may
        have arrived.
        """
        rule, _, group = want.place
        route = self.routes.get((want.target, rule))
        subject = self.subjects.places.get(want.place, Subject())
        alert = self.alerts[want.target, want.place]
        self._under_way[want.target, want.place] = alert.maybe
        alert.key = alert.key or dedup_key(self.job, self.table, want.place)
        alert.maybe = alert.maybe or want.what != "update"
        self.unnoted = True
        most = route.options.examples if route is not None and want.what != "resolve" else 0
        shown = {name: value for name, value in subject.values.items() if route is not None and name in route.shown}
        return Notice(
            what=want.what,
            dedup_key=alert.key,
            job=self.job,
            table=self.table,
            rule=rule,
            severity=route.severity if route is not None else alert.severity,  # type: ignore[arg-type]
            open=alert.told_open if want.what == "update" and rule in self.backfilling else subject.open,
            opened_at=alert.opened_at or now,
            at=now,
            group=shown,
            group_id=group,
            examples=tuple(_example(said, route) for said in subject.examples[:most] if route is not None),
            expression=route.expression if route is not None else "",
            description=route.description if route is not None else None,
            owner=route.owner if route is not None else None,
            runbook=route.runbook if route is not None else None,
            reason=want.reason,
            position=self.position or None,
            backfilling=rule in self.backfilling,
            serial=_serial(want.what, alert),
        )

    # How it went

    def delivered(self, want: Want, notice: Notice, memory: Mapping[str, str], now: datetime) -> None:
        """A notice has arrived."""
        key = (want.target, want.place)
        self._under_way.pop(key, None)
        alert = self.alerts[key]
        self._note(now, want.what, want.target, want.place, open=notice.open, why=want.reason)
        self._succeeded(alert)
        alert.memory = {**alert.memory, **memory}
        alert.told_at, alert.told_open, alert.severity = now, notice.open, notice.severity
        alert.told_examples = [example.violation_id for example in notice.examples]
        if want.what == "resolve":
            self._closed(key, alert, now)
        else:
            alert.opened_at, alert.maybe = notice.opened_at, False
        self.unnoted = True
        self._forget()

    def failed(self, want: Want, reason: str, again_in: float | None, now: datetime, *, unsure: bool = False) -> bool:
        """A notice has not arrived; tried again in so many seconds, None: not as it is. Whether it was given up.

        `unsure`: it may have arrived all the same.
        """
        was_unsure = self._under_way.pop((want.target, want.place), True)
        alert = self.alerts[want.target, want.place]
        route = self._route(want.target, want.place)
        if want.what != "update":
            alert.maybe = unsure or was_unsure
        self.unnoted = True
        alert.tries += 1
        alert.failing_since = alert.failing_since or now
        patience = timedelta(seconds=route.give_up_after if route is not None else 86400)
        if again_in is not None and now - alert.failing_since < patience:
            if alert.tries == 1:
                self._note(now, "failed", want.target, want.place, why=reason)
            alert.again_at = now + timedelta(seconds=again_in)
            return False
        self._note(now, "gave up", want.target, want.place, why=f"{want.what}: {reason}")
        self._succeeded(alert)
        if want.what == "update":
            subject, most = self.subjects.places.get(want.place, Subject()), route.options.examples if route else 0
            alert.told_at, alert.told_open = now, subject.open
            alert.told_examples = [said["id"] for said in subject.examples[:most]]
        else:
            alert.gave_up = want.what
        return True

    def _closed(self, key: tuple[str, Place], alert: Alert, now: datetime) -> None:
        route = self._route(*key)
        if route is None or not route.suppressed:
            del self.alerts[key]
            return
        self.alerts[key] = Alert(resolved_at=now, severity=alert.severity)

    @staticmethod
    def _succeeded(alert: Alert) -> None:
        alert.tries, alert.failing_since, alert.again_at = 0, None, None

    # Notes

    @property
    def busy(self) -> bool:
        """Whether anything is being sent."""
        return bool(self._under_way)

    def waiting(self, target: str) -> int:
        """Alerts that the target should know of otherwise than it does, and that failed or have not been tried."""
        return sum(1 for (name, _), alert in self.alerts.items() if name == target and alert.again_at is not None)

    def noted(self) -> dict[str, Any]:
        """All of it, as JSON."""
        return {
            "format": _FORMAT,
            "through": self.through,
            "position": self.position,
            "backfilling": sorted(self.backfilling),
            "subjects": self.subjects.noted(),
            "alerts": [[target, *place, alert.to_json()] for (target, place), alert in sorted(self.alerts.items())],
            "history": self.history,
        }

    def _take_up(self, noted: Mapping[str, Any]) -> None:
        if noted.get("format") != _FORMAT:
            raise StateError(
                f"the note of alerts is of format {noted.get('format')}, written by another release",
                hint="go on with that release, or delete alerts.json beside the checkpoint: what is open is told again",
            )
        self.through, self.position = int(noted["through"]), str(noted["position"])
        self.backfilling = frozenset(noted["backfilling"])
        self.history = list(noted["history"])
        self.subjects = Subjects.of(noted["subjects"])
        for target, rule, by, group, alert_json in noted["alerts"]:
            alert = self.alerts[target, (rule, tuple(by), group)] = Alert.of(alert_json)
            alert.gave_up = ""

    def _note(
        self, now: datetime, event: Event, target: str, place: Place, *, open: int | None = None, why: str | None = None
    ) -> None:
        said = {"at": now.isoformat(), "event": event, "target": target, "rule": place[0], "group": place[2]}
        extra = {"open": open, "why": why, "batch": self.through}
        self.history.append({**said, **{name: value for name, value in extra.items() if value is not None}})
        del self.history[:-HISTORY]

    def _routes(self, place: Place) -> list[Route]:
        return [route for route in self._by_rule.get(place[0], ()) if route.by == place[1]]

    def _route(self, target: str, place: Place) -> Route | None:
        route = self.routes.get((target, place[0]))
        return route if route is not None and route.by == place[1] else None


def dedup_key(job: str, table: str, place: Place) -> str:
    """Names an alert among those of all jobs, for ever. The others of two groupings are two alerts.

    Characters that would make two names look like one (slashes, spaces, what cannot be printed) are escaped.
    """
    rule, by, group = place
    parts = ["weever", job, table, rule, *([group] if group else []), *(by if group == OTHERS else ())]
    return "/".join("".join(map(_escaped, part)) for part in parts)


def _escaped(character: str) -> str:
    if character.isprintable() and character not in " %/":
        return character
    return quote(character, safe="", errors="surrogatepass")


def _example(said: Said, route: Route) -> Example:
    keys = said.get("keys") if route.keys else None
    rows = [
        None if row is None or not route.shown else {name: row[name] for name in row if name in route.shown}
        for row in said.get("values") or (None, None)
    ]
    return Example(said["id"], *(keys or (None, None)), *rows)


def _serial(what: What, alert: Alert) -> str:
    """When that began of which is told: the same however often it is tried."""
    began = {"open": alert.pending, "update": alert.told_at, "resolve": alert.over}[what]
    began = began or alert.told_at or alert.pending
    return began.isoformat() if began else ""
