"""Rule files: the example of the manual, every field, the traps of YAML, hostile files, ten thousand rules."""

from __future__ import annotations

import pickle
import time

import pytest
import yaml

from tests.rules.test_schema import EXAMPLE
from weever_stream.errors import RuleError, RuleErrors
from weever_stream.rules import ColumnType, Secret, nodes, parse_rule, read_rules, read_rules_text, write_rule
from weever_stream.rules.nodes import MAX_ALIASES, MAX_BYTES, MAX_DEPTH


def rules_of(items: str, head: str = "table: x") -> dict[str, str]:
    return {rule.name: write_rule(rule) for rule in read_rules_text(f"{head}\nrules:\n{items}").rules}


def test_the_example_reads_as_it_is_meant(tmp_path):
    path = tmp_path / "packages.yaml"
    path.write_text(EXAMPLE)
    file = read_rules(path)
    assert (file.table, file.key, file.path) == ("packages", ("package_code",), str(path))
    assert file.columns == {"zip": ColumnType("string")}
    assert file.source == {"kind": "delta", "path": "/lake/packages"}
    assert file.state == {"checkpoint": "/lake/_checkpoints/packages", "shards": 16}
    assert [(rule.name, rule.severity) for rule in file.rules] == [
        ("package_code_is_unique", "error"),
        ("zip_determines_city", "error"),
        ("distance_is_symmetric", "critical"),
        ("bigger_parcel_costs_more", "error"),
    ]
    assert file.rules[3].description == "Of two parcels that travel equally far the smaller one must not cost more."
    assert file.notes == (
        "rule package_code_is_unique can never be violated: rows that agree on the key (package_code) are one row",
    )


def test_every_form_of_sugar():
    assert rules_of(
        """
  - {name: a, unique: [x, order date]}
  - {name: b, unique: "x, `order date`, y"}
  - {name: c, fd: 'zip, "the country" -> city, state'}
  - {name: d, fd: {determinants: zip, dependents: [county]}}
  - {name: e, order: "salary → rate within state, city"}
  - {name: f, order: {by: salary, of: [rate, tax], within: state}}
  - {name: g, order: a -> b}
  - {name: h, fd: order -> within}
"""
    ) == {
        "a": 't."order date" = s."order date" and t.x = s.x',
        "b": 't."order date" = s."order date" and t.x = s.x and t.y = s.y',
        "c.city": 't."the country" = s."the country" and t.zip = s.zip and t.city != s.city',
        "c.state": 't."the country" = s."the country" and t.zip = s.zip and t.state != s.state',
        "d": "t.zip = s.zip and t.county != s.county",
        "e": "t.city = s.city and t.state = s.state and t.rate > s.rate and t.salary < s.salary",
        "f.rate": "t.state = s.state and t.rate > s.rate and t.salary < s.salary",
        "f.tax": "t.state = s.state and t.salary < s.salary and t.tax > s.tax",
        "g": "t.a < s.a and t.b > s.b",
        "h": "t.order = s.order and t.within != s.within",
    }


def test_yaml_words_stay_words_where_text_is_meant():
    file = read_rules_text(
        "table: on\nkey: [no, 012]\nrules:\n  - {name: yes, unique: [off, 1.0, 2024-01-31]}\n  - {name: 007, deny: t.no = s.on}"
    )
    assert (file.table, file.key) == ("on", ("no", "012"))
    assert [rule.name for rule in file.rules] == ["yes", "007"]
    assert file.rules[0].columns == ("1.0", "2024-01-31", "off")


def test_values_are_typed_where_values_are_meant():
    file = read_rules_text(
        "table: x\nrules:\n  - {name: a, deny: t.a = s.a, metadata: {team: no, level: 3, on: true, none: ~, day: 2024-01-31, x: '5'}}\nstate: {shards: 16, ratio: 0.5, time: 10:30}"
    )
    assert file.rules[0].metadata == {"team": "no", "level": 3, "on": True, "none": None, "day": "2024-01-31", "x": "5"}
    assert file.state == {"shards": 16, "ratio": 0.5, "time": "10:30"}


def test_the_table_may_carry_its_key():
    file = read_rules_text("table: {name: lake.orders, key: [order_id, line]}\nrules: []")
    assert (file.table, file.key) == ("lake.orders", ("order_id", "line"))


def test_anchors_aliases_and_merges_are_read():
    assert rules_of(
        """
  - &base {name: a, deny: t.a = s.a, severity: info}
  - {<<: *base, name: b, deny: t.b = s.b}
"""
    ) == {"a": "t.a = s.a", "b": "t.b = s.b"}


def test_any_notation_is_read_in_a_deny():
    assert rules_of("  - {name: a, deny: '!(t.a == s.a and t.b > s.b)'}") == {"a": "t.a = s.a and t.b > s.b"}


def test_a_listing_has_one_rule_a_line_in_any_notation(tmp_path):
    path = tmp_path / "mined.dc"
    path.write_text(
        "# found by hand\nt.a = s.a\n\n!(t.b == s.b)\nt1&t2&EQ(t1.c,t2.c)\n[DC: t0.d(String) == t1.d(String)  ]\n"
    )
    file = read_rules(path)
    assert file.table == "mined"
    assert {rule.name: write_rule(rule) for rule in file.rules} == {
        "rule_1": "t.a = s.a",
        "rule_2": "t.b = s.b",
        "rule_3": "t.c = s.c",
        "rule_4": "t.d = s.d",
    }


def test_the_published_listing_of_incdc_is_read(request):
    file = read_rules(request.path.parent / "airport.dc")
    assert len(file.rules) == 31
    assert write_rule(file.rules[4]) == "t.local_code = s.local_code"


def test_some_rules_are_selected_by_name():
    file = read_rules_text(
        "table: x\nrules:\n  - {name: zip, fd: 'zip -> city, state'}\n  - {name: zipper, unique: a}\n  - {name: other, unique: b}"
    )
    assert [rule.name for rule in file.select(["zip"]).rules] == ["zip.city", "zip.state"]
    assert [rule.name for rule in file.select(["other", "zip.state"]).rules] == ["zip.state", "other"]
    with pytest.raises(RuleError, match="did you mean other"):
        file.select(["othr"])


def test_the_columns_of_a_file_override_the_schema_found():
    file = read_rules_text("table: x\nkey: id\ncolumns: {zip: string}\nrules:\n  - {name: a, deny: t.zip = 'x'}")
    found = {"id": ColumnType("integer"), "zip": ColumnType("integer")}
    (bound,) = file.bind(found)
    assert bound.left_filter[0].domain == ColumnType("string")


def test_a_key_and_overrides_must_exist():
    file = read_rules_text(
        "table: x\nkey: [idd]\ncolumns: {zp: string}\nrules:\n  - {name: a, deny: t.c = 'x'}", path="f.yaml"
    )
    with pytest.raises(RuleErrors) as caught:
        file.bind({"id": ColumnType("integer"), "zip": ColumnType("integer")})
    assert caught.value.render() == (
        "f.yaml:2:7: `key` names idd, which is not a column\n    key: [idd]\n          ^^^\n  hint: did you mean id?\n"
        "f.yaml:3:11: `columns` names zp, which is not a column\n    columns: {zp: string}\n              ^^\n"
        "  hint: did you mean zip?\n"
        "f.yaml:5:21, rule a: there is no column c\n      - {name: a, deny: t.c = 'x'}\n                        ^^^\n"
        "  hint: the columns are id, zip, zp"
    )


def test_references_are_filled_in_only_when_asked(tmp_path):
    (tmp_path / "key").write_text("s3cret\n")
    file = read_rules_text(
        f"table: x\nrules: []\nsinks:\n  - {{path: '${{env:LAKE}}/out', plain: '$${{env:X}}', n: 5}}\nalerts:\n  - key: ${{file:{tmp_path}/key}}"
    )
    assert file.sinks[0]["path"] == "${env:LAKE}/out"
    filled = file.resolve({"LAKE": "/lake"})
    assert filled.sinks == ({"path": Secret("/lake/out"), "plain": "${env:X}", "n": 5},)
    assert filled.alerts[0]["key"].reveal() == "s3cret"
    assert "s3cret" not in repr(filled)
    assert "s3cret" not in f"{filled.alerts[0]['key']}"


def test_every_reference_that_is_missing_is_reported_with_its_place():
    file = read_rules_text(
        "table: x\nrules: []\nsource: {a: '${env:A}', b: '${file:/no/such}'}\nstate: {c: '${vault:x}'}", path="f.yaml"
    )
    with pytest.raises(RuleErrors) as caught:
        file.resolve({})
    assert [(error.place.line, error.message) for error in caught.value.errors] == [
        (3, "the environment has no variable A"),
        (3, "the file /no/such cannot be read: No such file or directory"),
        (4, "${vault:x} is not a reference"),
    ]


@pytest.mark.slow
def test_a_file_of_ten_thousand_rules_is_read_in_seconds():
    items = "".join(f"  - name: r{i}\n    deny: t.a{i} = s.a{i} and t.b < s.b and t.c > s.c\n" for i in range(10_000))
    began = time.process_time()
    file = read_rules_text(f"table: x\nrules:\n{items}")
    assert len(file.rules) == 10_000
    assert time.process_time() - began < 20  # about 4 s; the margin is for a busy machine


HOSTILE = {
    "a billion laughs": "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)),
    "too many aliases": "a: &a x\nb: [" + ", ".join(["*a"] * (MAX_ALIASES + 1)) + "]",
    "too deep": "[" * (MAX_DEPTH + 1),
    "very deep": "[" * 100_000,
    "deep mapping": "{a: " * 5_000,
    "too large": "#" * (MAX_BYTES + 1),
    "an alias to itself": "table: &x [*x]\nrules: []",
    "python": "table: !!python/name:os.system\nrules: []",
    "another tag": "table: !secret x\nrules: []",
    "binary": "table: !!binary aGVsbG8=\nrules: []",
    "a long expression": "table: x\nrules:\n  - {name: a, deny: '" + "(" * 200_000 + "'}",
    "nested brackets": "table: x\nrules:\n  - {name: a, deny: '" + "(" * 40_000 + "'}",
    "many predicates": "table: x\nrules:\n  - {name: a, deny: " + " and ".join(f"t.a{i} = s.a{i}" for i in range(501)) + "}",
    "a long name": "table: x\nrules:\n  - {name: " + "a" * 301 + ", deny: t.a = s.a}",
    "a name with a newline": 'table: x\nrules:\n  - {name: "a\\nb", deny: t.a = s.a}',
    "an escape sequence": 'table: x\nrules:\n  - {name: "a\\e[31m", deny: t.a = s.a}',
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_quickly(name):
    began = time.process_time()
    with pytest.raises(RuleError) as caught:
        read_rules_text(HOSTILE[name], path="hostile.yaml")
    assert time.process_time() - began < 5
    assert len(caught.value.render()) < 2_000
    assert "\x1b" not in caught.value.render()


def test_five_hundred_predicates_are_read():
    text = " and ".join(f"t.a{i} = s.a{i}" for i in range(500))
    assert len(parse_rule(text).predicates) == 500


@pytest.mark.parametrize("name", ["nothing.yaml", "."])
def test_a_file_that_cannot_be_read_is_said_so(name, tmp_path):
    with pytest.raises(RuleError, match="cannot be read"):
        read_rules(tmp_path / name)


def test_errors_survive_pickling():
    with pytest.raises(RuleErrors) as caught:
        read_rules_text("table: x\nrules:\n  - {name: a, deny: t.a}\n  - {name: b, deny: t.b}")
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.render() == caught.value.render()


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.parametrize("lines", ["\n", "\r\n"])
def test_places_count_characters_whatever_the_lines_and_the_loader(lines, loader, monkeypatch):
    monkeypatch.setattr(nodes, "_LOADER", getattr(yaml, loader))
    text = lines.join(["# 🐟 é", "table: 🐟", "rules:", "  - {name: 🐟🐟, deny: t.é = s.🐟}", ""])
    with pytest.raises(RuleError) as caught:
        read_rules_text(text.encode())
    place = caught.value.place
    assert (place.line, place.column, place.text) == (4, 29, "  - {name: 🐟🐟, deny: t.é = s.🐟}")


def test_windows_lines_and_a_byte_order_mark_are_read():
    content = b"\xef\xbb\xbftable: x\r\nrules:\r\n  - {name: a, deny: t.a = s.a}\r\n"
    assert write_rule(read_rules_text(content).rules[0]) == "t.a = s.a"


def test_what_a_rule_says_of_its_alerts_is_read_and_checked():
    text = "table: x\nrules:\n  - name: r\n    unique: b\n    alerts: {%s}\n"
    said = "to: night, values: [b], group_by: equality, after: 5 violations, for: 10 minutes"
    assert read_rules_text(text % said).rules[0].alerts == {
        "to": "night",
        "values": ["b"],
        "group_by": "equality",
        "after": "5 violations",
        "for": "10 minutes",
    }
    for bad, told in {
        "values: some": "none, keys, all, or a list",
        "group_by: zip": "rule, equality, or a list",
        "after: many": "a number of violations",
        "wait: 3": "the fields are to, values",
    }.items():
        with pytest.raises(RuleError, match=told) as found:
            read_rules_text(text % bad)
        assert "line 5" in str(found.value)
