"""Job files: what is refused before Spark starts, and where the error points.

Catches: a typo that is taken for nothing, an error without its place, a secret in a message, paths that mean different
things to different readers, references that are refused where people use them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weever_stream.errors import RuleError, WeeverError
from weever_stream.job.job import default_name, job_of, read_job
from weever_stream.job.options import duration, revealed
from weever_stream.rules import read_rules_text

RULES = "table: packages\nkey: id\nrules:\n  - {name: one, unique: [a], spread: 4}\n"
SOURCE = "source: {kind: delta, path: /lake/packages}\n"
STATE = "state: {checkpoint: /lake/checkpoint}\n"


def refused(text: str) -> str:
    with pytest.raises(RuleError) as caught:
        job_of(read_rules_text(text, path="job.yaml"))
    return caught.value.render()


def test_a_small_job_has_sensible_defaults():
    job = job_of(read_rules_text(RULES + SOURCE + STATE))
    assert (job.state.shards, job.trigger, job.remember_drops) == (8, None, 0)
    assert [sink.kind for sink in job.sinks] == ["console"]
    assert job.connectors == {"delta"}
    assert job.file.rules[0].spread == 4


def test_a_file_feed_remembers_drops_unless_told_otherwise():
    files = "source: {kind: files, path: /in}\n"
    assert job_of(read_rules_text(RULES + files + STATE)).remember_drops == 100_000
    none = "source: {kind: files, path: /in, remember_drops: 0}\n"
    assert job_of(read_rules_text(RULES + none + STATE)).remember_drops == 0


def test_everything_that_is_missing_is_told_at_once():
    told = refused("table: t\nrules:\n  - {name: one, unique: [a]}\n")
    assert told.count("is missing") == 3
    assert "source: {kind: delta" in told


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("source: {kind: delt, path: x}\n" + STATE, "job.yaml:5:9", "one of delta, kafka, files"),
        (SOURCE + "state: {checkpoint: /x, shrds: 3}\n", "job.yaml:6:25", "did you mean shards?"),
        (SOURCE + "state: {checkpoint: /x, shards: 0}\n", "job.yaml:6:33", "greater than or equal to 1"),
        ("source: {kind: kafka, topic: t}\n" + STATE, "job.yaml:5:9", "`servers` is missing"),
        ("source: {kind: kafka, servers: x, topic: t, formt: json}\n" + STATE, "job.yaml:5:45", "did you mean format?"),
        ("source: {kind: delta}\n" + STATE, "job.yaml:5:9", "a path or a table"),
        (SOURCE + STATE + "trigger: 10\n", "job.yaml:7:10", "10 seconds"),
        (SOURCE + STATE + "sinks: [{kind: delta, path: /o, tables: [clsed]}]\n", "job.yaml:7:", "'log' or 'open'"),
    ],
)
def test_an_error_says_where_and_what(text: str, place: str, said: str):
    told = refused(RULES + text)
    assert place in told
    assert said in told
    assert "^" in told


def test_a_spread_of_one_is_no_spread():
    assert "spread" in refused(RULES.replace("spread: 4", "spread: 1") + SOURCE + STATE)


def test_local_paths_start_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    job = job_of(read_rules_text(RULES + "source: {kind: delta, path: lake}\nstate: {checkpoint: here/ck}\n"))
    assert job.source.path == str(tmp_path / "lake")
    assert job.state.checkpoint == str(tmp_path / "here/ck")


@pytest.mark.parametrize("uri", ["s3a://bucket/x", "dbfs:/mnt/x", "hdfs://n:1/x", "abfss://a@b/x", "file:///x"])
def test_a_uri_stays_as_it_is(uri: str):
    job = job_of(read_rules_text(f"{RULES}source: {{kind: delta, path: '{uri}'}}\nstate: {{checkpoint: '{uri}'}}\n"))
    assert (job.source.path, job.state.checkpoint) == (uri, uri)


def test_references_fill_paths_and_options_and_secrets_stay_secret(tmp_path: Path):
    path = tmp_path / "job.yaml"
    source = "source: {kind: kafka, servers: '${env:SERVERS}', topic: '${env:TOPIC}', options: {kafka.sasl.jaas.config: '${env:PASS}'}}"
    path.write_text(f"{RULES}columns: {{id: bigint, a: string}}\n{source}\nstate: {{checkpoint: '${{env:LAKE}}/ck'}}\n")
    job = read_job(path, {"SERVERS": "h:1", "TOPIC": "changes", "PASS": "WEEVERSECRET123", "LAKE": "/lake"})
    assert job.state.checkpoint == "/lake/ck"
    assert job.source.kind == "kafka"
    assert job.source.topic == "changes"
    assert "WEEVERSECRET123" not in repr(job)
    assert revealed(job.source.options)["kafka.sasl.jaas.config"] == "WEEVERSECRET123"
    with pytest.raises(WeeverError, match="PASS"):
        read_job(path, {"SERVERS": "h:1", "TOPIC": "changes", "LAKE": "/lake"})


@pytest.mark.parametrize(("text", "seconds"), [("10 seconds", 10), ("500 ms", 0.5), ("1 minute", 60), ("2h", 7200)])
def test_durations_are_written_with_their_unit(text: str, seconds: float):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten seconds", "-1 s", "1 fortnight"])
def test_other_durations_are_refused(text: str):
    with pytest.raises(ValueError, match="unit"):
        duration(text)


def test_learning_is_asked_for_and_has_small_defaults():
    assert job_of(read_rules_text(RULES + SOURCE + STATE)).learn is None
    learn = job_of(read_rules_text(RULES + SOURCE + STATE + "learn: {}\n")).learn
    assert learn is not None
    assert (learn.columns, learn.max_predicates, learn.cross, learn.order_text) == (None, 4, False, False)
    assert (learn.error, learn.sinks, learn.every) == (None, [], None)


@pytest.mark.parametrize(
    ("learn", "place", "said"),
    [
        ("{colums: [a]}", "job.yaml:7:9", "did you mean columns?"),
        ("{columns: []}", "job.yaml:7:18", "at least 1 item"),
        ("{columns: [a, b, a]}", "job.yaml:7:18", "names a twice"),
        ("{max_predicates: 0}", "job.yaml:7:25", "greater than or equal to 1"),
        ("{error: 1.0}", "job.yaml:7:16", "less than 1"),
        ("{every: soon}", "job.yaml:7:16", "10 seconds"),
        ("{sinks: [{kind: files, path: x}]}", "job.yaml:7:17", "one of delta, kafka"),
        ("{sinks: [{kind: delta, path: x, tables: [log]}]}", "job.yaml:7:40", "the fields are kind, path"),
        ("{sinks: [{kind: kafka, servers: x, topc: t}]}", "job.yaml:7:43", "did you mean topic?"),
    ],
)
def test_a_mistake_under_learn_is_told_with_its_place(learn: str, place: str, said: str):
    told = refused(RULES + SOURCE + STATE + f"learn: {learn}\n")
    assert place in told
    assert said in told


def test_a_sink_of_learned_rules_brings_its_connector_and_hides_its_secrets():
    learn = "learn: {sinks: [{kind: kafka, servers: b, topic: t, options: {kafka.sasl.jaas.config: '${env:JAAS}'}}]}\n"
    job = job_of(read_rules_text(RULES + SOURCE + STATE + learn).resolve({"JAAS": "s3cret"}))
    assert job.connectors == {"delta", "kafka"}
    assert "jaas" in str(job.settings["spark.redaction.regex"])
    assert "s3cret" not in repr(job)


def test_a_job_has_a_name_of_its_own():
    assert job_of(read_rules_text(RULES + SOURCE + STATE + "name: nightly\n")).name == "nightly"
    text = RULES + SOURCE + STATE + "name: packages-${env:STAGE}\n"
    assert job_of(read_rules_text(text).resolve({"STAGE": "staging"})).name == "packages-staging"
    assert job_of(read_rules_text(RULES + SOURCE + STATE)).name == "checkpoint-23bb559d"  # as it was, for ever
    for name in ("two words", "a/b", '"-a"', "x" * 65, "ä"):
        assert "`name` is not a valid name" in refused(RULES + SOURCE + STATE + f"name: {name}\n")


@pytest.mark.parametrize(
    "spellings",
    [
        ["/lake/packages", "/lake/packages/", "/lake//packages", "file:/lake/packages", "file:///lake/packages"],
        ["s3://bucket/packages", "s3a://bucket/packages/", "S3N://bucket/packages"],
        ["s3://other/packages", "s3a://other/packages"],
        ["hdfs://one:9000/packages"],
        ["/lake/staging/packages"],
        ["/", "file:///"],
    ],
)
def test_the_name_made_from_a_checkpoint_follows_its_location_and_not_its_spelling(spellings: list[str]):
    (name,) = {default_name(one) for one in spellings}
    assert name not in {default_name(other) for other in ("/packages", "s3://packages", "/lake/packages2")}
    assert re.fullmatch(r"(packages-)?[0-9a-f]{8}", name)
