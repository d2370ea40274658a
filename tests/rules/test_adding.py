"""Rules put into files that people wrote.

Catches: a comment or a line that is lost, moved or written anew; a rule that is read back as another one; a name that
stands for two rules; a file that is half changed because nobody looked at what came out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from weever_stream.errors import RuleError
from weever_stream.rules import parse_rule, read_rules_text
from weever_stream.rules.adding import add_rule, snippet

RULE = replace(
    parse_rule("t.zip = s.zip and t.city != s.city", name="zip_determines_city"),
    severity="warning",
    description="Zip determines city: always.",
)
WRITTEN = [
    "# ours\ntable: t\nrules:\n  - name: one  # the first\n    fd: a -> b\n\n  # the end of rules\nkey: id # the key\n",
    "table: t\nrules:\n- {name: one, fd: a -> b}\n# last\n",
    "table: t\nkey: id\nrules:\n    - name: one\n      deny: >\n        t.a = s.a\n        and t.b != s.b\n\nsinks: []\n",
    "table: t\r\nrules:\r\n  - name: one\r\n    fd: a -> b\r\nkey: id\r\n",
    "table: t\nrules:\n  - name: one\n    fd: a -> b",
    "table: t\nrules: []  # none yet\nkey: id\n",
    "\ufefftable: t\nrules: []",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_only_the_lines_of_the_rule_are_new(text: str) -> None:
    new = add_rule(text, RULE)
    before, after = read_rules_text(text), read_rules_text(new)
    assert after.rules == (*before.rules, RULE)
    assert after.rules[-1].description == RULE.description
    assert after.key == before.key
    lines, there = new.splitlines(), [line.replace("rules: []", "rules:") for line in text.splitlines()]
    (at,) = [at for at, line in enumerate(lines) if line.strip() == "- name: zip_determines_city"]
    assert lines[:at] + lines[at + 4 :] == there, "the other lines are as they were"
    assert ("\r\n" in text) == ("\r\n" in new)
    assert "\r\n" not in text or new.count("\n") == new.count("\r\n")


def test_the_rule_stands_behind_the_last_one_and_before_what_follows() -> None:
    assert add_rule(WRITTEN[0], RULE).splitlines()[5:9] == snippet(RULE).splitlines()
    assert add_rule(WRITTEN[5], RULE).splitlines()[1] == "rules:  # none yet"


def test_a_second_rule_follows_the_first() -> None:
    other = parse_rule("t.a < s.a and t.b > s.b", name="rise")
    both = add_rule(add_rule(WRITTEN[5], RULE), other)
    assert [rule.name for rule in read_rules_text(both).rules] == ["zip_determines_city", "rise"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"table": "t", "rules": [{"name": "one", "fd": "a -> b"}]}', "line by line"),
        ("table: t\nrules: [{name: one, fd: a -> b}]\n", "line by line"),
        ("table: t\nrules:\n  - {name: zip_determines_city, fd: a -> b}\n", "another rule that is called"),
        ("table: t\nrules:\n  - {name: zip_determines_city, fd: 'a -> b, c'}\n", "another rule that is called"),
        ("table: t\nrules:\n  - {name: same, fd: zip -> city}\n", "it is called same"),
    ],
)
def test_what_cannot_be_changed_is_refused(text: str, said: str) -> None:
    with pytest.raises(RuleError, match=said):
        add_rule(text, RULE)


def test_names_that_need_quotes_come_back_as_they_were() -> None:
    odd = replace(parse_rule('t."a: b" = s."a: b" and t."1e5" != s."1e5"', name="yes"), description="# 'no'\n\"x\"")
    assert read_rules_text(add_rule(WRITTEN[1], odd)).rules[-1].description == odd.description
