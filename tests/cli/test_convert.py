"""`weever convert`: every notation, to the terminal and to a file, there and back."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from tests.rules.test_schema import EXAMPLE
from weever_stream.cli.convert import convert
from weever_stream.errors import OutputError
from weever_stream.rules import read_rules, read_rules_text

app = typer.Typer()
app.command()(convert)

ZIP = {
    "paper": "¬{ t.zip = s.zip ∧ t.city ≠ s.city }",
    "desbordante": "!(t.zip == s.zip and t.city != s.city)",
    "holoclean": "t1&t2&EQ(t1.zip,t2.zip)&IQ(t1.city,t2.city)",
    "incdc": "[DC: t0.zip(String) == t1.zip(String)  t0.city(String) <> t1.city(String)  ]",
}


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(EXAMPLE)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=True)


@pytest.mark.parametrize("to", ZIP)
def test_rules_are_written_one_a_line_and_read_back(rules, tmp_path, to):
    target = tmp_path / "out.dc"
    assert run(rules, "--to", to, "--output", target).exit_code == 0
    assert target.read_text("utf-8").splitlines()[1] == ZIP[to]
    assert [rule.fingerprint for rule in read_rules(target).rules] == [
        rule.fingerprint for rule in read_rules(rules).rules
    ]


def test_a_rule_file_is_written_and_read_back(rules):
    seen = run(rules, "--to", "weever")
    again, first = read_rules_text(seen.stdout), read_rules(rules)
    assert (again.rules, again.key, again.columns, again.table) == (first.rules, first.key, first.columns, first.table)
    assert again.rules[3].description == first.rules[3].description


def test_sql_is_a_self_join_for_each_rule(rules):
    seen = run(rules, "--to", "sql")
    assert seen.stdout.split("\n\n")[1] == (
        "-- zip_determines_city\nSELECT t.*, s.* FROM packages t JOIN packages s "
        "ON t.package_code < s.package_code AND t.zip = s.zip AND t.city <> s.city;"
    )


def test_a_target_that_cannot_be_written_is_an_output_error(rules, tmp_path):
    assert isinstance(run(rules, "--to", "paper", "--output", tmp_path / "no" / "out").exception, OutputError)
