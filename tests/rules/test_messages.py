"""What a wrong rule or a wrong file makes a user see: the exact text, with its caret and hint."""

from __future__ import annotations

import pytest

from tests.rules.golden import GOLDEN, check_golden
from weever_stream.errors import RuleError
from weever_stream.rules import ColumnType, bind, parse_rule, read_rules, type_of_name
from weever_stream.rules.mistakes import MISTAKES

WRONG_RULES = [
    "",
    "   ",
    "t.a",
    "t.a <",
    "t.a = s.a and",
    "and t.a = s.a",
    "a = s.a",
    "t.a = b",
    "t1.a = t2.a",
    "T.a = s.a",
    "t.a = u.a",
    "not(t1.a = s.a)",
    "not(t.a = s.a",
    "¬{ t.a = s.a )",
    "t.a = s.a = t.b",
    "t.a ! s.a",
    "t.a = 1e5000",
    "t.a = 12abc",
    "t.a = date '2024-13-01'",
    "t.a = date '2024-1-1'",
    "t.a = timestamp '2024-01-01 24:00:00Z'",
    "t.a = timestamp '2016-12-31 23:59:60Z'",
    "t.a = timestamp '2024-01-01 10:00:00.1234567Z'",
    "t.a = timestamp_ntz '2024-01-01 10:00:00Z'",
    "t.a = time '25:00'",
    "t.a = double 'x'",
    "t.a = double '-1e400'",
    "1 = 1",
    "1 = 2",
    "t.a = t.a",
    "t.a <= t.a and t.b = s.b",
    "t.a < t.a",
    "t.a < s.a and t.a > s.a",
    "t.a = s.a and s.a != t.a",
    "t.x = 5 and t.x = 6",
    "t.x > 5 and t.x < 3",
    "t.x > 5 and t.x <= 5.0",
    "t.x = 'a' and t.x != 'a'",
    "t.x > double 'NaN' and t.x < 1",
    "t.open = true and t.open = false",
    "t1&t2&EQ(t1.a,t2.a)&XX(t1.b,t2.b)",
    "t1&t2&EQ(t1.a t2.a)",
    "t1&t2&EQ(t1.a,t2.a",
    "t1&t2&",
    "t1&t2&EQ(t1.a,t3.a)",
    "[DC: t0.a(String) == t1.a(String)",
    "[DC: t0.a(String) t1.a(String) ]",
    "[DC: t0.a == t1.a ]",
    "[DC: t0.a(String) == date '9' ]",
    "[DC: ]",
    "t.a = s.a\n  and t.b ~ s.b",
    "t.a = '\ud800'",
]


def rendered(call) -> str:
    with pytest.raises(RuleError) as caught:
        call()
    return caught.value.render()


def test_every_wrong_rule_is_explained_word_for_word():
    seen = []
    for text in WRONG_RULES + [mistake.example for mistake in MISTAKES]:
        message = rendered(lambda text=text: parse_rule(text, name="r"))
        seen.append(f">>> {text!r}\n{message}\n")
    check_golden("rules.txt", "\n".join(seen))


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.example for mistake in MISTAKES])
def test_a_common_mistake_gets_its_hint(mistake):
    with pytest.raises(RuleError) as caught:
        parse_rule(mistake.example)
    assert caught.value.hint == mistake.hint


WRONG_FILTERS = ["s.a = 1", "a", "a = 1 or b = 2", 'a = "x"', "a > 5 and a < 3", "", "a = a", "t1.a = 2"]


def test_every_wrong_filter_is_explained_word_for_word():
    seen = []
    for text in WRONG_FILTERS:
        message = rendered(lambda text=text: parse_rule("t.b = s.b", name="r", filter=text))
        seen.append(f">>> {text!r}\n{message}\n")
    check_golden("filters.txt", "\n".join(seen))


SCHEMA = {
    **{
        name: type_of_name(name)
        for name in ("string", "int", "uint64", "double", "boolean", "date", "time", "timestamp", "timestamp_ntz")
    },
    "decimal": type_of_name("decimal(38,10)"),
    "duration": ColumnType("duration"),
    "order date": type_of_name("date"),
    "City": type_of_name("string"),
    "cafe\u0301": type_of_name("string"),
    "address": "struct<street: string, zip: int32>",
    "tags": "list<item: string>",
    "blob": "binary",
}
WRONG_TYPES = [
    "t.strin = s.string",
    "t.city = s.City",
    "t.café = s.string",
    't.string = s."order dat"',
    "t.xyzzy = s.string",
    "t.string = s.int",
    "t.string > 5",
    "t.string = true",
    "t.int = 'abc'",
    "t.int = true",
    "t.boolean = 1",
    "t.double = '1.5'",
    "t.double < 1e399",
    "t.decimal < 1e100",
    "t.int < 1e100",
    "t.address = s.address",
    "t.tags = s.tags",
    "t.blob = 'x'",
    "t.timestamp < s.timestamp_ntz",
    "t.date < s.timestamp",
    "t.time < s.date",
    "t.timestamp > '2024-01-01'",
    "t.timestamp > '2024-01-01 10:00:00'",
    "t.timestamp > date '2024-01-01'",
    "t.timestamp_ntz > '2024-01-01 10:00:00Z'",
    "t.date > '2024-1-1'",
    "t.date > 'yesterday'",
    "t.date > 20240101",
    "t.time > '10'",
    "t.duration > '1 hour'",
    "t.duration > 5",
    "t.string = s.string and t.string != t.int",
    "t.int = s.int and s.int = 5 and t.int = 6",
    "t.int = t.uint64 and t.uint64 = s.int and t.int < s.int",
    't.date = t."order date" and t.date < t.timestamp_ntz and t."order date" > t.timestamp_ntz',
    "t.double > 0.3 and t.double <= 0.30000000000000001",
    "t.date = '2024-01-31' and t.date > timestamp_ntz '2024-01-31 00:00:00'",
]


def test_every_wrong_column_or_type_is_explained_word_for_word():
    seen = []
    for text in WRONG_TYPES:
        rule = parse_rule(text, name="r")
        seen.append(f">>> {text!r}\n{rendered(lambda rule=rule: bind(rule, SCHEMA))}\n")
    check_golden("types.txt", "\n".join(seen))


WRONG_FILES = sorted(path.name for pattern in ("*.yaml", "*.dc") for path in GOLDEN.glob(pattern))


@pytest.mark.parametrize("name", WRONG_FILES)
def test_every_wrong_file_is_explained_word_for_word(name, monkeypatch):
    monkeypatch.chdir(GOLDEN)
    check_golden(f"{name}.txt", rendered(lambda: read_rules(name)) + "\n")
