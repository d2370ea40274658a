"""`discover` and `weever discover`: what comes out is a rule file that `check` finds no fault with.

Catches a rule that is found and does not hold, a file that cannot be read back, a column that is passed over in
silence, and exit codes.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pytest

from tests.discover.tables import dirty
from tests.discover.test_examples import RECORDS
from weever_stream import discover as called_by_the_package
from weever_stream.check import check
from weever_stream.cli import run
from weever_stream.discover import discover
from weever_stream.errors import DataError
from weever_stream.rules import read_rules


@pytest.fixture
def tax(tmp_path: Path) -> Path:
    path = tmp_path / "tax.csv"
    path.write_text(RECORDS)
    return path


def test_every_rule_found_is_read_back_and_has_no_violation(tax: Path, tmp_path: Path) -> None:
    columns = ["name", "num", "st", "zip", "sal", "rate", "stx", "ctx"]
    found = called_by_the_package(tax, top=None, max_predicates=2, columns=columns)
    file = tmp_path / "rules.yaml"
    found.write(file)
    rules = read_rules(file)
    assert len(rules.rules) == len(found.rules) == found.total > 20
    report = check(rules, tax, mode="count")
    assert sum(result.violations for result in report.results) == 0
    assert [one.rule.fingerprint for one in found.rules] == [rule.fingerprint for rule in rules.rules]


def test_the_command_writes_rules_that_check_accepts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = dirty()
    clean = table.filter(pc.less(table["city"], 99))
    csv.write_csv(clean, "pay.csv")
    assert run(["discover", "pay.csv", "-o", "rules.yaml", "--seconds", "0"]) == 0
    told = capfd.readouterr().out
    assert "zip determines city" in told
    assert run(["validate", "rules.yaml"]) == 0
    assert run(["check", "rules.yaml", "pay.csv", "--mode", "count"]) == 0
    capfd.readouterr()
    assert run(["discover", "pay.csv", "--format", "json", "--columns", "zip,city"]) == 0
    as_json = json.loads(capfd.readouterr().out)
    assert as_json["exact"] is True
    assert as_json["columns"] == ["zip", "city"]
    assert {"t.zip = s.zip and t.city != s.city"} <= {one["deny"] for one in as_json["rules"]}


def test_what_cannot_be_read_is_said(tmp_path: Path, tax: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["discover", str(tmp_path / "nothing.csv")]) == 3
    assert run(["discover", str(tax), "--columns", "zap"]) == 3
    assert "there is no column zap" in capfd.readouterr().err
    with pytest.raises(DataError, match="no share"):
        discover(tax, error=1.5)


def test_what_was_left_out_is_said() -> None:
    table = pa.table({"a": [1, 2, 3], "empty": pa.nulls(3, pa.int64()), "list": [[1], [2], [3]], "one": [1, 1, 1]})
    found = discover(table, top=None)
    assert any("empty was left out: it has no value" in note for note in found.notes)
    assert any("list was left out" in note for note in found.notes)
    assert {one.words for one in found.rules} >= {"a is unique", "one is the same in all rows"}
    assert "rules are about two" in discover(table.slice(0, 1)).notes[0]
