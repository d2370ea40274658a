"""Data contracts: what becomes a rule and what is skipped, there and back, and old contracts changed line by line.

Catches: a check that vanishes without a word, a rule that comes back different, a contract that the standard's own
schema refuses, a line of somebody else's that is lost.
"""

from __future__ import annotations

import difflib
import json
import re
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import typer
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.rules.golden import GOLDEN, check_golden
from tests.rules.strategies import rules as random_rules
from tests.rules.test_normal_form import PAIRS
from tests.rules.test_schema import EXAMPLE, GOOD
from weever_stream.cli import run
from weever_stream.cli.convert import convert
from weever_stream.errors import RuleError, RuleErrors
from weever_stream.rules import ColumnType, RuleFile, make_rule, parse_rule, read_rules, read_rules_text, write_rule
from weever_stream.rules.odcs_update import update_contract
from weever_stream.rules.odcs_writing import write_contract
from weever_stream.rules.types import type_of_name

STANDARD = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text("utf-8"))
app = typer.Typer()
app.command()(convert)


def valid(text: str) -> str:
    """The contract, if the standard's own schema accepts it."""
    jsonschema.Draft201909Validator(STANDARD).validate(yaml.safe_load(text))
    return text


def told(file: RuleFile) -> list[object]:
    """All that rules say, also what their equality does not look at."""
    return [
        (rule, rule.predicates, rule.description, rule.owner, dict(rule.metadata), dict(rule.alerts), rule.spread)
        for rule in file.rules
    ]


CONTRACT = """\
# kept by the orders team
version: '1.10'
apiVersion: v3.1.0
kind: DataContract
id: orders
status: active
schema:
  - name: orders           # the table
    physicalName: lake.orders
    properties:
      - {name: tenant_id, logicalType: string, primaryKey: true, primaryKeyPosition: 2}
      - name: order_id
        logicalType: integer
        primaryKey: true
        primaryKeyPosition: 1
      - name: email
        physicalName: e_mail
        logicalType: string
        unique: true
        quality:
          - {metric: nullValues, mustBe: 0}
          - {name: no two, metric: duplicateValues, mustBe: 0, severity: high}
      - {name: at, logicalType: timestamp, logicalTypeOptions: {timezone: true}}
      - {name: local, logicalType: timestamp, logicalTypeOptions: {timezone: false}}
      - {name: price, logicalType: number, physicalType: "decimal(10,2)"}
      - {name: weight, logicalType: number}
      - {name: odd, logicalType: string, physicalType: date}
      - name: address
        logicalType: object
        properties:
          - {name: street, logicalType: string, unique: true}
    quality:
      - {id: u1, metric: duplicateValues, mustBe: 0, arguments: {properties: [tenant_id, email]}}
      - id: one_price      # ours
        name: One price
        type: custom
        engine: weever
        dimension: consistency
        tags: [money]
        severity: critical
        description: One price per SKU and day
        schedule: 0 20 * * *
        customProperties:
          - {property: ticket, value: 17}
        implementation: {fd: {determinants: [sku, day], dependents: [price]}, filter: "country = 'DE'", owner: sales}
      - id: by_text
        type: custom
        engine: weever
        severity: P2
        implementation: |
          fd: zip -> city, state
      - id: plain
        type: custom
        engine: Weever
        implementation: t.a = s.a and t.b < s.b
      - {id: nice, type: text, description: be nice}
      - {id: q, type: sql, query: SELECT 1, mustBe: 1}
      - id: soda
        type: custom
        engine: soda
        implementation: |
          type: x
      - {metric: duplicateValues, mustBeLessThan: 10, unit: percent, arguments: {properties: [email]}}
      - {metric: duplicateValues, mustBe: 0}
      - {metric: rowCount, mustBeGreaterThan: 0}
      - {metric: duplicateValues, mustBeLessThan: 1, arguments: {properties: [price, at]}}
team: []
"""


def test_a_contract_is_read_as_a_rule_file():
    file = read_rules_text(CONTRACT, path="contract.yaml")
    assert (file.table, file.key, file.contract) == ("orders", ("order_id", "tenant_id"), True)
    assert {rule.name: write_rule(rule) for rule in file.rules} == {
        "u1": "t.e_mail = s.e_mail and t.tenant_id = s.tenant_id",
        "one_price": "t.day = s.day and t.sku = s.sku and t.price != s.price and t.country = 'DE' and s.country = 'DE'",
        "by_text.city": "t.zip = s.zip and t.city != s.city",
        "by_text.state": "t.zip = s.zip and t.state != s.state",
        "plain": "t.a = s.a and t.b < s.b",
        "price_at_is_unique": "t.at = s.at and t.price = s.price",
        "no two": "t.e_mail = s.e_mail",
    }
    price = file.select(["one_price"]).rules[0]
    assert (price.severity, price.description, price.owner) == ("critical", "One price per SKU and day", "sales")
    assert price.metadata == {"dimension": "consistency", "tags": ["money"], "name": "One price", "ticket": 17}
    assert file.select(["no two"]).rules[0].severity == "error"
    assert file.columns == {
        "tenant_id": ColumnType("string"), "order_id": ColumnType("integer"), "e_mail": ColumnType("string"),
        "at": ColumnType("timestamp"), "local": ColumnType("timestamp_ntz"), "price": ColumnType("decimal", 10, 2),
        "odd": ColumnType("string"),
    }  # fmt: skip
    assert file.notes == (
        "contract.yaml:42:19: `schedule` is not followed: rules are held all the time",
        "contract.yaml:49:19: the severity P2 is not known; it is taken as error",
    )


def test_every_check_that_becomes_no_rule_is_told_with_its_place_and_reason():
    assert [str(one) for one in read_rules_text(CONTRACT, path="contract.yaml").skipped] == [
        "contract.yaml:19:17: unique of email is skipped: check no two (line 22) says the same",
        "contract.yaml:21:13: a check is skipped: the metric nullValues is not ours",
        "contract.yaml:31:57: unique of street is skipped: a field inside a column cannot be compared",
        "contract.yaml:56:9: check nice is skipped: a text for people",
        "contract.yaml:57:9: check q is skipped: an SQL query",
        "contract.yaml:58:9: check soda is skipped: a check of soda",
        "contract.yaml:63:9: a check is skipped: only `mustBe: 0` is a rule; a threshold counts rows",
        "contract.yaml:64:9: a check is skipped: it names no properties",
        "contract.yaml:65:9: a check is skipped: the metric rowCount is not ours",
    ]


WRONG = """\
apiVersion: v3.1.0
kind: DataContract
schema:
  - name: orders
    properties:
      - {name: city}
    quality:
      - {id: a, engine: weever, implementation: t.zip = s.zip or t.city = s.city}
      - {id: b, engine: weever, implementation: {fd: zip -> }}
      - id: c
        engine: weever
        implementation: >
          fd:
            zip -> city,
      - {id: d, engine: weever, implementation: {deny: t.a = s.a, unique: [a]}}
      - {id: e, engine: weever, implementation: {denny: t.a = s.a}}
      - {id: f, engine: weever}
      - {engine: weever, implementation: t.a = s.a}
      - {id: g, engine: weever, severity: error, implementation: {unique: x, severity: info}}
      - {metric: duplicateValues, mustBe: 0, arguments: {properties: [citty]}}
      - {id: h, engine: weever, implementation: t.q = s.q}
      - {id: h, engine: weever, implementation: t.r = s.r}
      - {id: i, engine: weever, implementation: t.r = s.r}
      - just words
"""


def test_errors_point_at_the_line_of_the_contract():
    with pytest.raises(RuleErrors) as caught:
        read_rules_text(WRONG, path="wrong.yaml")
    check_golden("contract.txt", caught.value.render() + "\n")


ODD = [
    "[]",
    "{}",
    "null",
    "true",
    "5",
    "[a, [b]]",
    "{a: {b: c}}",
    "''",
    "t.a = s.a",
    "weever",
    "duplicateValues",
    "&x a",
    "*x",
]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_contract_raises_anything_but_a_rule_error(data):
    lines = CONTRACT.splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(lines) - 1))
        key, colon, _ = lines[at].partition(":")
        lines[at] = key + colon + " " + data.draw(st.sampled_from(ODD)) if data.draw(st.booleans()) else ""
    try:
        file = read_rules_text("\n".join(lines), path="fuzz.yaml")
        update_contract("\n".join(lines), RuleFile("x", (parse_rule("t.q = s.q and t.p > s.p", name="q"), *file.rules)))
    except RuleError as error:
        error.render()


def test_versions_before_3_1_are_read():
    old = "apiVersion: v3.0.2\nkind: DataContract\nschema: [{name: x, quality: [{rule: duplicateCount, mustBe: '0', arguments: {properties: a}}]}]"
    assert [(rule.name, write_rule(rule)) for rule in read_rules_text(old).rules] == [("a_is_unique", "t.a = s.a")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: v2.2.2\nkind: DataContract\ndataset: []", "this release reads v3"),
        ("apiVersion: v3.0.0\nkind: DataContract", "the contract has no table"),
        ("apiVersion: v3.0.0\nkind: DataContract\nschema: [{properties: []}]", "the table has no `name`"),
        ("apiVersion: v3.0.0\nkind: DataContract\nschema: [{name: a, properties: [{}]}]", "a property has a `name`"),
    ],
)
def test_a_contract_that_holds_no_table_is_refused(text, message):
    with pytest.raises(RuleError, match=message):
        read_rules_text(text)


def test_of_several_tables_one_is_chosen(tmp_path):
    path = tmp_path / "contract.yaml"
    path.write_text("apiVersion: v3.1.0\nkind: DataContract\nschema: [{name: a, physicalName: x.a}, {name: b}]")
    with pytest.raises(RuleError, match=r"several tables: a, b\n(.|\n)*hint: choose one by --table NAME"):
        read_rules(path)
    with pytest.raises(RuleError, match="hint: the tables are a, b"):
        read_rules(path, table="zzz")
    assert [read_rules(path, table=name).table for name in ("a", "x.a", "b")] == ["a", "a", "b"]
    with pytest.raises(RuleError, match="a rule file has one table"):
        read_rules_text(EXAMPLE, table="packages")


READABLE = [
    *GOOD,
    "table: x\nrules:\n  - {name: a.b, unique: [x], owner: me, spread: 4, alerts: {to: ops, after: 5}, description: '1e5'}",
    "table: x\nkey: [b, a]\ncolumns: {a: uint64, b: time, c: timestamp, d: 'decimal(38,9)', e: double, f: boolean}\nrules: []",
    "table: x\nrules:\n" + "\n".join(f"  - {{name: r{n}, deny: {json.dumps(normal)}}}" for n, (_, normal) in enumerate(dict(map(reversed, PAIRS)).items())),
]  # fmt: skip


@pytest.mark.parametrize("text", READABLE, ids=range(len(READABLE)))
def test_a_rule_file_comes_back_from_its_contract(text):
    file = read_rules_text(text)
    again = read_rules_text(valid(write_contract(file)))
    assert told(again) == told(file)
    assert (again.table, again.key, again.skipped) == (file.table, file.key, ())
    assert again.columns == file.columns


def test_mined_rules_come_back_from_their_contract():
    file = read_rules(GOLDEN.parent / "airport.dc")
    assert len(file.rules) > 5
    assert told(read_rules_text(valid(write_contract(file)))) == told(file)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(max_size=8)
    | st.sampled_from(["1e5", "no", "0o7", "null", "~", "12:30:00", "2024-01-31", "<<", "=", "- a", "a: b", "#"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
fields = st.sampled_from(
    ["dimension", "tags", "unit", "method", "name", "authoritativeDefinitions", "ticket", "", "1e5"]
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(max_examples=60, deadline=None)
@given(
    rule=random_rules(),
    name=st.sampled_from(["plain", "a.b", "é 1", "1e5", "no"]),
    severity=st.sampled_from(["info", "warning", "error", "critical"]),
    description=st.none() | texts,
    metadata=st.dictionaries(fields, values, max_size=3),
    key=st.lists(st.sampled_from(["a", "id", "1e5", "no"]), unique=True, max_size=3),
)
def test_any_rule_comes_back_from_its_contract(rule, name, severity, description, metadata, key):
    made = make_rule(name, rule.predicates, severity=severity, description=description, metadata=metadata)
    columns = {column: type_of_name("string") for column in rule.columns}
    file = RuleFile("t", (made,), tuple(key), columns)
    again = read_rules_text(valid(write_contract(file)))
    assert told(again) == told(file)
    assert (again.key, again.columns) == (file.key, file.columns)


def test_texts_that_look_like_numbers_stay_texts():
    made = make_rule("r", RULE.predicates, metadata={"a": "1e5", "b": ["no", ".5", "1e5"], "c": 5})
    assert told(read_rules_text(write_contract(RuleFile("x", (made,))))) == told(RuleFile("x", (made,)))


def test_what_is_unique_is_written_as_the_standards_own_metric():
    file = read_rules_text("table: x\nrules: [{name: u, unique: [b, a]}, {name: o, unique: [c], owner: me}]")
    unique, owned = yaml.safe_load(write_contract(file))["schema"][0]["quality"]
    assert (unique["metric"], unique["mustBe"], unique["arguments"]) == (
        "duplicateValues",
        0,
        {"properties": ["a", "b"]},
    )
    assert owned["implementation"] == {"deny": "t.c = s.c", "owner": "me"}


def changed(text: str, rules: RuleFile, table: str | None = None) -> tuple[list[str], list[str]]:
    """The lines that an update takes away and those that it adds."""
    new = valid(update_contract(text, rules, table=table))
    lines = list(difflib.ndiff(text.splitlines(), new.splitlines()))
    return [line[2:] for line in lines if line[0] == "-"], [line[2:] for line in lines if line[0] == "+"]


def with_rules(text: str, *, less: tuple[str, ...] = (), more: tuple = ()) -> RuleFile:
    file = read_rules_text(text)
    return RuleFile(file.table, (*(rule for rule in file.rules if rule.name not in less), *more), file.key)


def test_rules_that_are_there_change_no_line():
    assert update_contract(CONTRACT, with_rules(CONTRACT)) == CONTRACT


def test_an_update_adds_and_takes_away_only_its_own_lines():
    more = parse_rule("t.c = s.c and t.d != s.d", name="new", severity="warning")
    gone, come = changed(CONTRACT, with_rules(CONTRACT, less=("one_price", "no two"), more=(more,)))
    assert gone == CONTRACT.splitlines()[33:45], "all lines of ours, none of theirs: `no two` is the standard's own"
    assert come == [
        "      - id: new", "        type: custom", "        engine: weever", "        implementation:",
        "          deny: t.c = s.c and t.d != s.d", "        severity: warning",
    ]  # fmt: skip


def test_a_rule_that_changes_is_written_anew():
    file = read_rules_text(CONTRACT)
    other = parse_rule("t.e_mail = s.e_mail", name="no two", severity="critical")
    state = parse_rule("t.zip = s.zip and t.state > s.state", name="by_text.state")
    text = valid(update_contract(CONTRACT, with_rules(CONTRACT, less=("no two", "by_text.state"), more=(other, state))))
    again = read_rules_text(text)
    assert {rule.name: (write_rule(rule), rule.severity) for rule in again.rules} == {
        **{rule.name: (write_rule(rule), rule.severity) for rule in file.rules},
        "no two": ("t.e_mail = s.e_mail", "critical"),
        "by_text.state": ("t.zip = s.zip and t.state > s.state", "error"),
    }
    assert len(again.skipped) == len(read_rules_text(CONTRACT).skipped) + 1, "the standard's own gives way"


HEAD = "version: '1'\napiVersion: v3.1.0\nkind: DataContract\nid: x\nstatus: draft\nschema:\n"
RULE = parse_rule("t.a = s.a and t.b != s.b", name="r")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("- name: x\n", "- name: x\n  quality:\n"),
        ("- name: x", "- name: x\n  quality:\n"),
        ("- name: x\n  quality: []\n  tags: []\n", "- name: x\n  quality:\n    - id: r\n"),
        ("- name: x\n  quality:\n  tags: []  # none\n", "- name: x\n  quality:\n    - id: r\n"),
        ("-   name: x\n    quality:\n    - {metric: rowCount, mustBe: 1}  # one\n# end\n", "# one\n    - id: r\n"),
        (
            "  - properties:\n    - {name: a, logicalType: string}\n    name: x\n# end\ntenant: a\n",
            "    name: x\n    quality:\n",
        ),
        ("- name: x\r\n  tags: []\r\n", "  quality:\r\n    - id: r\r\n"),
    ],
    ids=range(7),
)
def test_checks_find_their_place_in_any_block_style(before, after):
    text = update_contract(HEAD + before, RuleFile("x", (RULE,)))
    assert after in text
    assert told(read_rules_text(valid(text))) == told(RuleFile("x", (RULE,)))
    back = update_contract(text, RuleFile("x", ()))
    assert read_rules_text(valid(back)).rules == ()
    for line in (HEAD + before).splitlines():
        assert line in back.splitlines() or line.strip().startswith("quality:")


def test_an_update_touches_only_the_table_that_is_meant():
    two = HEAD + "".join(
        f"- name: {name}\n  quality:\n  - id: mine\n    engine: weever\n    type: custom\n    implementation: t.a = s.a\n"
        for name in ("x", "y")
    )
    gone, come = changed(two, RuleFile("y", (RULE,)), table="y")
    assert gone[:1] == ["  - id: mine"]
    assert come[:1] == ["  - id: r"]
    text = update_contract(two, RuleFile("y", (RULE,)), table="y")
    assert [[rule.name for rule in read_rules_text(text, table=name).rules] for name in "xy"] == [["mine"], ["r"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "- {name: x}", "written in brackets"),
        (HEAD + "- name: x\n  quality: [{metric: rowCount, mustBe: 1}]", "written in brackets"),
        (HEAD + "- name: x\n  properties: [{name: k, primaryKey: true}]", "the key of the contract is"),
        (EXAMPLE, "this is no data contract"),
    ],
)
def test_a_contract_that_cannot_be_changed_is_refused(text, message):
    with pytest.raises(RuleError, match=message):
        update_contract(text, RuleFile("x", (RULE,), key=("id",)))


@pytest.fixture
def contract(tmp_path):
    path = tmp_path / "contract.yaml"
    path.write_text(CONTRACT)
    return path


def cli(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_convert_reads_and_writes_contracts(contract, tmp_path):
    seen = cli(contract, "--from", "odcs", "--to", "weever")
    assert seen.exit_code == 0
    assert "9 checks of the contract skipped:" in seen.stderr
    assert told(read_rules_text(seen.stdout)) == told(read_rules(contract))
    rules = tmp_path / "rules.yaml"
    rules.write_text(seen.stdout.replace("by_text.city", "renamed"))
    assert cli(rules, "--to", "odcs", "--into", contract).exit_code == 0
    assert {"renamed", "by_text.state", "u1"} <= {rule.name for rule in read_rules(contract).rules}
    assert contract.read_text().startswith("# kept by the orders team\nversion: '1.10'\n")
    assert told(read_rules_text(cli(rules, "--to", "odcs").stdout)) == told(read_rules(rules))


@pytest.mark.parametrize("arguments", [["--from", "weever", "--to", "sql"], ["--to", "sql", "--into", "x.yaml"]])
def test_convert_refuses_what_makes_no_sense(contract, arguments):
    assert isinstance(cli(contract, *arguments).exception, RuleError)


def test_check_and_validate_take_a_contract_and_say_what_is_skipped(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(
        HEAD + "- name: x\n  quality:\n  - {id: c, metric: duplicateValues, mustBe: 0, arguments: {properties: [a]}}\n"
        "  - {metric: rowCount, mustBe: 3}\n- name: y\n"
    )
    (tmp_path / "x.csv").write_text("a\n1\n1\n")
    assert run(["check", "two.yaml", "x.csv", "--table", "x"]) == 1
    assert "1 check of the contract skipped:\n  two.yaml:10:5: a check is skipped" in capfd.readouterr().err
    assert run(["validate", "two.yaml", "--table", "x"]) == 0
    assert "two.yaml: 1 rule of table x, all valid; 1 check of the contract skipped" in capfd.readouterr().out
    assert run(["validate", "two.yaml", "--table", "x", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["skipped"][0]["line"] == 10
    assert run(["validate", "two.yaml"]) == 3


def test_the_page_shows_what_the_command_prints(tmp_path, monkeypatch, capfd):
    page = (Path(__file__).parents[2] / "docs" / "odcs.md").read_text("utf-8")
    [text] = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    [shown] = re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contract.yaml").write_text(valid(text))
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["validate", "contract.yaml"]) == 0
    printed = capfd.readouterr().out
    assert [line.rstrip() for line in printed.splitlines()] == shown.splitlines()[1:]


@pytest.mark.parametrize("text", ["a\x85b", "a\u2028b", "\u2029", "a\nb", " a", "\t", "a\r\nb"])
def test_ends_of_lines_of_any_kind_come_back(text: str):
    made = make_rule("r", RULE.predicates, description=text, metadata={"a": text})
    assert told(read_rules_text(write_contract(RuleFile("x", (made,))))) == told(RuleFile("x", (made,)))
