"""Which learned rules are proposed, and which in force are said to be broken.

Catches: a rule proposed that says nothing new, or again after somebody said no; a rule in force called broken that the
learner could not have found; a note that a batch done twice changes, or that gives one name to two rules.
"""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weever_stream.errors import RuleError, StateError
from weever_stream.learn.events import RuleEvent, as_table, key_text, values_text
from weever_stream.learn.holding import Holding, Moment
from weever_stream.learn.proposals import Known, broken, follows, proposed
from weever_stream.rules import Rule, parse_rule

KNOWN = Known({"zip": True, "city": False, "state": False, "rate": True}, 4)
AT = [Moment(batch, f'{{"version":{batch}}}', "2026-03-01T00:00:00+00:00") for batch in range(5)]
ZIP_CITY, CITY_STATE = "t.zip = s.zip and t.city != s.city", "t.city = s.city and t.state != s.state"
RISE = "t.zip < s.zip and t.rate > s.rate"


def rule(deny: str, name: str = "rule") -> Rule:
    return parse_rule(deny, name=name)


def holding(*denials: str, at: Moment = AT[0]) -> Holding:
    rules = [(rule(deny, f"r{number}"), f"words {number}") for number, deny in enumerate(denials)]
    return Holding("t", "q", 0, ("zip", "city"), at).advanced(rules, 10, at)


def names(*given: object) -> list[str]:
    return [one.held.name for one in given]  # type: ignore[attr-defined]


def test_what_holds_and_is_not_in_force_is_proposed_best_first() -> None:
    now = holding("t.zip = s.zip and t.rate < s.rate and t.city = s.city", ZIP_CITY, CITY_STATE)
    in_force = [rule(CITY_STATE, "mine")]
    assert names(*proposed(now, in_force, KNOWN)) == ["r1", "r0"]
    assert names(*proposed(now, in_force, KNOWN, rejected={rule(ZIP_CITY).fingerprint})) == ["r0"]
    assert broken(now, in_force, KNOWN) == []


def test_what_rules_in_force_imply_is_not_proposed() -> None:
    weaker = "t.zip = s.zip and t.city != s.city and t.rate < s.rate"
    assert proposed(holding(ZIP_CITY), [rule(ZIP_CITY), rule(RISE)], KNOWN) == []
    assert proposed(holding(weaker, ZIP_CITY), [rule(ZIP_CITY)], KNOWN) == []


def test_what_remains_of_a_broken_rule_is_proposed_and_named() -> None:
    remains = "t.zip = s.zip and t.city != s.city and t.rate < s.rate"
    event = RuleEvent.of(
        "dropped", rule(ZIP_CITY, "zip_determines_city"), "zip determines city", pair=("1", "2", "{}", "{}")
    )
    now = holding(ZIP_CITY).advanced([(rule(remains, "refined"), "…")], 9, AT[1]).without([event])
    (one,) = broken(now, [rule(ZIP_CITY, "mine")], KNOWN)
    assert one.why is not None
    assert (one.rule.name, one.why.left_key, one.why.at.batch) == ("mine", "1", 1)
    assert [held.name for held in one.left] == ["refined"]
    assert names(*proposed(now, [rule(ZIP_CITY, "mine")], KNOWN)) == ["refined"]


@pytest.mark.parametrize(
    "deny",
    [
        "t.zip = s.zip and t.other != s.other",
        "t.zip = s.zip and t.city = 'Utrecht' and t.rate != s.rate",
        "t.city < s.city and t.rate > s.rate",
        "t.zip = s.rate and t.city != s.city",
        "t.zip > t.rate",
        "t.zip = s.zip and t.city = s.city and t.state = s.state and t.rate < s.rate and t.x = s.x",
    ],
)
def test_of_rules_that_are_not_looked_for_nothing_is_said(deny: str) -> None:
    assert broken(holding(), [rule(deny)], KNOWN) == []


COLUMNS = ("a", "b")
OPS = ("=", "!=", "<", "<=", ">", ">=")
OUTCOMES = {"=": "e", "!=": "lg", "<": "l", "<=": "le", ">": "g", ">=": "ge"}
said = st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(OPS), min_size=1)


def denied(ops: dict[str, str]) -> set[tuple[str, ...]]:
    """The outcomes of all comparisons, none among them, that a rule denies, both ways round."""
    pairs = {
        one for one in product("legn", repeat=2) if all(one[COLUMNS.index(c)] in OUTCOMES[op] for c, op in ops.items())
    }
    other = {"l": "g", "g": "l"}
    return pairs | {tuple(other.get(x, x) for x in one) for one in pairs}


@given(said, st.lists(said, max_size=4))
def test_what_is_called_implied_is_and_little_is_missed(ops: dict[str, str], others: list[dict[str, str]]) -> None:
    def made(one: dict[str, str]) -> Rule:
        return rule(" and ".join(f"t.{name} {op} s.{name}" for name, op in one.items()))

    try:
        one, rest = made(ops), [made(other) for other in others]
    except RuleError:
        return
    every: set[tuple[str, ...]] = set().union(*map(denied, others)) if others else set()
    assert follows(one, rest) is (denied(ops) <= every)


def test_a_batch_done_again_makes_the_same_note() -> None:
    before = holding(ZIP_CITY)
    rules = [(rule(ZIP_CITY, "other"), "words"), (rule(CITY_STATE, "r0"), "words")]
    event = RuleEvent.of("dropped", rule(RISE, "rise"), "they rise", pair=("1", None, "{}", None))
    after = before.advanced(rules, 12, AT[1]).without([event])
    assert after.advanced(rules, 12, AT[1]).without([event]) == after
    assert [(one.name, one.since.batch) for one in after.rules] == [("r0", 0), ("r0_2", 1)]
    assert Holding.of_json(after.to_json(), "here") == after


def test_a_rule_that_comes_back_is_new() -> None:
    gone = holding(ZIP_CITY).advanced([], 3, AT[1])
    gone = gone.without([RuleEvent.of("dropped", rule(ZIP_CITY, "r0"), "words 0")])
    back = gone.advanced([(rule(ZIP_CITY, "r0"), "words 0")], 3, AT[2]).without([])
    assert [one.since.batch for one in back.rules] == [2]
    assert back.ceased == ()


@pytest.mark.parametrize("harm", [{"format": 9}, {"rules": [{"name": "x"}]}, {"at": 3}])
def test_a_note_that_cannot_be_read_is_refused(harm: dict[str, object]) -> None:
    with pytest.raises(StateError, match="note"):
        Holding.of_json({**holding(ZIP_CITY).to_json(), **harm}, "here")


def test_events_write_keys_and_values_as_violations_do() -> None:
    from datetime import datetime, timezone
    from decimal import Decimal

    at = datetime(2024, 1, 2, tzinfo=timezone.utc)
    assert (key_text((7,)), key_text(("x", 1)), key_text(None)) == ("7", '["x",1]', None)
    values = {"b": Decimal("1.20"), "a": None, "c": float("nan"), "d": at}
    assert values_text(values, ("a", "b", "c", "d")) == '{"a":null,"b":"1.20","c":"NaN","d":"2024-01-02T00:00:00Z"}'
    table = as_table([RuleEvent.of("added", rule(ZIP_CITY, "x"), "zip determines city")])
    assert table.to_pylist()[0]["left_key"] is None
