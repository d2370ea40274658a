"""What is found out about a job before Spark starts.

Catches: a missing table, a change feed that is off, a wrong column, a key that is null or not unique, other rules than
the checkpoint's or a column of another type, each of which used to be found after Spark had started or not at all; a
`plan` or `doctor` that promises what `run` refuses.
"""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.stream.jobs import job_text
from weever_stream.cli import run as weever
from weever_stream.job.job import job_of, read_job
from weever_stream.rules import read_rules_text
from weever_stream.state.noted import Generation, Noted, NotedRule
from weever_stream.state.notes import Notes
from weever_stream.stream import preflight
from weever_stream.stream.columns import needed, stored_schema
from weever_stream.stream.places import notes_of, schemas_of
from weever_stream.stream.preflight import SOURCE, Preflight, check_job
from weever_stream.stream.progress import PROGRESS

RULES = {"same_city": {"fd": "zip -> city"}}
ROWS = {"id": pa.array([1, 2, 3], pa.int32()), "zip": ["a", "a", "b"], "city": ["x", "y", "z"], "note": ["", "", ""]}


def written(path: Path, columns: dict[str, Any] = ROWS, *, feed: str = "true", **options: Any) -> str:
    write_deltalake(path, pa.table(columns), configuration={"delta.enableChangeDataFeed": feed}, **options)
    return str(path)


def text_of(
    folder: Path, table: str, rules: Any = RULES, columns: Any = None, options: Any = None, **state: Any
) -> str:
    source = {"kind": "delta", "path": table, "options": options or {}}
    return job_text(source, folder, rules, columns=columns or {}, **state)


def check(folder: Path, table: str, rules: Any = RULES, **options: Any) -> Preflight:
    return check_job(job_of(read_rules_text(text_of(folder, table, rules, **options))))


def began(folder: Path, table: str) -> None:
    """Leaves a checkpoint as a job does that has read all of a table."""
    job = job_of(read_rules_text(text_of(folder, table)))
    notes, at = Notes(notes_of(job)), DeltaTable(table)
    kinds = {"id": "int", "zip": "string", "city": "string"}
    columns = stored_schema((name, kinds[name]) for name in needed(job.file.rules, job.file.key))
    generation = Generation(0, tuple(NotedRule.of(rule) for rule in job.file.rules))
    spark = preflight._spark_version() or ""
    noted = Noted("rows", "delta", ("id",), 4, spark, columns, (generation,))
    notes.write("job.json", noted.to_json())
    notes.write(PROGRESS, {"position": json.dumps({"version": at.version()}), "open": {"same_city": 1}})
    notes.write(SOURCE, {"table": str(at.metadata().id), "where": table})
    (folder / "checkpoint" / "offsets").mkdir(parents=True)
    (folder / "checkpoint" / "offsets" / "0").write_text("v1")
    schemas = Path(schemas_of(job).uri) / "_schema_log"
    schemas.mkdir(parents=True)
    entry = {"deltaCommitVersion": at.version(), "dataSchemaJson": at.schema().to_json()}
    partitions = json.dumps({"type": "struct", "fields": []})
    (schemas / "0").write_text("v1\n" + json.dumps({**entry, "partitionSchemaJson": partitions}))


def refusal(found: Preflight) -> str:
    (error,) = found.refusals
    return str(error)


def test_a_table_that_fits_is_taken_without_a_word(tmp_path: Path):
    table = written(tmp_path / "table")
    found = check(tmp_path, table)
    assert (found.refusals, found.warnings, found.unchecked, found.table_version) == ([], [], [], 0)
    assert found.noted is None
    began(tmp_path, table)
    found = check(tmp_path, table)
    assert (found.refusals, found.warnings, found.unchecked) == ([], [], [])
    assert found.noted is not None
    assert not found.revision


def test_what_is_wrong_with_a_table_is_known_before_spark_starts(tmp_path: Path):
    assert "there is no Delta table" in refusal(check(tmp_path, str(tmp_path / "nowhere")))
    assert "the change data feed of" in refusal(check(tmp_path, written(tmp_path / "off", feed="false")))
    table = written(tmp_path / "table")
    wrong = refusal(check(tmp_path, table, {"r": {"fd": "zip -> town"}}))
    assert "there is no column town" in wrong
    assert "line" in wrong or ":" in wrong


HDFS = {"spark": {"spark.hadoop.fs.defaultFS": "hdfs://nn:8020"}}


@pytest.mark.parametrize(
    ("environ", "given"),
    [
        ({}, HDFS),
        ({}, {"options": {"fs.defaultFS": "hdfs://nn:8020"}}),
        ({"HADOOP_CONF_DIR": "/etc/hadoop"}, {}),
        ({"DATABRICKS_RUNTIME_VERSION": "17.3"}, {}),
    ],
)
def test_a_path_that_spark_may_find_elsewhere_is_left_to_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], given: dict[str, Any]
):
    table, other = written(tmp_path / "table"), written(tmp_path / "other")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    left = check(tmp_path, str(tmp_path / "nowhere"), **given)
    assert left.refusals == []
    assert "it is checked by the start" in left.unchecked[0]
    assert check(tmp_path, table, **given).table_version == 0, "what is there is looked at"
    began(tmp_path, table)
    left = check(tmp_path, other, **given)
    assert (left.refusals, left.warnings, left.table_version) == ([], [], None)
    assert "it is checked by the start" in left.unchecked[0]


def test_a_store_with_settings_of_spark_is_left_to_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from deltalake.exceptions import TableNotFoundError

    def open_delta(_: object) -> None:
        raise TableNotFoundError("nothing there")

    monkeypatch.setattr(preflight, "open_delta", open_delta)
    endpoint = {"spark": {"spark.hadoop.fs.s3a.endpoint": "http://store:9000"}}
    uri = "s3://bucket/table?region=none"
    assert check(tmp_path, uri, **endpoint).refusals == []
    assert "there is no Delta table" in refusal(check(tmp_path, uri))


def test_a_path_that_is_plainly_local_is_refused_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    nowhere = str(tmp_path / "nowhere")
    for path, given in ((nowhere, {"spark": {"spark.hadoop.fs.defaultFS": "file:///"}}), (f"file://{nowhere}", HDFS)):
        assert "there is no Delta table" in refusal(check(tmp_path, path, **given))


def test_keys_that_are_null_or_not_unique_are_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    columns = {**ROWS, "id": pa.array([1, 1, None], pa.int32())}
    table = written(tmp_path / "table", columns)
    found = check(tmp_path, table)
    assert found.refusals == []
    null, repeated = found.warnings
    assert null.startswith(f"1 rows of {table} have no key (id)")
    assert repeated.startswith(f"1 keys (id) of {table} belong to more than one row")
    monkeypatch.setattr(preflight, "_ROWS", 2)
    found = check(tmp_path, table)
    assert found.warnings == []
    assert found.unchecked == [f"{table} has 3 rows (limit: 2): its keys were not checked for duplicates and nulls"]


def test_a_store_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = Event()

    def open_delta(_: object) -> None:
        asked.wait(60)
        raise OSError("no answer")

    monkeypatch.setattr(preflight, "_SECONDS", 0.01)
    monkeypatch.setattr(preflight, "open_delta", open_delta)
    try:
        found = check(tmp_path, "s3://bucket/table?region=none")
    finally:
        asked.set()
    assert found.refusals == []
    assert "did not answer" in found.unchecked[0]


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path):
    table = written(tmp_path / "table")
    began(tmp_path, table)
    assert check(tmp_path, table, columns={"id": "bigint", "zip": "string"}).refusals == []
    assert "zip is stored as large_string" in refusal(check(tmp_path, table, columns={"zip": "bigint"}))
    assert "now it is decimal128(20, 0)" in refusal(check(tmp_path, table, columns={"id": "uint64"}))
    assert "has 4 shards" in refusal(check(tmp_path, table, shards=8))
    other = written(tmp_path / "other")
    assert "belongs to another job" in refusal(check(tmp_path, other))
    changed = check(tmp_path, table, {"same_city": {"fd": "city -> zip"}, "new": {"deny": "t.id > 9"}})
    assert changed.refusals == []
    assert list(changed.revision.lines()) == ["same_city denies something else", "new is new"]


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("note", None, None),
        ("note", pa.array([1, 2, 3]), None),
        ("id", pa.array([1, 2, 3], pa.int64()), None),
        ("id", pa.array([1, 2, 3], pa.int16()), "changes the column id from int to smallint"),
        ("zip", pa.array([1, 2, 3]), "changes the column zip from string to bigint; it is read by same_city"),
        ("city", None, "drops the column city, which is read by same_city"),
    ],
)
def test_a_change_of_schema_is_refused_only_where_a_rule_reads_the_column(
    tmp_path: Path, column: str, values: Any, said: str | None
):
    table = written(tmp_path / "table")
    began(tmp_path, table)
    changed = {name: value for name, value in {**ROWS, column: values}.items() if value is not None}
    write_deltalake(table, pa.table(changed), mode="overwrite", schema_mode="overwrite")
    found = check(tmp_path, table)
    if said is None:
        assert found.refusals == []
        return
    assert refusal(found).startswith(f"version 1 of {table} {said}")
    assert "--take-over" in refusal(found)
    # Changed back: rows of the other type are still in between.
    write_deltalake(table, pa.table(ROWS), mode="overwrite", schema_mode="overwrite")
    assert refusal(check(tmp_path, table)).startswith(f"version 1 of {table} {said}")


def test_every_command_refuses_what_run_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "400")
    table = written(tmp_path / "table")
    began(tmp_path, table)
    changed = {**ROWS, "zip": pa.array([1, 2, 3])}
    write_deltalake(table, pa.table(changed), mode="overwrite", schema_mode="overwrite")
    job = tmp_path / "job.yaml"
    job.write_text(text_of(tmp_path, table))
    for command in (["run", "--once"], ["plan"], ["validate"], ["doctor"]):
        assert weever([*command, str(job)]) == 3, command
        said = "".join(capsys.readouterr())
        assert "changes the column zip from string to bigint" in said, command
        assert "starting Spark" not in said, command
    write_deltalake(table, pa.table(ROWS), mode="overwrite", schema_mode="overwrite")


def test_a_checkpoint_is_shown_as_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table = written(tmp_path / "table")
    job = tmp_path / "job.yaml"
    (tmp_path / "[prod]").mkdir()
    job.write_text(text_of(tmp_path / "[prod]", table))
    assert weever(["plan", str(job)]) == 0
    assert f"the checkpoint {read_job(job, {}).state.checkpoint} is empty" in capsys.readouterr().out
    assert "/[prod]/" in read_job(job, {}).state.checkpoint


def test_rules_that_may_not_change_are_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table = written(tmp_path / "table")
    began(tmp_path, table)
    job = tmp_path / "job.yaml"
    job.write_text(text_of(tmp_path, table, {"same_city": {"fd": "city -> note"}}))
    assert weever(["run", "--once", str(job)]) == 3
    said = "".join(capsys.readouterr())
    assert "made for other rules: same_city denies something else" in said
    assert "starting Spark" not in said
    for command, code in ((["plan"], 0), (["doctor"], 3)):
        assert weever([*command, str(job)]) == code, "a person may change them, nobody else"
        assert "same_city" in "".join(capsys.readouterr())
    job.write_text(text_of(tmp_path, table, {"same_city": {"fd": "city -> note"}}, rule_changes="reject"))
    assert weever(["plan", str(job)]) == 3
    assert "`state.rule_changes` is reject" in "".join(capsys.readouterr())


def owned_table(path: Path, owner: str = "another") -> None:
    write_deltalake(path, pa.table({"rule": ["r"]}))
    commit = path / "_delta_log" / "00000000000000000000.json"  # deltalake itself writes no such property
    commit.write_text(commit.read_text().replace('"configuration":{', f'"configuration":{{"weever.owner":"{owner}"'))


@pytest.mark.parametrize("kind", ["delta", "files", "quarantine"])
def test_a_sink_of_another_run_is_known_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
):
    table, found = written(tmp_path / "table"), tmp_path / "found"
    job = tmp_path / "job.yaml"
    sinks = [{"kind": kind, "path": str(found)}]
    job.write_text(job_text({"kind": "delta", "path": table}, tmp_path, RULES, columns={}, sinks=sinks))
    assert weever(["plan", str(job)]) == 0, "nobody has written there yet"
    if kind != "files":
        owned_table(found / {"delta": "open", "quarantine": "keys"}[kind])
    else:
        found.mkdir()
        (found / "_owner").write_text(json.dumps({"query_id": "another"}))
    capsys.readouterr()
    for command, code in ((["run", "--once"], 4), (["plan"], 3), (["validate"], 0), (["doctor"], 3)):
        assert weever([*command, str(job)]) == code, command
        said = " ".join("".join(capsys.readouterr()).split())
        assert "holds the violations of another run" in said, command
        assert "--take-over" in said, command
        assert "starting Spark" not in said, command
    (tmp_path / "checkpoint").mkdir(exist_ok=True)
    (tmp_path / "checkpoint" / "metadata").write_text(json.dumps({"id": "another"}))
    assert weever(["plan", str(job)]) == 0, "it is this checkpoint's own"
    job.write_text(job.read_text().replace(f"{tmp_path}/checkpoint", f"file://{tmp_path}/checkpoint"))
    assert weever(["plan", str(job)]) == 0, "by its URI too"
    (tmp_path / "checkpoint" / "metadata").write_text('{"id": "ano')
    assert weever(["plan", str(job)]) == 0, "a torn metadata file is left to the start"


def places(folder: Path, **given: Any) -> Preflight:
    """What is found of a job over a folder of files."""
    source = {"kind": "files", "path": str(given.pop("source", folder))}
    return check_job(job_of(read_rules_text(job_text(source, folder, **given))))


def test_another_jobs_table_under_the_same_path_is_accepted(tmp_path: Path):
    owned_table(tmp_path / "found" / "open")
    log = {"kind": "delta", "path": str(tmp_path / "found"), "tables": ["log"]}
    assert not places(tmp_path, sinks=[log]).not_ours
    assert places(tmp_path, sinks=[{**log, "tables": ["open"]}]).not_ours


@pytest.mark.parametrize("name", ["HADOOP_CONF_DIR", "DATABRICKS_RUNTIME_VERSION"])
def test_folders_that_need_not_be_local_are_left_to_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    (tmp_path / "file").write_text("")
    sinks = [{"kind": "delta", "path": str(tmp_path / "file" / "found")}]
    assert len(places(tmp_path, source=tmp_path / "none", sinks=sinks).refusals) == 2
    monkeypatch.setenv(name, "x")
    assert not places(tmp_path, source=tmp_path / "none", sinks=sinks).refusals


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path):
    name = "x" * 300
    sinks = [{"kind": "delta", "path": str(tmp_path / name)}]
    (refused,) = places(tmp_path, source=tmp_path / name, sinks=sinks).refusals
    assert "cannot be read: File name too long" in str(refused)


def test_folders_that_are_not_there_or_cannot_be_written_are_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    job, file = tmp_path / "job.yaml", tmp_path / "file"
    file.write_text("")
    source = {"kind": "files", "path": str(tmp_path / "none")}
    sinks = [{"kind": "delta", "path": str(file / "found")}]
    job.write_text(job_text(source, tmp_path, sinks=sinks))
    for command in (["plan"], ["doctor"]):
        assert weever([*command, str(job)]) == 3, command
        said = " ".join("".join(capsys.readouterr()).split())
        assert "there is no folder" in said, command
        assert "cannot be written" in said, command
    assert weever(["run", str(job)]) in (3, 4)
    assert "starting Spark" not in "".join(capsys.readouterr())


def test_a_source_that_may_skip_commits_is_refused_at_once_where_a_column_is_dropped(tmp_path: Path):
    table = written(tmp_path / "table")
    began(tmp_path, table)
    for file in (Path(schemas_of(job_of(read_rules_text(text_of(tmp_path, table)))).uri) / "_schema_log").iterdir():
        file.unlink()  # Delta logs no schemas for such a source
    options = {"failOnDataLoss": "false"}
    write_deltalake(table, pa.table({**ROWS, "more": [1, 2, 3]}), mode="append", schema_mode="merge")
    assert not check(tmp_path, table, options=options).refusals, "a column that is added is followed"
    dropped = {name: values for name, values in ROWS.items() if name != "note"}
    write_deltalake(table, pa.table(dropped), mode="overwrite", schema_mode="overwrite")
    said = refusal(check(tmp_path, table, options=options))
    assert said.startswith(f"version 2 of {table} drops or changes the column more")
    assert "failOnDataLoss" in said
    DeltaTable(table).create_checkpoint()
    (Path(table) / "_delta_log" / "00000000000000000000.json").unlink()
    left = check(tmp_path, table, options=options)
    assert not left.refusals
    assert any("the schema of" in one for one in left.unchecked), "the log of what was read is cleaned up"
