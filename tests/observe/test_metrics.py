"""Metrics over a real socket, fed by reports of batches.

Catches: a rule that appears only when it is first violated; a batch that is counted twice when Spark repeats it; numbers
that are made up where the source does not tell them; names that break the format or hide one another; a port that is
taken and found so only after Spark has started; a reader that can stop the job.
"""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.observe.reports import RULES, report
from weever_stream.cli import run
from weever_stream.errors import EngineError
from weever_stream.job.options import Metrics as Settings
from weever_stream.observe import logs
from weever_stream.observe.endpoint import Endpoint
from weever_stream.observe.metrics import Metrics
from weever_stream.observe.watch import Watch, watching
from weever_stream.rules import read_rules_text

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def samples(text: str) -> Samples:
    """Every sample by name and labels, without the job's and the table's."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = frozenset(
                (name, value) for name, value in sample.labels.items() if name not in ("job_name", "table")
            )
            assert (sample.name, labels) not in found, "a sample is told once"
            found[sample.name, labels] = sample.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


@pytest.fixture
def watch() -> Iterator[Watch]:
    with watching("nightly", RULES, Settings(), notice=lambda _: None) as opened:
        yield opened


@pytest.fixture
def scrape(watch: Watch) -> Iterator[Callable[[], Samples]]:
    with Endpoint(watch.metrics, "127.0.0.1", 0) as endpoint:
        yield lambda: samples(fetch(endpoint.url))


def test_every_rule_has_zeros_before_anything_has_happened(scrape: Callable[[], Samples]):
    found = scrape()
    severities = {"zip_determines_city": "error", "code_is_unique": "critical", "never_broken": "info"}
    names = (
        "violations_open",
        "violations_unlisted",
        "violations_opened_total",
        "violations_closed_total",
        "rule_drift",
    )
    for rule, severity in severities.items():
        for name in names:
            assert value(found, f"weever_{name}", rule=rule, severity=severity) == 0, (rule, name)
    for op in ("put", "drop", "clear"):
        assert value(found, "weever_changes_total", op=op) == 0
    for name in (
        "rejected_records_total",
        "stale_changes_total",
        "query_restarts_total",
        "batch_duration_seconds_count",
    ):
        assert value(found, f"weever_{name}") == 0, name
    [(_, versions)] = [key for key in found if key[0] == "weever_build_info"]
    assert {name for name, _ in versions} == {"version", "spark", "python"}


def test_a_batch_is_seen(watch: Watch, scrape: Callable[[], Samples]):
    before = time.time()
    watch.batch(report(0))
    watch.batch(report(1, seconds=400.0, stale=6, behind={"maxOffsetsBehindLatest": "17"}))
    found = scrape()
    zips, codes = (
        {"rule": "zip_determines_city", "severity": "error"},
        {"rule": "code_is_unique", "severity": "critical"},
    )
    assert value(found, "weever_violations_open", **zips) == 87
    assert value(found, "weever_violations_unlisted", **zips) == 1000
    assert value(found, "weever_violations_opened_total", **zips) == 4
    assert value(found, "weever_violations_closed_total", **zips) == 0
    assert value(found, "weever_violations_closed_total", **codes) == 2
    assert value(found, "weever_changes_total", op="put") == 18
    assert value(found, "weever_changes_total", op="drop") == 6
    assert value(found, "weever_rejected_records_total") == 6
    assert value(found, "weever_stale_changes_total") == 6, "reports have the sum, not what a batch adds"
    assert value(found, "weever_shard_seconds_total") == 1
    assert value(found, "weever_batch_duration_seconds_count") == 2
    assert value(found, "weever_batch_duration_seconds_sum") == 401.25
    buckets = {
        le: value(found, "weever_batch_duration_seconds_bucket", le=le)
        for le in ("1.0", "2.5", "300.0", "600.0", "+Inf")
    }
    assert buckets == {"1.0": 0, "2.5": 1, "300.0": 1, "600.0": 2, "+Inf": 2}
    assert value(found, "weever_source_lag_offsets") == 17
    assert value(found, "weever_state_rows") == 500
    assert value(found, "weever_state_bytes", place="state") == 4096
    assert value(found, "weever_state_bytes", place="files") == 1 << 20
    for name in ("last_batch", "last_success"):
        assert before <= (value(found, f"weever_{name}_timestamp_seconds") or 0) <= time.time()


def test_a_batch_that_spark_repeats_is_counted_once(watch: Watch, scrape: Callable[[], Samples]):
    watch.batch(report(4))
    once = scrape()
    watch.restart()
    watch.batch(report(4))
    watch.batch(report(3))
    again = scrape()
    counters = [
        key for key in once if key[0].startswith("weever_") and key[0].endswith(("_total", "_count", "_sum", "_bucket"))
    ]
    assert len(counters) > 20
    assert {key: again[key] for key in counters} == {
        key: 1.0 if key[0] == "weever_query_restarts_total" else once[key] for key in counters
    }
    watch.batch(report(5))
    assert value(scrape(), "weever_rejected_records_total") == 6


def test_what_is_not_known_is_absent_and_not_nothing(watch: Watch, scrape: Callable[[], Samples]):
    unknown = (
        "weever_last_batch_timestamp_seconds",
        "weever_source_lag_offsets",
        "weever_source_lag_files",
        "weever_state_rows",
    )
    found = scrape()
    assert all(value(found, name) is None for name in unknown)
    watch.batch(report(0, behind={"numFilesOutstanding": "3"}))
    assert value(scrape(), "weever_source_lag_files") == 3
    watch.batch(report(1, held={}))  # the source says nothing any more, and notes are of an older release
    found = scrape()
    assert all(value(found, name) is None for name in unknown[1:])
    assert value(found, "weever_state_bytes", place="state") is None


def test_a_job_goes_on_with_what_an_earlier_process_left_open(watch: Watch, scrape: Callable[[], Samples]):
    watch.metrics.resume(report(8).to_json())
    found = scrape()
    assert value(found, "weever_violations_open", rule="zip_determines_city", severity="error") == 87
    assert value(found, "weever_violations_opened_total", rule="zip_determines_city", severity="error") == 0
    watch.batch(report(9, stale=5))
    assert value(scrape(), "weever_stale_changes_total") == 1
    watch.batch(report(10, stale=0))  # rules were numbered anew, and the count with them
    watch.batch(report(11, stale=2))
    assert value(scrape(), "weever_stale_changes_total") == 3


def test_a_rule_drifts_from_the_batch_that_says_so_to_the_one_that_says_no_more(
    watch: Watch, scrape: Callable[[], Samples]
):
    zips = {"rule": "zip_determines_city", "severity": "error"}
    watch.batch(report(0, drifting=["zip_determines_city"]))
    assert value(scrape(), "weever_rule_drift", **zips) == 1
    assert value(scrape(), "weever_rule_drift", rule="never_broken", severity="info") == 0
    watch.batch(report(1))
    assert value(scrape(), "weever_rule_drift", **zips) == 0
    watch.metrics.resume({**report(2, drifting=["zip_determines_city", "of_long_ago"]).to_json()})
    found = scrape()
    assert value(found, "weever_rule_drift", **zips) == 1
    assert sum(name == "weever_rule_drift" for name, _ in found) == 3


def test_a_rule_that_is_backfilled_is_marked(watch: Watch, scrape: Callable[[], Samples]):
    zips = {"rule": "zip_determines_city", "severity": "error"}
    watch.batch(report(0, backfilling={"zip_determines_city": 0.25}))
    assert value(scrape(), "weever_rule_backfilling", **zips) == 1
    watch.batch(report(1))
    assert value(scrape(), "weever_rule_backfilling", **zips) == 0
    watch.metrics.resume(report(1, backfilling={"zip_determines_city": 0.5}).to_json())
    assert value(scrape(), "weever_rule_backfilling", **zips) == 1


def test_success_ages_while_a_batch_hangs_and_not_while_nothing_is_to_do():
    now = [1000.0]
    metrics = Metrics("nightly", "packages", RULES.rules, clock=lambda: now[0])

    def seen() -> tuple[float | None, float | None]:
        found = samples(metrics.text().decode())
        names = ("weever_last_success_timestamp_seconds", "weever_last_batch_timestamp_seconds")
        return value(found, names[0]), value(found, names[1])

    now[0] = 1500.0
    assert seen() == (1000, None), "a job that never gets anywhere ages from its start"
    metrics.idle()
    assert seen() == (1500, None)
    now[0] = 2000.0
    metrics.batch(report(0))
    now[0] = 3000.0
    assert seen() == (2000, 2000)


@pytest.mark.parametrize(
    "names",
    [
        ['a "quoted" \\name\\', "two\nlines", "tab\there", "Größe ≠ 0", "a}{b=c"],
        ["nul\0nul", "half \ud83d", "nul\\x00nul"],
    ],
)
def test_names_of_rules_can_be_anything(names: list[str]):
    from dataclasses import replace

    rules = [replace(RULES.rules[0], name=name) for name in names]
    metrics = Metrics('j"ob\n', 'tab"le\n', rules)
    metrics.batch(report(0, open={name: number for number, name in enumerate(names)}))
    with Endpoint(metrics, "127.0.0.1", 0) as endpoint:
        found = samples(fetch(endpoint.url))
    told = {
        dict(labels)["rule"]: number for (name, labels), number in found.items() if name == "weever_violations_open"
    }
    assert sorted(told.values()) == [*range(len(names))], "none hides another"
    for rule in names:
        if rule.isprintable():
            assert told[rule] == names.index(rule)
    assert all(rule.isprintable() for rule in told)


def test_alerts_are_counted_by_target_and_outcome(watch: Watch, scrape: Callable[[], Samples]):
    watch.metrics.targets(["ops", "mail"])
    watch.metrics.alert("ops", "sent")
    watch.metrics.alert("ops", "failed")
    watch.metrics.alert("ops", "failed")
    watch.metrics.alert("mail", "gave up")
    watch.metrics.queue("ops", 7)
    found = scrape()
    told = {(target, outcome): value(found, "weever_alerts_sent_total", target=target, outcome=outcome)
            for target in ("ops", "mail") for outcome in ("sent", "failed", "gave_up")}  # fmt: skip
    assert told == {("ops", "sent"): 1, ("ops", "failed"): 2, ("ops", "gave_up"): 0} | {
        ("mail", "sent"): 0, ("mail", "failed"): 0, ("mail", "gave_up"): 1,
    }  # fmt: skip
    assert value(found, "weever_alert_queue_length", target="ops") == 7
    assert value(found, "weever_alert_queue_length", target="mail") == 0


def test_only_metrics_and_health_are_served(watch: Watch):
    with Endpoint(watch.metrics, "127.0.0.1", 0) as endpoint:
        root = endpoint.url.removesuffix("/metrics")
        assert fetch(f"{root}/healthz") == "ok\n"
        assert "weever_build_info" in fetch(f"{endpoint.url}?name[]=weever_build_info")
        for path in ("/metrics/x", "/../etc/passwd", "/query"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                fetch(root + path)
            assert refused.value.code == 404
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(endpoint.url, data=b"weever_violations_open 0", timeout=10)
        assert refused.value.code == 405


def test_a_silent_reader_does_not_keep_others_waiting(watch: Watch):
    with Endpoint(watch.metrics, "127.0.0.1", 0) as endpoint:
        host, port = endpoint.url.removeprefix("http://").removesuffix("/metrics").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as silent:
            silent.sendall(b"GET /met")
            assert "weever_build_info" in fetch(endpoint.url)


def test_it_listens_on_ipv6_too(watch: Watch):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with Endpoint(watch.metrics, "::1", 0) as endpoint:
        assert endpoint.url.startswith("http://[::1]:")
        assert "weever_build_info" in fetch(endpoint.url)


def test_a_port_is_free_again_after_the_job(watch: Watch):
    with Endpoint(watch.metrics, "127.0.0.1", 0) as endpoint:
        fetch(endpoint.url)
        port = int(endpoint.url.split(":")[2].split("/")[0])
        with pytest.raises(EngineError, match=f"127.0.0.1:{port}: Address already in use"):
            Endpoint(watch.metrics, "127.0.0.1", port)
    Endpoint(watch.metrics, "127.0.0.1", port).close()


def job_file(folder: Path, metrics: str) -> str:
    path = folder / "job.yaml"
    path.write_text(
        f"table: rows\nkey: id\nrules:\n  - {{name: r, fd: a -> c}}\nsource: {{kind: files, path: {folder}}}\n"
        f"state: {{checkpoint: {folder}/checkpoint}}\nmetrics: {metrics}\n"
    )
    return str(path)


@pytest.mark.parametrize("by_option", [True, False])
def test_a_port_that_is_taken_is_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, by_option: bool
):
    monkeypatch.setattr("weever_stream.stream.session.session", lambda *_, **__: pytest.fail("Spark was started"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        path = job_file(tmp_path, "{port: 1}" if by_option else f"{{port: {port}}}")
        if by_option:
            monkeypatch.setenv("WEEVER_RUN_METRICS_PORT", str(port))
        assert run(["run", path]) == 3
    told = capsys.readouterr().err
    assert f"metrics cannot be served at 127.0.0.1:{port}: Address already in use" in told
    assert "--metrics-port" in told


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ("{port: 70000}", "`port`"),
        ("{port: 1, hots: x}", "there is no field `hots` here"),
        (
            "{file: /no/such/folder/weever.prom}",
            "metrics cannot be written to /no/such/folder/weever.prom: No such file",
        ),
        ("{host: 203.0.113.77, port: 0}", "metrics cannot be served at 203.0.113.77:0"),
    ],
)
def test_what_cannot_be_served_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, metrics: str, said: str
):
    monkeypatch.setattr("weever_stream.stream.session.session", lambda *_, **__: pytest.fail("Spark was started"))
    assert run(["run", job_file(tmp_path, metrics)]) == 3
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_the_file_is_replaced_after_every_batch_and_a_full_disk_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "metrics" / "weever.prom"
    path.parent.mkdir()
    with logs.to_stderr({}), watching("nightly", RULES, Settings(file=str(path)), notice=lambda _: None) as watch:
        assert value(samples(path.read_text()), "weever_rejected_records_total") == 0
        watch.batch(report(0))
        assert value(samples(path.read_text()), "weever_rejected_records_total") == 3
        path.unlink()
        path.parent.rmdir()
        watch.batch(report(1))
        watch.batch(report(2))
        path.parent.mkdir()
        watch.batch(report(3))
        assert value(samples(path.read_text()), "weever_rejected_records_total") == 12
        assert [file.name for file in path.parent.iterdir()] == ["weever.prom"]
    told = capsys.readouterr().err
    assert told.count(f"{path}: No such file or directory") == 1, told


def test_prometheus_is_not_loaded_by_those_who_do_not_ask():
    import subprocess
    import sys

    code = "import weever_stream, weever_stream.observe, weever_stream.observe.logs, sys; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_many_rules_are_read_in_one_go():
    from dataclasses import replace

    one = read_rules_text("table: t\nrules:\n  - {name: r, fd: a -> b}\n").rules[0]
    metrics = Metrics("nightly", "t", [replace(one, name=f"rule_{number}") for number in range(2_000)])
    metrics.batch(report(0, open={f"rule_{number}": number for number in range(2_000)}))
    found = samples(metrics.text().decode())
    assert value(found, "weever_violations_open", rule="rule_1999", severity="error") == 1999
