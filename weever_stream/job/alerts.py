"""What a job file may say under `alerts`: who is told, of what, when and how often. One pydantic model for each kind.

Keys, tokens and passwords come from `${env:…}` or `${file:…}`: one that is written out is refused. Whether an address
may be used is seen when the target is opened, not here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, time, timezone
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    TypeAdapter,
    model_validator,
)

from weever_stream.job.options import Duration, Options, Place, Text, _kind, _Options
from weever_stream.rules.filemodel import GroupBy
from weever_stream.rules.model import Severity
from weever_stream.rules.references import Secret

__all__ = [
    "AlertOptions",
    "AlertmanagerAlert",
    "EmailAlert",
    "LogAlert",
    "PagerdutyAlert",
    "Silence",
    "SlackAlert",
    "TeamsAlert",
    "WebhookAlert",
    "Window",
    "alert_options",
    "is_named",
    "violations",
]

_COUNT = re.compile(r"\s*([1-9][0-9]{0,8})(\s+violations?)?\s*")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def violations(text: object) -> int:
    """The number that `5` or `5 violations` means."""
    found = _COUNT.fullmatch(str(text))
    if isinstance(text, bool) or not found:
        raise ValueError("must be a number of violations: 5, or 5 violations")
    return int(found[1])


def is_named(rule: str, name: str) -> bool:
    """Whether a name means a rule: its own, or that of the rule it is a part of."""
    return rule == name or rule.startswith(name + ".")


def _by_reference(value: object) -> Secret:
    if not isinstance(value, Secret):
        raise ValueError("is a secret and must not be written out; write ${env:NAME} or ${file:/path}")
    return value


def _clock(text: object) -> time:
    found = re.fullmatch(r"([01]?\d|2[0-4]):([0-5]\d)", str(text))
    if not found or (found[1] == "24" and found[2] != "00"):
        raise ValueError("must be a time of day: 22:00")
    return time(int(found[1]) % 24, int(found[2]))


def _moment(value: object) -> datetime:
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        raise ValueError("must be a time: 2026-03-01T22:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name[:60]!r} is no time zone; write one such as Europe/Berlin") from None
    return name


SecretText = Annotated[Secret, PlainValidator(_by_reference)]
Address = Annotated[str | Secret, Field(union_mode="left_to_right")]
Day = Annotated[Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"], BeforeValidator(lambda d: str(d)[:3].lower())]


class Window(_Options):
    """Hours of the week in which nothing new is told. What is still open at their end is told then."""

    days: list[Day] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    """The days on which the window begins."""
    start: Annotated[time, BeforeValidator(_clock), Field(alias="from")] = time(0)
    end: Annotated[time, BeforeValidator(_clock), Field(alias="to")] = time(0)
    """Earlier than `from` or equal: on the next day."""
    zone: Annotated[str, AfterValidator(_zone)] = "UTC"

    def covers(self, now: datetime) -> bool:
        """Whether a moment lies in the window. On the days when clocks change, by what clocks show."""
        here = now.astimezone(ZoneInfo(self.zone))
        clock, today = here.time().replace(second=0, microsecond=0), here.weekday()
        if self.start < self.end:
            return _DAYS[today] in self.days and self.start <= clock < self.end
        begun_today = _DAYS[today] in self.days and clock >= self.start
        return begun_today or (_DAYS[today - 1] in self.days and clock < self.end)


class Silence(_Options):
    """A time of maintenance: nothing new is told of these rules, what is over is."""

    rules: list[Text] = []
    """All, if none is named."""
    start: Annotated[datetime | None, BeforeValidator(_moment), Field(alias="from")] = None
    until: Annotated[datetime, BeforeValidator(_moment)]
    why: Annotated[str, Field(max_length=500)] = ""

    def covers(self, rule: str, now: datetime) -> bool:
        """Whether it is in force for a rule."""
        named = not self.rules or any(is_named(rule, one) for one in self.rules)
        return named and (self.start is None or self.start <= now) and now < self.until

    def without(self, rules: Sequence[str], known: Sequence[str]) -> Silence | None:
        """The same for all rules but these; None if that is for none. `known`: the rules of the job.

        A name that covers more than what is to end, or the silence of all rules, is replaced by the rules that remain.
        """
        whole = [name for name in self.rules if not any(is_named(name, one) or is_named(one, name) for one in rules)]
        if self.rules and whole == self.rules:
            return self
        split = [name for name in self.rules if name not in whole]
        remain = [
            rule
            for rule in known
            if (not self.rules or any(is_named(rule, name) for name in split))
            and not any(is_named(rule, one) for one in (*rules, *whole))
        ]
        left = [*whole, *remain]
        return self.model_copy(update={"rules": left}) if left else None


class AlertOptions(_Options):
    """What all targets have: of what they hear, and when."""

    kind: str
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] = ""
    """Its kind, if nothing is said. Names are unique."""
    min_severity: Severity = "error"
    rules: list[Text] = []
    """Only these."""
    owners: list[Text] = []
    """Only rules of these owners."""
    group_by: GroupBy = "rule"
    after: Annotated[int, BeforeValidator(violations)] = 1
    for_: Annotated[Duration, Field(alias="for")] = "0 seconds"
    """How long it must have lasted before it is told."""
    quiet: Duration = "1 minute"
    """How long it must be over before that is told: against flapping."""
    suppress_for: Duration = "0 seconds"
    """How long after its end an alert is not told again."""
    update_every: Duration = "1 hour"
    """How often an open alert is updated if its number or its examples have changed."""
    windows: list[Window] = []
    silences: list[Silence] = []
    max_alerts: Annotated[int, Field(ge=1, le=1000)] = 20
    """Alerts of one rule that are open at once; what goes beyond is one alert, with its number."""
    examples: Annotated[int, Field(ge=0, le=20)] = 3
    mask: list[Text] = []
    """Columns whose values are never shown, whatever a rule says."""
    resolve: bool = True
    """Whether it is told that it is over."""
    timeout: Duration = "10 seconds"
    give_up_after: Duration = "1 day"
    """How long a delivery that fails is tried again."""
    allow_hosts: list[Text] = []
    """Hosts that may have private, loopback or link-local addresses, and may be talked to in the clear."""
    ca_file: Place | None = None
    """Certificates, in PEM format, of the authorities that are believed instead of those that the machine knows."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return {**value, "name": value.get("name") or value.get("kind")} if isinstance(value, dict) else value


class PagerdutyAlert(AlertOptions):
    """PagerDuty's Events API v2."""

    kind: Literal["pagerduty"]
    routing_key: SecretText
    url: Address = "https://events.pagerduty.com/v2/enqueue"


class AlertmanagerAlert(AlertOptions):
    """Prometheus Alertmanager, API v2."""

    kind: Literal["alertmanager"]
    url: Address
    labels: dict[str, str] = {}
    expires: Duration = "1 hour"
    """When Alertmanager takes an alert of which it hears nothing more for over. Told again four times as often."""
    headers: Options = {}


class SlackAlert(AlertOptions):
    """Slack: an incoming webhook, or a bot's token with a channel, which then replies in the thread."""

    kind: Literal["slack"]
    webhook: SecretText | None = None
    token: SecretText | None = None
    channel: Text | None = None
    url: Address = "https://slack.com/api/chat.postMessage"

    @model_validator(mode="after")
    def _one_way(self) -> SlackAlert:
        if (self.webhook is None) == (self.token is None):
            raise ValueError("Slack needs a webhook, or a token and a channel")
        if self.token is not None and self.channel is None:
            raise ValueError("a token needs a channel to write to")
        return self


class TeamsAlert(AlertOptions):
    """Microsoft Teams: the webhook of a workflow."""

    kind: Literal["teams"]
    webhook: SecretText


class WebhookAlert(AlertOptions):
    """Any server that takes JSON."""

    kind: Literal["webhook"]
    url: Address
    secret: SecretText | None = None
    """Signs the body: X-Weever-Signature."""
    headers: Options = {}


class EmailAlert(AlertOptions):
    """SMTP."""

    kind: Literal["email"]
    host: Text
    port: Annotated[int, Field(ge=1, le=65535)] = 587
    tls: Literal["starttls", "tls", "none"] = "starttls"
    sender: Text
    to: Annotated[list[Text], Field(min_length=1, max_length=100)]
    username: Text | None = None
    password: SecretText | None = None


class LogAlert(AlertOptions):
    """The job's own log."""

    kind: Literal["log"]


alert_options: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        Annotated[PagerdutyAlert, Tag("pagerduty")]
        | Annotated[AlertmanagerAlert, Tag("alertmanager")]
        | Annotated[SlackAlert, Tag("slack")]
        | Annotated[TeamsAlert, Tag("teams")]
        | Annotated[WebhookAlert, Tag("webhook")]
        | Annotated[EmailAlert, Tag("email")]
        | Annotated[LogAlert, Tag("log")],
        Discriminator(_kind),
    ]
)
