"""Normal forms: pairs of lines in normal_forms.txt, and what makes two rules one."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from weever_stream.errors import RuleError
from weever_stream.rules import Column, Constant, Op, Predicate, fd, make_rule, order, parse_rule, unique, write_rule
from weever_stream.rules.literals import normalized

LINES = [
    line
    for line in (Path(__file__).parent / "normal_forms.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]
PAIRS = list(zip(LINES[::2], LINES[1::2], strict=True))


@pytest.mark.parametrize(("written", "normal"), PAIRS, ids=[written for written, _ in PAIRS])
def test_a_rule_has_this_normal_form(written, normal):
    rule = parse_rule(written)
    assert write_rule(rule) == normal
    assert parse_rule(normal) == rule


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t.a = s.b and t.b = s.a and t.c != s.c", "s.a = t.b and s.b = t.a and s.c <> t.c"),
        ("t.a < s.a and t.b > s.b", "t.a > s.a and t.b < s.b"),
        ("t.a > 1", "s.a > 1.0"),
        ("t.a = 1 and s.b = 2", "s.a = 1 and t.b = 2"),
        ("t.a <= s.a and t.a != s.a", "t.a < s.a"),
    ],
)
def test_the_fingerprint_is_that_of_the_normal_form(one, other):
    assert parse_rule(one).fingerprint == parse_rule(other).fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("t.a = 1", "t.a = true"),
        ("t.a = 1", "t.a = '1'"),
        ("t.a < s.a", "t.a <= s.a"),
        ("t.a = s.b", "t.a = s.a"),
        ("t.a = date '2024-01-31'", "t.a = '2024-01-31'"),
        # These deny the same pairs of most tables, but not of all: the columns' types decide.
        ("t.a > 5 and t.a > 3", "t.a > 5"),
        ("t.a = t.b and t.b = s.a and t.a <= s.a", "t.a = t.b and t.b = s.a"),
    ],
)
def test_rules_that_differ_have_different_fingerprints(one, other):
    assert parse_rule(one).fingerprint != parse_rule(other).fingerprint


def test_fingerprints_are_stable_across_releases():
    # State that is kept between releases is found by these: a change here orphans it.
    assert parse_rule("t.zip = s.zip and t.city != s.city").fingerprint == "22156b22a77e1be3"
    assert parse_rule("t.a > 1.5 and t.note = 'x'").fingerprint == "e345a167f0b600d6"


@pytest.mark.parametrize(
    ("text", "symmetric"),
    [
        ("t.a = s.a", True),
        ("t.a = s.b and t.b = s.a and t.c != s.c", True),
        ("t.a = s.a and t.x > 5 and s.x > 5", True),
        ("t.a = s.b", False),
        ("t.a < s.a", False),
        ("t.a = s.a and t.x > 5", False),
        ("t.a > 5", False),
    ],
)
def test_a_rule_is_symmetric_if_exchanging_its_rows_changes_nothing(text, symmetric):
    assert parse_rule(text).symmetric is symmetric


def test_the_row_called_t_stays_t():
    rule = parse_rule("s.volume > t.volume and t.postage > s.postage")
    assert write_rule(rule) == "t.postage > s.postage and t.volume < s.volume"


def test_unique_demands_that_some_column_differs():
    assert write_rule(unique(["b", "a"])) == "t.a = s.a and t.b = s.b"


def test_a_dependency_gives_one_rule_for_each_dependent():
    city, state = fd(["zip", "country"], ["city", "state"], name="zip")
    assert (city.name, state.name) == ("zip.city", "zip.state")
    assert write_rule(state) == "t.country = s.country and t.zip = s.zip and t.state != s.state"
    assert [rule.name for rule in fd("zip", "city", name="zip")] == ["zip"]


def test_an_order_forbids_one_column_to_fall_while_the_other_rises():
    (rule,) = order("salary", "rate", within=["state"])
    assert write_rule(rule) == "t.state = s.state and t.rate > s.rate and t.salary < s.salary"


def test_a_filter_holds_for_every_row_that_the_rule_names():
    pairs = parse_rule("t.zip = s.zip", filter="country = 'US' and price > t.cost")
    assert write_rule(pairs) == (
        "t.zip = s.zip and t.cost < t.price and t.country = 'US' and s.cost < s.price and s.country = 'US'"
    )
    assert pairs.symmetric
    assert write_rule(parse_rule("t.a > 5", filter="b = 1")) == "t.a > 5 and t.b = 1"


def test_sugar_and_deny_give_the_same_rule():
    assert fd("zip", "city", name="x") == (parse_rule("t.city != s.city and s.zip = t.zip", name="x"),)


@pytest.mark.parametrize(
    "call",
    [lambda: fd("a", "a"), lambda: unique(["a", "a"]), lambda: unique([]), lambda: order("a", "b", within=["b"])],
)
def test_sugar_that_says_nothing_is_refused(call):
    with pytest.raises(RuleError):
        call()


def test_an_unknown_severity_is_refused():
    with pytest.raises(RuleError, match="fatal"):
        parse_rule("t.a = s.a", severity="fatal")


@pytest.mark.parametrize(
    "number", ["1." + "0" * 20_000, "0" * 20_000 + "1", "1" * 20_000, f"double '{'1' * 20_000}'", f"double '{'1' * 20_000}x'"],
    ids=["zeros after", "zeros before", "digits", "double", "not a number"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["t.a = {}", "t1&EQ(t1.a,{})", "[DC: t0.a(Double) == {}]"])
def test_the_length_of_a_number_is_bounded_before_it_is_read(number, form):
    with pytest.raises(RuleError, match=r"the number is 20,\d\d\d characters long; 1,000 are the limit") as caught:
        parse_rule(form.format(number))
    assert caught.value.place.column > 1


@pytest.mark.parametrize("digits", ["1e5000", "-1e5000", "1e-5000", "1." + "3" * 2000, 10], ids=lambda it: str(it)[:9])
def test_a_number_that_no_rule_can_write_is_refused_in_python_too(digits):
    value = Decimal(digits) if isinstance(digits, str) else digits**5000
    with pytest.raises(RuleError, match="too large, too small or too long"):
        make_rule("r", [Predicate(Column("t", "a"), Op.GT, Constant(value))])


def test_zeros_around_a_number_do_not_count():
    same = [Decimal("1.5"), Decimal("1.5" + "0" * 990), Decimal("000000001.5"), Decimal("15e-1")]
    assert {normalized(value) for value in same} == {Decimal("1.5")}
    assert str(normalized(same[1])) == "1.5"
    assert normalized(10**80) == normalized(Decimal("1e80"))
    assert type(normalized(10**80)) is type(normalized(Decimal("1e80")))
    assert (normalized(Decimal("-0.000")), normalized(Decimal("1200"))) == (0, 1200)
