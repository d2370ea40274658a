"""docs/rules.md is true: every block of it is run.

`yaml` blocks are read as rule files, `rules` blocks line by line as rules, `wrong` blocks give a rule and the message it
must cause, `python` blocks are executed, and the `lark` block is the grammar itself.
"""

from __future__ import annotations

import doctest
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.rules.test_schema import SCHEMA
from weever_stream.errors import RuleError
from weever_stream.rules import build, parse_rule, read_rules_text, writing

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page() -> str:
    return (Path(__file__).parents[2] / "docs" / "rules.md").read_text("utf-8")


BLOCKS = [(match[1], match[2]) for match in BLOCK.finditer(page())]


def blocks(language: str) -> list[str]:
    found = [text for kind, text in BLOCKS if kind == language]
    assert found, f"no {language} block is left"
    return found


def test_every_block_is_of_a_kind_that_is_run():
    assert {kind for kind, _ in BLOCKS} == {"yaml", "rules", "wrong", "python", "lark"}


@pytest.mark.parametrize("text", blocks("yaml"))
def test_a_rule_file_is_valid(text):
    assert read_rules_text(text).rules
    jsonschema.validate(yaml.safe_load(text), SCHEMA)


@pytest.mark.parametrize("line", [line for text in blocks("rules") for line in text.splitlines()])
def test_a_rule_is_read(line):
    assert parse_rule(line).predicates


@pytest.mark.parametrize("text", blocks("wrong"))
def test_a_wrong_rule_causes_the_message(text):
    rule, _, message = text.partition("\n")
    with pytest.raises(RuleError) as caught:
        parse_rule(rule)
    assert caught.value.render().replace(", rule unnamed", "") == message.rstrip("\n")


@pytest.mark.parametrize("program", blocks("python"))
def test_a_program_runs(program):
    exec(program, {})


def test_the_notations_all_say_the_same():
    (notations,) = [text for text in blocks("rules") if "[DC:" in text]
    assert len({parse_rule(line).fingerprint for line in notations.splitlines()}) == 1


@pytest.mark.parametrize("module", [build, writing])
def test_the_examples_in_docstrings_are_true(module):
    outcome = doctest.testmod(module)
    assert outcome.attempted
    assert not outcome.failed


def test_the_grammar_is_printed_as_it_is():
    assert blocks("lark") == [files("weever_stream.rules").joinpath("grammar.lark").read_text("utf-8")]


def test_the_sugar_means_what_the_table_says():
    same = {
        "unique: [a, b]": "t.a = s.a and t.b = s.b",
        "fd: a, b -> c": "t.a = s.a and t.b = s.b and t.c != s.c",
        "order: a -> b within c": "t.c = s.c and t.a < s.a and t.b > s.b",
        "deny: t.y = s.y\n    filter: x = 1": "t.y = s.y and t.x = 1 and s.x = 1",
    }
    for sugar, deny in same.items():
        (rule,) = read_rules_text(f"table: x\nrules:\n  - name: a\n    {sugar}").rules
        assert rule == parse_rule(deny, name="a")
    assert all(sugar.partition("\n")[0] in page() for sugar in same if "deny" not in sugar)


def test_constants_in_the_table_are_read():
    (table,) = re.findall(r"^Constants:\n\n(.*?)\n\n", page(), re.MULTILINE | re.DOTALL)
    constants = [code for row in table.splitlines()[2:] for code in re.findall(r"`([^`]+)`", row.split("|")[2])]
    assert len(constants) > 12
    for constant in constants:
        parse_rule(f"t.x = {constant}")
