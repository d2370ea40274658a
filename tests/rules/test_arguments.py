"""Rules as arguments. Catches: an entry point that takes another set of forms than its neighbours, a rule that a form
loses or renames, a path that is read as an expression or the other way round."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weever_stream import Detector, discover, fd, parse_rule, read_rules, unique
from weever_stream.check import check
from weever_stream.errors import DataError, DetectorError, RuleError, RuleErrors
from weever_stream.learn import ErrorWatch, Learner
from weever_stream.rules import as_rule_file, write_sql

TEXT = "t.zip = s.zip and t.city != s.city"
FILE = f"table: cities\nkey: id\nrules:\n  - name: zip_city\n    deny: {TEXT}\n"
TABLE = pa.table({"id": [1, 2, 3, 4], "zip": ["8001", "8001", "1", "1"], "city": ["Rome", "Lima", "Bonn", "Bonn"]})
FORMS: dict[str, Callable[[Path], Any]] = {
    "an expression": lambda folder: TEXT,
    "a rule": lambda folder: parse_rule(TEXT),
    "the rules of fd": lambda folder: fd("zip", "city"),
    "a list of expressions": lambda folder: [TEXT],
    "a tuple of rules": lambda folder: (parse_rule(TEXT),),
    "a list with what fd returns": lambda folder: [fd("zip", "city")],
    "an iterator": lambda folder: iter([parse_rule(TEXT)]),
    "a path": lambda folder: folder / "rules.yaml",
    "a path as text": lambda folder: str(folder / "rules.yaml"),
    "a path with an operator in it": lambda folder: str(folder / "env=test" / "a & b.yaml"),
    "a listing": lambda folder: folder / "rules.txt",
    "a rule file": lambda folder: read_rules(folder / "rules.yaml"),
    "a discovery": lambda folder: discover(TABLE.slice(1), columns=["zip", "city"], cross=False, max_predicates=2),
    "what discover found": lambda folder: list(discover(TABLE.slice(1), columns=["zip", "city"], cross=False).rules),
}
ENTRIES: dict[str, Callable[[Any], list[str]]] = {
    "Detector": lambda rules: _violated(Detector(rules, key="id")),
    "check": lambda rules: [one.rule.fingerprint for one in check(rules, TABLE, key="id").results if one.violations],
    "ErrorWatch": lambda rules: _left(ErrorWatch(rules, TABLE, key="id", error=0.0)),
    "Learner": lambda rules: _looked_at(Learner(TABLE, key="id", rules=rules)),
}


def _violated(detector: Detector) -> list[str]:
    detector.insert(TABLE)
    return [rule.fingerprint for rule in detector.rules if detector.count(rule)]


def _left(watch: ErrorWatch) -> list[str]:
    return [rule.fingerprint for rule in watch.rules if rule not in watch.holding]


def _looked_at(learner: Learner) -> list[str]:
    assert {(one.left.name, one.right.name) for one in learner.comparisons} == {("zip", "zip"), ("city", "city")}
    return [parse_rule(TEXT).fingerprint]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rules")
    (made / "env=test").mkdir()
    for name in ("rules.yaml", "env=test/a & b.yaml"):
        (made / name).write_text(FILE)
    (made / "rules.txt").write_text(TEXT + "\n")
    return made


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("form", FORMS)
def test_every_entry_point_takes_every_form(folder: Path, form: str, entry: str):
    assert parse_rule(TEXT).fingerprint in ENTRIES[entry](FORMS[form](folder))


def test_expressions_are_named_by_their_place_and_rules_keep_their_names():
    rules = as_rule_file([unique("id", name="ids"), "t.a = s.a", fd("zip", ["city", "state"], name="zip"), "t.b > 1"])
    assert [rule.name for rule in rules.rules] == ["ids", "rule_2", "zip.city", "zip.state", "rule_5"]


@pytest.mark.parametrize(
    "notation",
    [
        "¬{ t.a = s.a ∧ t.b ≠ s.b }",
        "!(t.a == s.a and t.b != s.b)",
        "NOT(t1.a = t2.a AND t1.b <> t2.b)",
        "t1&t2&EQ(t1.a,t2.a)&IQ(t1.b,t2.b)",
        "[DC: t0.a(String) == t1.a(String)  t0.b(String) <> t1.b(String)  ]",
        "t.a = s.a and t.b != s.b" + " " * 5000,
    ],
)
def test_a_single_text_may_be_in_any_notation(notation: str):
    assert as_rule_file(notation).rules[0].fingerprint == parse_rule("t.a = s.a and t.b != s.b").fingerprint


@pytest.mark.parametrize("path", ["missing.yaml", "a=b/missing.yaml", "no such file", "missing.txt"])
def test_a_path_that_is_missing_is_an_error_about_the_file(path: str):
    with pytest.raises(RuleError, match="cannot be read"):
        as_rule_file(path)


@pytest.mark.parametrize("given", [None, 7, b"t.a = s.a", [None], [Path("rules.yaml")], {"name": TEXT}, [[TEXT, 7]]])
def test_other_things_are_refused_with_the_forms_there_are(given: Any):
    for entry in (Detector, lambda rules: check(rules, TABLE)):
        with pytest.raises(RuleError, match="is not a rule") as raised:
            entry(given)
        assert "path of a rule file" in str(raised.value.hint)


def test_two_rules_of_one_name_are_refused_everywhere():
    rules = [parse_rule("t.zip = s.zip", name="same"), parse_rule("t.city = s.city", name="same")]
    for entry in ENTRIES.values():
        with pytest.raises(RuleError, match="more than one rule is named same"):
            entry(rules)


@pytest.mark.parametrize("key", ["id", ["id"], ("id",)])
def test_a_key_is_one_name_or_several(key: Any):
    assert check(TEXT, TABLE, key=key).to_arrow()["left_key"].to_pylist() == ["1"]


def test_a_rule_file_in_a_list_is_refused(folder: Path) -> None:
    file = read_rules(folder / "rules.yaml")
    for entry in ENTRIES.values():
        with pytest.raises(RuleError, match="its key and columns would be lost"):
            entry([file, "t.id = s.id"])


def test_a_rule_file_gives_its_key_and_types_to_every_entry_point(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(FILE.replace("rules:", "columns: {zip: bigint}\nrules:"))
    texts = TABLE.set_column(1, "zip", pa.array(["8001", "08001", "1", "01"]))
    detector = Detector(path)
    assert len(detector.insert(texts).added) == 1
    assert check(path, texts).results[0].violations == 1
    watch = ErrorWatch(path, texts, error=0.0)
    assert watch.violations("zip_city") == 1
    learner = Learner(texts, rules=path)
    assert learner.key == ("id",)
    assert learner.table()["zip"].to_pylist() == [8001, 8001, 1, 1]
    for one in (detector, watch, learner):
        one.dump(tmp_path / "dump")
        again: Any = Detector.load(tmp_path / "dump", path) if one is detector else type(one).load(tmp_path / "dump")
        for kept in (one, again):
            kept.upsert(texts.slice(3).set_column(0, "id", pa.array([9])))
            assert len(kept) == 5


def test_one_text_is_one_column_everywhere() -> None:
    assert discover(TABLE, key="id").key == ("id",)
    assert discover(TABLE, columns="zip").columns == ("zip",)
    assert Learner(TABLE, key="id", columns="zip").columns == ("zip",)
    assert len(ErrorWatch.discover(TABLE, "id", columns="zip")) == 4
    assert write_sql(unique("zip"), key="id") == write_sql(unique("zip"), key=["id"])


def test_a_rule_is_asked_for_by_name_or_as_itself() -> None:
    detector = Detector([*fd("zip", "city", name="one"), *fd("city", "zip", name="other")], key="id")
    detector.insert(TABLE)
    assert [detector.count(rule) for rule in ("one", detector.rules[0], fd("zip", "city"), fd("city", "zip"))] == [
        1,
        1,
        1,
        0,
    ]
    assert detector.count(fd("city", "zip", name="one")) == 0
    for wrong in (fd("zip", ["city", "id"]), 7, unique("zip", name="one")):
        with pytest.raises(DetectorError):
            detector.count(wrong)  # type: ignore[arg-type]


def test_rows_as_dicts_are_data_everywhere() -> None:
    rows = TABLE.to_pylist()
    assert check(TEXT, rows, key="id").results[0].violations == 1
    assert [one.rule.fingerprint for one in discover(rows).rules] == [
        one.rule.fingerprint for one in discover(TABLE).rules
    ]
    with pytest.raises(DataError, match="row 2 has no column city"):
        check(TEXT, [rows[0], {"id": 2, "zip": "1"}])
    with pytest.raises(RuleErrors, match="there is no column zip"):
        check(TEXT, [{"id": 1}])


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(FILE.replace("rules:", "columns: {zip: bigint}\nrules:"))
    twice = pa.Table.from_arrays([*TABLE.columns, TABLE["zip"]], [*TABLE.column_names, "zip"])
    entries: list[Callable[[Any], Any]] = [
        lambda data: Detector(path).insert(data),
        lambda data: Learner(data, rules=path),
        lambda data: check(path, data),
        lambda data: discover(data),
    ]
    for data in (twice, twice.to_pandas()):
        for entry in entries:
            with pytest.raises(DataError):
                entry(data)
