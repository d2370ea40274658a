"""`weever violations` over tables and files that sinks left, without Spark.

Catches an open set that is not what the tables say, exit codes, and messages that leave people alone.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, write_deltalake

from weever_stream.cli import run
from weever_stream.detect.identity import violation_id
from weever_stream.orientation import as_written
from weever_stream.rules import parse_rule, read_rules
from weever_stream.rules.canonical import exchanged
from weever_stream.state.noted import Generation, Noted, NotedRule

BEGIN = datetime(2026, 3, 8, 6, 59, tzinfo=timezone.utc)
JOB = """
table: packages
key: id
rules:
  - name: zip_city
    fd: zip -> city
  - name: price
    deny: t.price < 0
    severity: warning
  - name: never
    unique: [id]
sinks:
  - {kind: kafka, servers: "${env:NOBODY_HAS_SET_THIS}", topic: t}
  - {kind: KIND, path: "${env:LAKE}/found"}
"""
TIME = pa.timestamp("us", "UTC")


def row(batch: int, change: str, rule: str, left: str, right: str | None, severity: str = "error") -> dict[str, Any]:
    return {
        "rule": rule,
        "rule_fingerprint": "f",
        "severity": severity,
        "change": change,
        "violation_id": violation_id(rule, left, right),
        "left_key": left,
        "right_key": right,
        "left_values": json.dumps({"zip": "1", "city": f"[red]Li\x1bma {left}"}),
        "right_values": None if right is None else json.dumps({"zip": "1", "city": "Cusco"}),
        "source_position": json.dumps({"version": batch}),
        "batch_id": batch,
        "detected_at": BEGIN + timedelta(hours=batch),
    }


LOG = [
    row(0, "added", "zip_city", "1", "2"),
    row(0, "added", "zip_city", "1", "3"),
    row(1, "removed", "zip_city", "1", "2"),
    row(1, "added", "price", "7", None, "warning"),
    row(2, "added", "zip_city", "1", "2"),
]
ALL_FIXED = [
    row(3, "removed", "zip_city", "1", "2"),
    row(3, "removed", "zip_city", "1", "3"),
    row(3, "removed", "price", "7", None, "warning"),
]
SCHEMA = pa.schema([(name, {"batch_id": pa.int64(), "detected_at": TIME}.get(name, pa.string())) for name in LOG[0]])


def open_of(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for event in log:
        if event["change"] == "added":
            found[event["violation_id"]] = event
        else:
            del found[event["violation_id"]]
    return list(found.values())


def lay(kind: str, path: Path, log: list[dict[str, Any]]) -> None:
    """Writes what the sink of a kind would have left."""
    if kind.startswith("delta"):
        said = {"userMetadata": json.dumps({"query_id": "q", "batch_id": 2, "source_position": '{"version": 2}'})}
        commit = CommitProperties(custom_metadata=said)
        table = pa.Table.from_pylist(open_of(log), SCHEMA).drop_columns("change")
        names = ["opened_at" if name == "detected_at" else name for name in table.column_names]
        if kind != "delta, log only":
            write_deltalake(
                str(path / "open"), table.rename_columns(names), partition_by=["rule"], commit_properties=commit
            )
        if kind != "delta, open only":
            write_deltalake(str(path / "log"), pa.Table.from_pylist(log, SCHEMA), commit_properties=commit)
        return
    for batch in {event["batch_id"] for event in log}:
        folder = path / f"batch_id={batch}"
        folder.mkdir(parents=True)
        events = [
            {name: item for name, item in event.items() if name != "batch_id"}
            for event in log
            if event["batch_id"] == batch
        ]
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(events, SCHEMA.remove(10)), folder / "part-0.parquet")
        else:
            for event in events:
                event["detected_at"] = event["detected_at"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            (folder / "part-0.json").write_text("".join(json.dumps(event) + "\n" for event in events))
        (folder / "_SUCCESS").touch()
    torn = path / "batch_id=9"
    torn.mkdir()
    (torn / "part-0.json").write_text("{")


KINDS = ["delta", "delta, log only", "json", "parquet"]


@pytest.fixture(params=KINDS)
def found(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "found"
    lay(request.param, path, LOG)
    return path


def out_of(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = run(["violations", *arguments])
    said = capfd.readouterr()
    return code, said.out if code < 3 else said.err


def test_what_is_open_is_shown_with_its_pairs(found: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out = out_of(capfd, str(found))
    assert code == 1
    lines = [line.rstrip() for line in out.splitlines()]
    assert [line.split() for line in lines if line.startswith(("price  ", "zip_city  "))][:2] == [
        ["price", "warning", "1"],
        ["zip_city", "error", "2"],
    ]
    assert lines[lines.index("zip_city  error") + 1 :][:5] == [
        "  2026-03-08 08:59:00Z",
        "    key     1                  key   2",
        "      zip   1                  zip   1",
        "      city  [red]Li\\x1bma 1    city  Cusco",
        "  2026-03-08 06:59:00Z",
    ]
    assert "\x1b" not in out
    assert "3 open, 2 of 2 rules violated" in out


def test_json_and_csv_hold_what_is_open(found: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out = out_of(capfd, str(found), "--format", "json")
    told = json.loads(out)
    assert code == 1
    assert [(rule["name"], rule["open"]) for rule in told["rules"]] == [("price", 1), ("zip_city", 2)]
    expected = {event["violation_id"]: event for event in open_of(LOG)}
    assert {one["id"] for one in told["violations"]} == set(expected)
    for one in told["violations"]:
        event = expected[one["id"]]
        assert one["left"] == json.loads(event["left_values"])
        assert one["right_key"] == event["right_key"]
        assert one["opened_at"] == event["detected_at"].strftime("%Y-%m-%dT%H:%M:%SZ")
    _, out = out_of(capfd, str(found), "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {line["violation_id"]: line["left_values"] for line in rows} == {
        found: event["left_values"] for found, event in expected.items()
    }
    assert "change" not in rows[0]


def test_the_log_holds_every_change(found: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _, out = out_of(capfd, str(found), "--log", "--format", "csv")
    rows = [(int(line["batch_id"]), line["change"], line["violation_id"]) for line in csv.DictReader(io.StringIO(out))]
    assert sorted(rows) == sorted((event["batch_id"], event["change"], event["violation_id"]) for event in LOG)
    code, out = out_of(capfd, str(found), "--log", "--rule", "zip_city", "--since", "2026-03-08T07:30Z")
    assert code == 1
    assert out.count("- fixed") == 1
    assert out.count("+ violated") == 1


def test_a_rule_and_a_limit_choose(found: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out = out_of(capfd, str(found), "--rule", "price")
    assert code == 2
    assert "zip_city" not in out
    code, out = out_of(capfd, str(found), "--limit", "1", "--format", "json")
    newest = [one["opened_at"] for one in json.loads(out)["violations"] if one["rule"] == "zip_city"]
    assert newest == ["2026-03-08T08:59:00Z"]
    _, out = out_of(capfd, str(found), "--limit", "1")
    assert "zip_city: 1 more; --limit lists more" in out
    code, out = out_of(capfd, str(found), "--rule", "zipcity")
    assert code == 3
    assert "did you mean zip_city?" in out


@pytest.mark.parametrize("kind", ["delta", "json"])
def test_a_job_names_its_sink(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("KIND", "delta" if kind == "delta" else "files"))
    code, out = out_of(capfd, str(job))
    assert code == 3
    assert "nothing has been written to" in out
    lay(kind, tmp_path / "found", LOG)
    code, out = out_of(capfd, str(job), "--format", "json")
    assert code == 1
    assert [(rule["name"], rule["open"]) for rule in json.loads(out)["rules"]] == [
        ("zip_city", 2),
        ("price", 1),
        ("never", 0),
    ]
    _, out = out_of(capfd, str(job))
    assert "t.zip = s.zip" in out


def test_nothing_open_exits_with_0(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for kind in KINDS:
        lay(kind, tmp_path / kind, LOG + ALL_FIXED)
        code, out = out_of(capfd, str(tmp_path / kind))
        assert code == 0
        assert "nothing is open" in out
    lay("delta", tmp_path / "empty", [])
    assert out_of(capfd, str(tmp_path / "empty"))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "nothing has been written to missing yet"),
        (["missing.yaml"], "missing.yaml cannot be read"),
        (["other"], "holds neither the tables"),
        (["open_only", "--log"], "holds no log"),
        (["open_only/open"], "is one Delta table"),
        (["foreign"], "is not a table of violations"),
        (["open_only", "--since", "yesterday"], "is no time"),
        (["console.yaml"], "has no sink that can be read"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    lay("delta, open only", Path("open_only"), LOG)
    write_deltalake("foreign/open", pa.table({"a": [1]}))
    Path("other").mkdir()
    Path("other/file.txt").touch()
    Path("console.yaml").write_text(JOB.partition("  - {kind: KIND")[0])
    code, out = out_of(capfd, *arguments)
    assert code == 3
    assert message in out
    assert "unexpected" not in out


def test_the_operators_are_those_of_the_rule(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rules = """
table: parcels
key: [country, code]
rules:
  - {name: back, deny: t.origin = s.destination and t.postage < s.postage and t.volume >= 10}
  - {name: later, order: volume -> postage}
sinks:
  - {kind: delta, path: FOUND}
""".replace("FOUND", str(tmp_path / "found"))
    (tmp_path / "job.yaml").write_text(rules)
    back = read_rules(tmp_path / "job.yaml").rules[0]
    values = [
        {"origin": "Lima", "destination": "Monaco", "postage": 5, "volume": 11},
        {"origin": "London", "destination": "Lima", "postage": 7, "volume": 3},
    ]
    event = row(0, "added", "back", '["PE",1]', '["GB",2]') | {
        "rule_fingerprint": back.fingerprint,
        "left_values": json.dumps(values[0]),
        "right_values": json.dumps(values[1]),
    }
    former = event | {"rule": "later", "rule_fingerprint": "that of another text", "violation_id": "00"}
    lay("delta", tmp_path / "found", [event, former])
    code, out = out_of(capfd, str(tmp_path / "job.yaml"))
    assert code == 1
    pairs = [line.rstrip() for line in out.splitlines() if line.startswith("    ")]
    assert pairs == [
        "    country    PE          country      GB",
        "    code       1           code         2",
        "      origin   Lima     =  destination  Lima",
        "      postage  5        <  postage      7",
        "      volume   11 ≥ 10",
        # What the rule of this name was at that time is not known: no operator is shown.
        "    country        PE        country      GB",
        "    code           1         code         2",
        "      origin       Lima      origin       London",
        "      destination  Monaco    destination  Lima",
        "      postage      5         postage      7",
        "      volume       11        volume       3",
    ]


@pytest.mark.parametrize("form", ["json", "csv", "text"])
def test_rows_are_always_in_the_same_order(
    tmp_path: Path, form: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weever_stream.sinks.reading._PIECE", 7)
    events = [
        row(batch, "added", rule, f"{n}", "x") for batch in (0, 1) for rule in ("b", "a") for n in range(9 * batch, 20)
    ]
    lay("delta", tmp_path / "found", events)
    code, out = out_of(capfd, str(tmp_path / "found"), "--log", "--format", form, "--limit", "1000")
    assert code == 1
    expected = sorted(events, key=lambda one: (one["rule"], -one["batch_id"], one["violation_id"]))
    if form == "json":
        found = [one["id"] for one in json.loads(out)["violations"]]
    elif form == "csv":
        found = [one["violation_id"] for one in csv.DictReader(io.StringIO(out))]
    else:
        found = [line.split()[1] for line in out.splitlines() if line.startswith("    key ")]
        assert found == [one["left_key"] for one in expected]
        return
    assert found == [one["violation_id"] for one in expected]


def test_the_position_is_the_last_one_that_was_checked(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that changes nothing writes nothing into the sink; that it was checked is known from the checkpoint."""
    lay("delta", tmp_path / "found", LOG)
    monkeypatch.setenv("LAKE", str(tmp_path))
    job = tmp_path / "job.yaml"
    job.write_text(JOB.replace("KIND", "delta") + 'state: {checkpoint: "${env:LAKE}/checkpoint"}\n')

    def position() -> Any:
        run(["violations", str(job), "--format", "json"])
        return json.loads(capfd.readouterr().out)["position"]

    assert position() == '{"version": 2}', "there is no checkpoint yet"
    progress = tmp_path / "checkpoint" / "weever" / "progress.json"
    progress.parent.mkdir(parents=True)
    progress.write_text(json.dumps({"batch": 5, "position": '{"version": 9}'}))
    assert position() == '{"version": 9}'
    progress.write_text(json.dumps({"batch": 1, "position": '{"version": 1}'}))
    assert position() == '{"version": 2}', "the sink is further than what was noted last"
    progress.write_text("torn")
    assert position() == '{"version": 2}'


@pytest.mark.parametrize(
    ("deny", "other", "left", "right", "line"),
    [
        (
            "t.destination = s.origin and t.postage < s.postage",
            "s.destination = t.origin and s.postage < t.postage",
            {"destination": "Lima", "origin": "Monaco", "postage": 5},
            {"destination": "Monaco", "origin": "Lima", "postage": 7},
            "postage 5 < postage 7",
        ),
        ("t.price < s.price", "s.price < t.price", {"price": 9}, {"price": 10}, "price 9 < price 10"),
        ("t.at < s.at", "s.at < t.at", {"at": "2026-03-01"}, {"at": "2026-03-02"}, "at 2026-03-01 < at 2026-03-02"),
        # Decimals and texts look alike: only the note beside the checkpoint tells which of the two is less.
        ("t.price < s.price", "s.price < t.price", {"price": "9.5"}, {"price": "10.0"}, "price 9.5 < price 10.0"),
    ],
)
def test_operators_fit_the_rows_after_t_and_s_are_exchanged(
    deny: str, other: str, left: dict[str, Any], right: dict[str, Any], line: str, tmp_path: Path, capfd: Any
) -> None:
    rule = parse_rule(deny, name="moves")
    values = {"left_values": json.dumps(left), "right_values": json.dumps(right)}
    lay(
        "json",
        tmp_path / "found",
        [row(0, "added", "moves", "1", "2") | values | {"rule_fingerprint": rule.fingerprint}],
    )
    job = tmp_path / "job.yaml"
    sink = f"sinks: [{{kind: files, path: {tmp_path}/found}}]\nstate: {{checkpoint: {tmp_path}/checkpoint}}\n"
    note = Noted("x", "delta", ("id",), 1, "4.1", pa.schema([]), (Generation(0, (NotedRule.of(rule),)),))
    notes = tmp_path / "checkpoint" / "weever"
    notes.mkdir(parents=True)
    (notes / "progress.json").write_text(json.dumps({"batch": 0, "position": "0"}))
    (notes / "job.json").write_text(json.dumps(note.to_json()))
    for written in (deny, other):
        job.write_text(f"table: x\nkey: id\nrules: [{{name: moves, deny: {written}}}]\n{sink}")
        assert read_rules(job).rules[0].fingerprint == rule.fingerprint
        lines = [" ".join(one.split()) for one in out_of(capfd, str(job))[1].splitlines()]
        assert line in lines
        if "9.5" not in line:
            (notes / "job.json").unlink(missing_ok=True)  # the values tell it too
            assert line in [" ".join(one.split()) for one in out_of(capfd, str(job))[1].splitlines()]


def test_values_that_fit_a_rule_in_no_way_get_no_operator() -> None:
    rule = parse_rule("t.a = s.a and t.b < s.b")
    assert as_written(rule, '{"a": 1, "b": 1}', '{"a": 2, "b": 2}') is None
    assert as_written(rule, '{"a": 1, "b": 3}', '{"a": 1, "b": 2}') == exchanged(rule.predicates)


def test_durations_are_not_compared_as_texts() -> None:
    rule = parse_rule("t.a < s.a")
    for less, more in (("1s", "1.500000s"), ("0s", "0.000001s"), ("9s", "10s")):
        assert as_written(rule, json.dumps({"a": less}), json.dumps({"a": more})) == rule.predicates


def test_rules_with_more_are_told_in_the_order_of_the_job_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    lay("json", tmp_path / "found", [LOG[3], LOG[0], LOG[1]])
    (tmp_path / "job.yaml").write_text(JOB.replace("KIND", "files"))
    out = out_of(capfd, str(tmp_path / "job.yaml"), "--limit", "0")[1]
    assert [line.split(":")[0] for line in out.splitlines() if "more;" in line] == ["zip_city", "price"]
