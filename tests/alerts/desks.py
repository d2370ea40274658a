"""Rules, targets and news for tests of the desk."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

from weever_stream.alerts.desk import Desk
from weever_stream.alerts.news import News, count, joined
from weever_stream.job.alerts import AlertOptions, alert_options
from weever_stream.job.routes import routes_of
from weever_stream.rules.file import read_rules_text
from weever_stream.rules.model import Rule

START = datetime(2026, 3, 2, 12, tzinfo=timezone.utc)  # a Monday


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def rules(*about: str) -> tuple[Rule, ...]:
    """`zips` (zip -> city) and `codes` (unique code), each with what is said of its alerts."""
    said = [*about, "", ""]
    return read_rules_text(
        f"""
table: packages
key: id
rules:
  - name: zips
    fd: zip -> city
    owner: logistics
    {said[0]}
  - name: codes
    unique: code
    severity: critical
    {said[1]}
"""
    ).rules


def target(**said: Any) -> AlertOptions:
    return alert_options.validate_python({"kind": "log", "name": "ops", "quiet": "60 seconds", **said})


def desk(*targets: AlertOptions, of: tuple[Rule, ...] | None = None, noted: Any = None) -> Desk:
    these = of or rules()
    routes = routes_of(targets or (target(),), these, ["id"])
    made = Desk("packages", routes, noted, job="nightly", rules=[rule.name for rule in these])
    made.repeats = dict.fromkeys([one.name for one in targets] or ["ops"])
    return made


def news(desk: Desk, batch: int, deltas: list[tuple[str, str, str, str]] = [], **counts: int) -> News:  # noqa: B006
    """A batch with `deltas` (rule, change, id, zip) after which so many violations of each rule are open."""
    columns: dict[str, list[Any]] = {
        "rule": [one[0] for one in deltas],
        "change": [one[1] for one in deltas],
        "violation_id": [one[2] for one in deltas],
        "left_key": [f"{one[2]}-l" for one in deltas],
        "right_key": [f"{one[2]}-r" for one in deltas],
        "left_values": [f'{{"city":"Ulm","zip":"{one[3]}"}}' for one in deltas],
        "right_values": [f'{{"city":"Bonn","zip":"{one[3]}"}}' for one in deltas],
    }
    asked = desk.question()
    # In two parts, as two partitions would be.
    halves = [{name: column[start::2] for name, column in columns.items()} for start in (0, 1)]
    open_now = {"zips": 0, "codes": 0, **counts}
    return joined([count(half, asked) for half in halves], asked, batch, f"p{batch}", open_now)
