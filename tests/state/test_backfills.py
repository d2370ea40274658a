"""Which rules are being backfilled, from the job's record and the shards' reports.

Catches: a rule that is gone, or complete, reported as pending for ever; one whose rows are not all here reported as done.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from weever_stream.rules import parse_rule
from weever_stream.state.backfills import pending_backfills
from weever_stream.state.noted import Generation, Noted, NotedRule
from weever_stream.state.revision import CHANGED, REBUILT, REMOVED

RULE = NotedRule.of(parse_rule("t.a = s.a", name="same_a"))
OTHER = NotedRule.of(parse_rule("t.b = s.b", name="same_b"))


@dataclass
class Shard:
    """What a shard reports."""

    filled: dict[int, int] = field(default_factory=dict)
    shown: set[int] = field(default_factory=set)


def noted(*generations: tuple[NotedRule, ...], fills: tuple[int, ...] = (2, 2)) -> Noted:
    made = [Generation(at, rules, fills if at else ()) for at, rules in enumerate(generations)]
    return Noted("t", "delta", ("id",), 2, "4.2", pa.schema([("id", pa.int64())]), tuple(made))


def ended(why: str) -> NotedRule:
    return replace(RULE, ended=why)


def test_rules_that_were_there_from_the_start_are_not_backfilled():
    assert pending_backfills(noted((RULE, OTHER)), {}) == {}


def test_a_new_rule_is_pending_until_every_shard_has_its_rows():
    job = noted((OTHER,), (RULE,))
    assert pending_backfills(job, {}) == {"same_a": 0.0}
    assert pending_backfills(job, {0: Shard({1: 2}), 1: Shard({1: 1})}) == {"same_a": 0.75}
    assert pending_backfills(job, {0: Shard({1: 2}), 1: Shard({1: 2})}) == {}


@pytest.mark.parametrize("why", [CHANGED, REBUILT])
def test_a_rule_that_was_closed_to_be_built_again_is_pending_at_once(why: str):
    assert pending_backfills(noted((ended(why), OTHER)), {}) == {"same_a": 0.0}


def test_a_rule_that_was_changed_and_then_removed_is_gone():
    full = {0: Shard({1: 2}), 1: Shard({1: 2})}
    assert pending_backfills(noted((ended(CHANGED), OTHER), (ended(REMOVED),)), full) == {}


def test_a_rule_that_takes_the_place_of_its_old_state_is_pending_until_every_shard_shows_it():
    job = noted((RULE,), (replace(RULE, replaces=0),))
    full = {0: Shard({1: 2}), 1: Shard({1: 2}, {1})}
    assert pending_backfills(job, full) == {"same_a": 1.0}
    full[0].shown.add(1)
    assert pending_backfills(job, full) == {}
