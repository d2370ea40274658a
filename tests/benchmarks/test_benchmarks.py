"""The benchmarks measure the right thing: every system finds the reference pairs on small tables."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import duck, learn
from benchmarks.baseline import Stream
from benchmarks.results import Line
from benchmarks.twenty import TWENTY, rule_file
from benchmarks.workloads import RULES, deletes, generate, reference
from weever_stream.check import check
from weever_stream.detect.detector import Detector
from weever_stream.rules import parse_rule, read_rules

ROWS, BATCH = 10_000, 2_500


@pytest.fixture(scope="module")
def tables():
    dirty = {rule.table: rule.dirty for rule in RULES.values()}
    return {name: pa.table(generate(name, ROWS, share)) for name, share in dirty.items()}


@pytest.mark.parametrize("name", RULES)
def test_the_detector_finds_the_reference_pairs_before_and_after_deletes(name, tables):
    rule = RULES[name]
    detector = Detector([parse_rule(rule.deny, name=name)], key="id")
    table = tables[rule.table]
    found = sum(len(detector.insert(table.slice(start, BATCH)).added) for start in range(0, ROWS, BATCH))
    detector.delete(deletes(ROWS).tolist())
    assert reference(name, ROWS) == (rule.ordered(found), rule.ordered(detector.count(name)))


@pytest.mark.parametrize("name", RULES)
def test_check_counts_the_reference_pairs(name, tables):
    rule = RULES[name]
    report = check(parse_rule(rule.deny, name=name), tables[rule.table], mode="count", key=["id"])
    assert rule.ordered(report.results[0].violations) == reference(name, ROWS).pairs


@pytest.mark.parametrize("name", RULES)
def test_the_baseline_finds_the_reference_pairs(name, tables):
    rule = RULES[name]
    stream = Stream(rule, {column: tables[rule.table][column].to_numpy() for column in rule.columns})
    stream.seconds(BATCH)
    assert stream.pairs == reference(name, ROWS).pairs


def test_a_workload_is_symmetric_where_the_parsed_rule_is():
    for name, rule in RULES.items():
        assert rule.symmetric == parse_rule(rule.deny, name=name).symmetric
        assert rule.reported(rule.ordered(7)) == 7


def test_the_twenty_rules_are_twenty_and_agree_in_both_engines(tables, tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(rule_file())
    rules = read_rules(path)
    assert len(rules.rules) == len(TWENTY) == 20
    table = tables["tax"].slice(0, 5000)
    detector = Detector(rules)
    for start in range(0, 5000, 1000):
        detector.insert(table.slice(start, 1000))
    counted = {result.rule.name: result.violations for result in check(rules, table, mode="count").results}
    assert counted == {name: detector.count(name) for name in TWENTY}
    assert any(counted.values())


@pytest.mark.parametrize("name", RULES)
def test_duckdb_is_asked_the_same_question(name, tables, tmp_path, capsys):
    rule, data = RULES[name], tmp_path / "rows.parquet"
    pq.write_table(tables[rule.table].slice(0, 3000), data)
    expected = check(parse_rule(rule.deny, name=name), str(data), mode="count", key=["id"]).results[0].violations
    ask = {
        "rule": name, "predicates": rule.predicates, "columns": rule.columns, "symmetric": rule.symmetric,
        "data": str(data), "threads": 1, "output": str(tmp_path / "out"), "loop": "state" if name == "phi10" else None,
    }  # fmt: skip
    for content in ("same", "plain"):
        duck.main(json.loads(json.dumps({**ask, "content": content})))
        assert int(capsys.readouterr().out) == expected


def test_a_line_tells_by_how_much_a_target_is_missed():
    assert Line("", "x", 2.0, 1.9).verdict == "pass"
    assert Line("", "x", 2.0, 3.0).verdict == "miss by 1.50x"
    assert Line("", "x", 5.0, 2.5, at_most=False).verdict == "miss by 2.00x"
    assert Line("", "x", None, 2.5).verdict == ""


@pytest.mark.slow
def test_the_learner_has_the_rules_of_discovery_where_it_is_measured():
    added = learn.tax(3000, 0.1)
    assert (added["differ"], added["added"]) == (0, 300)
    assert added["rules"] > 20
    gone = learn.deletes(3000)
    assert (gone["differ"], gone["each"]) == (0, 30)
    assert [line.passed for line in learn.tax_lines([added, gone]) if line.unit == "rules"] == [True, True]
