"""`weever validate`: what it prints for a good file and a bad one, as text and as JSON."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.rules.test_schema import EXAMPLE
from weever_stream.cli import run as weever
from weever_stream.cli.validate import validate
from weever_stream.errors import RuleErrors, WeeverError

app = typer.Typer()
app.command()(validate)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "rules.yaml").write_text(EXAMPLE)
    (tmp_path / "bad.yaml").write_text(
        "table: x\nrules:\n  - {name: a, deny: t.a = s.a or t.b = 1}\n  - {name: b, deny: t.b}\n"
    )
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_good_file_is_shown_in_normal_form(folder):
    seen = run("rules.yaml")
    assert seen.exit_code == 0
    lines = [line.rstrip() for line in seen.stdout.splitlines()]
    assert [re.split("   +", line) for line in (lines[0], *lines[2:6])] == [
        ["rule", "severity", "reports", "denies"],
        ["package_code_is_unique", "error", "pairs", "t.package_code = s.package_code"],
        ["zip_determines_city", "error", "pairs", "t.zip = s.zip and t.city != s.city"],
        [
            "distance_is_symmetric",
            "critical",
            "pairs",
            "t.destination = s.origin and t.origin = s.destination and t.distance != s.distance",
        ],
        [
            "bigger_parcel_costs_more",
            "error",
            "ordered pairs",
            "t.distance = s.distance and t.postage > s.postage and t.volume < s.volume",
        ],
    ]
    assert lines[6:] == [
        "note: rule package_code_is_unique can never be violated: rows that agree on the key (package_code) are one row",
        "rules.yaml: 4 rules of table packages, all valid",
    ]


def test_a_good_file_as_json(folder):
    seen = run("rules.yaml", "--format", "json")
    assert seen.exit_code == 0
    outcome = json.loads(seen.stdout)
    assert outcome["valid"] is True
    assert outcome["rules"][1] == {
        "name": "zip_determines_city",
        "severity": "error",
        "deny": "t.zip = s.zip and t.city != s.city",
        "reports": "pairs",
        "fingerprint": "22156b22a77e1be3",
        "columns": ["city", "zip"],
    }
    assert len(outcome["notes"]) == 1


def test_all_errors_of_a_bad_file_are_raised(folder):
    seen = run("bad.yaml")
    assert isinstance(seen.exception, RuleErrors)
    assert len(seen.exception.errors) == 2


def test_all_errors_of_a_bad_file_as_json(folder):
    seen = run("bad.yaml", "--format", "json")
    assert seen.exit_code == 3
    outcome = json.loads(seen.stdout)
    assert outcome["valid"] is False
    assert [(error["rule"], error["line"], error["column"]) for error in outcome["errors"]] == [
        ("a", 3, 31),
        ("b", 4, 24),
    ]


def test_columns_and_types_are_checked_against_data(folder):
    (folder / "data.csv").write_text(
        "package_code,origin,destination,distance,volume,postge,zip,city\n1,a,b,2,3,4,5,c\n"
    )
    seen = run("rules.yaml", "--against", "data.csv")
    assert isinstance(seen.exception, WeeverError)
    assert "did you mean postge?" in seen.exception.render()


def test_the_json_schema_is_printed():
    seen = run("--schema")
    assert seen.stdout == files("weever_stream.rules").joinpath("schema.json").read_text("utf-8")


def test_a_missing_file_is_said_so():
    assert "weever validate rules.yaml" in str(run().exception)


@pytest.mark.parametrize(
    ("alerts", "rule", "said"),
    [
        ("[{kind: slack, webhok: '${env:HOOK}'}]", "", "webhok"),
        ("[{kind: log, quiet: never}]", "", "is no duration"),
        ("[{kind: log}]", ", alerts: {to: [nobody]}", "told to nobody"),
        ("[{kind: log}]", ", alerts: {for: banana}", "is no duration"),
        ("[{kind: pagerduty, routing_key: '${env:NOT_SET}'}]", ", alerts: {group_by: [street]}", "grouped by street"),
        ("[{kind: pagerduty, routing_key: '${env:NOT_SET}'}]", "", None),
    ],
)
def test_alerts_are_checked_without_their_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], alerts: str, rule: str, said: str | None
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"table: t\nkey: id\nrules:\n  - {{name: r, fd: a -> b{rule}}}\nalerts: {alerts}\n")
    assert weever(["validate", str(path)]) == (0 if said is None else 3)
    assert (said or "") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ('{kind: webhook, url: "http://hooks.internal/x"}', "add hooks.internal to `allow_hosts`"),
        ('{kind: webhook, url: "http://hooks.internal/${env:UNKNOWN}"}', "add hooks.internal to `allow_hosts`"),
        ('{kind: webhook, url: "https://10.1.2.3/x"}', "add 10.1.2.3 to `allow_hosts`"),
        ('{kind: alertmanager, url: "alertmanager:9093"}', "`allow_hosts`"),
        (
            "{kind: email, host: mail.internal, tls: none, sender: a@b.c, to: [a@b.c]}",
            "add mail.internal to `allow_hosts`",
        ),
    ],
)
def test_an_address_that_alerts_may_not_go_to_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, said: str
):
    """By `validate`, as by everything that looks at a job before it starts."""
    text = f"""
table: packages
key: id
source: {{kind: files, path: {tmp_path}}}
state: {{checkpoint: {tmp_path}/checkpoint}}
columns: {{id: bigint, zip: string, city: string}}
rules: [{{name: zips, fd: zip -> city}}]
alerts: [{target}]
"""
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert weever(["validate", str(path)]) == 3
    err = capsys.readouterr().err
    assert said in err
    assert ":8:" in err, "the place of the target"
    if "UNKNOWN" not in target:
        assert weever(["plan", str(path)]) == 3
        assert said in capsys.readouterr().out
        assert weever(["doctor", str(path)]) == 3
        found = capsys.readouterr()
        assert said in found.out + found.err
    path.write_text(
        text.replace(
            "alerts: [{", "alerts: [{allow_hosts: [hooks.internal, mail.internal, alertmanager, 10.1.2.3], "
        ).replace('"alert', '"http://alert')
    )
    assert weever(["validate", str(path)]) == 0
