"""Who hears of what: for every target and rule that it hears of, one `Route` with all that was said of it.

A target says what holds for all its rules, a rule (`alerts:` of its own) what differs for it. Pure; made once at start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weever_stream.errors import Place, RuleError, did_you_mean
from weever_stream.job.alerts import is_named, violations
from weever_stream.job.options import duration
from weever_stream.rules.model import SEVERITIES, Column, Op
from weever_stream.rules.writing import write_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.job.alerts import AlertOptions
    from weever_stream.rules.model import Rule

__all__ = ["Route", "equality_columns", "routes_of"]


@dataclass(frozen=True)
class Route:
    """What one target wants to hear of one rule."""

    target: str
    rule: str
    severity: str
    options: AlertOptions
    by: tuple[str, ...]
    """The columns whose values make groups; none: one alert for the rule."""
    after: int
    lasting: float
    """Seconds that it must have lasted."""
    quiet: float
    suppressed: float
    update_every: float
    give_up_after: float
    shown: frozenset[str]
    """Columns whose values may be shown."""
    keys: bool
    """Whether the keys of rows may be shown."""
    expression: str
    description: str | None = None
    owner: str | None = None
    runbook: str | None = None


def routes_of(
    targets: Sequence[AlertOptions], rules: Sequence[Rule], key: Sequence[str] = (), place: Place | None = None
) -> list[Route]:
    """All routes. Raises `RuleError` where a name is not known or a duration is none."""
    columns = {*key, *(name for rule in rules for name in rule.columns)}
    names = [target.name for target in targets]
    known = [rule.name for rule in rules]
    for target in targets:
        for named in [*target.rules, *(one for silence in target.silences for one in silence.rules)]:
            if not any(is_named(rule, named) for rule in known):
                raise RuleError(
                    f"the alerts to {target.name} name a rule {named}, which there is not",
                    place=place,
                    hint=did_you_mean(named, known),
                )
        for column in target.mask:
            if column not in columns:
                raise RuleError(
                    f"the alerts to {target.name} mask a column {column}, which is no key and which no rule reads",
                    place=place,
                    hint=did_you_mean(column, sorted(columns)),
                )
    for rule in rules:
        values = rule.alerts.get("values")
        for column in values if isinstance(values, list | tuple) else ():
            if column not in {*key, *rule.columns}:
                raise RuleError(
                    f"the alerts of rule {rule.name} show a column {column}, which it does not read",
                    place=rule.place or place,
                    hint="it reads " + ", ".join(rule.columns),
                )
        for named in _listed(rule.alerts.get("to")):
            if named not in names:
                raise RuleError(
                    f"the rule {rule.name} is told to {named}, and no target has that name",
                    place=rule.place or place,
                    hint=did_you_mean(named, names) or ("the targets are " + ", ".join(names) if names else None),
                )
    return [_route(target, rule, key) for target in targets for rule in rules if _hears(target, rule)]


def equality_columns(rule: Rule) -> tuple[str, ...]:
    """The columns of the left row that must equal something of the right one."""
    equal = [p for p in rule.predicates if p.op is Op.EQ and len(p.rows) == 2]
    sides = [side for p in equal for side in p.columns if isinstance(side, Column) and side.row == "t"]
    return tuple(dict.fromkeys(side.name for side in sides))


def _hears(target: AlertOptions, rule: Rule) -> bool:
    severe = SEVERITIES.index(rule.severity) >= SEVERITIES.index(target.min_severity)
    named = not target.rules or any(is_named(rule.name, one) for one in target.rules)
    owned = not target.owners or rule.owner in target.owners
    to = _listed(rule.alerts.get("to"))
    return severe and named and owned and (not to or target.name in to)


def _listed(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []


def _route(target: AlertOptions, rule: Rule, key: Sequence[str]) -> Route:
    own = rule.alerts
    by = own.get("group_by", target.group_by)
    columns = () if by == "rule" else equality_columns(rule) if by == "equality" else tuple(_listed(by))
    if unread := sorted(set(columns) - set(rule.columns)):
        raise RuleError(
            f"the alerts of rule {rule.name} are grouped by {', '.join(unread)}, which the rule does not read",
            place=rule.place,
            hint="it reads " + ", ".join(rule.columns),
        )
    try:
        lasting = duration(str(own.get("for", target.for_)))
    except ValueError as error:
        raise RuleError(f"rule {rule.name}, alerts: `for`: {error}", place=rule.place) from None
    return Route(
        target=target.name,
        rule=rule.name,
        severity=rule.severity,
        options=target,
        by=columns,
        after=violations(own.get("after", target.after)),
        lasting=lasting,
        quiet=duration(target.quiet),
        suppressed=duration(target.suppress_for),
        update_every=duration(target.update_every),
        give_up_after=duration(target.give_up_after),
        shown=_shown(own.get("values", "none"), rule, target),
        keys=own.get("values", "none") != "none" and not set(key) & set(target.mask),
        expression=write_rule(rule),
        description=rule.description,
        owner=rule.owner,
        runbook=str(own["runbook"]) if "runbook" in own else None,
    )


def _shown(values: object, rule: Rule, target: AlertOptions) -> frozenset[str]:
    columns = set() if values in ("none", "keys") else set(rule.columns) if values == "all" else set(_listed(values))
    return frozenset(columns - set(target.mask))
