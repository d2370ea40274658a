"""Events of OpenLineage, as a catalog on loopback receives them.

Catches: events that a catalog refuses because a field is missing or misspelt; a rule that is not told of; a catalog that
is down, slow or sends the job elsewhere and so holds up a batch or gets the key; a thread that outlives the job.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.observe.reports import RULES, report
from weever_stream.errors import EngineError
from weever_stream.job.job import Job, job_of
from weever_stream.job.options import Metrics as Settings
from weever_stream.observe import logs
from weever_stream.observe.lineage import Lineage, dataset_of, lineage_of
from weever_stream.observe.watch import watching
from weever_stream.rules import parse_rule, read_rules_text

KEY = "CANARYKEY17"
ASSERTION = {
    "assertion": str, "success": bool, "column": str, "severity": str, "name": str, "description": str, "expected": str,
    "actual": str, "content": str, "contentType": str, "params": dict,
}  # fmt: skip
"""The fields of an assertion in version 1-1-0 of the facet."""


class Catalog(ThreadingHTTPServer):
    """Takes events, and answers as it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.taken: list[tuple[str, str | None, dict[str, Any]]] = []
        self.status = 201
        self.hold = threading.Event()
        self.hold.set()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def events(self) -> list[dict[str, Any]]:
        return [event for _, _, event in self.taken]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        catalog: Catalog = self.server  # type: ignore[assignment]
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/json"
        catalog.taken.append((self.path, self.headers["Authorization"], event))
        catalog.hold.wait(30)
        self.send_response(catalog.status)
        if catalog.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with Catalog() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.hold.set()
        server.shutdown()
        thread.join()


def job(source: str = "{kind: delta, path: s3a://lake/packages}") -> Job:
    text = "table: packages\nkey: code\nrules: [{name: r, fd: zip -> city}]\nstate: {checkpoint: /c}\n"
    return job_of(read_rules_text(f"{text}source: {source}\n").resolve({"BROKERS": "secret:9092"}))


def made(catalog: Catalog, **more: Any) -> Lineage:
    options = {"run_id": str(uuid4()), "key": KEY, "every": 0.01, **more}
    return Lineage(f"{catalog.url}/api/v1/lineage", ("s3a://lake", "packages"), "packages", RULES.rules, **options)


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@contextmanager
def quiet_threads() -> Iterator[None]:
    yield
    until(lambda: not any(thread.name == "weever lineage" for thread in threading.enumerate()), "the thread ends")


def test_a_run_is_told_from_start_to_end(catalog: Catalog):
    environ = {"OPENLINEAGE_URL": f"{catalog.url}/", "OPENLINEAGE_API_KEY": KEY, "OPENLINEAGE_NAMESPACE": "shop"}
    whole = job()

    def lineage(run_id: str) -> Lineage | None:
        return lineage_of(whole, environ, run_id)

    with quiet_threads(), watching(whole.name, whole.file, Settings(), notice=lambda _: None, lineage=lineage) as watch:
        until(lambda: catalog.taken, "the start")
        watch.batch(report(0, open={"r": 4}, unlisted={"r": 3}))
    assert [event["eventType"] for event in catalog.events()] == ["START", "COMPLETE"], "the end does not wait a minute"
    for path, authorization, event in catalog.taken:
        assert path == "/api/v1/lineage"
        assert authorization == f"Bearer {KEY}"
        assert event.keys() == {"eventTime", "eventType", "producer", "schemaURL", "run", "job", "inputs", "outputs"}
        assert datetime.fromisoformat(event["eventTime"].replace("Z", "+00:00")).utcoffset() is not None
        assert event["job"] == {"namespace": "shop", "name": f"weever.{whole.name}"}
        assert re.fullmatch(
            r"https://openlineage\.io/spec/\d-\d-\d/OpenLineage\.json#/\$defs/RunEvent", event["schemaURL"]
        )
        assert str(UUID(event["run"]["runId"])) == event["run"]["runId"]
    start, end = catalog.events()
    assert start["run"] == end["run"]
    assert start["inputs"] == [{"namespace": "s3://lake", "name": "packages"}], "nothing is known yet"
    [table] = end["inputs"]
    facet = table["inputFacets"]["dataQualityAssertions"]
    assert facet["_schemaURL"].endswith(
        "/1-1-0/DataQualityAssertionsDatasetFacet.json#/$defs/DataQualityAssertionsDatasetFacet"
    )
    assert facet["_producer"] == end["producer"]
    [told] = facet["assertions"]
    assert told == {
        "assertion": "functional_dependency", "success": False, "severity": "error", "name": "r", "expected": "0",
        "actual": "7", "content": "t.zip = s.zip and t.city != s.city", "contentType": "weever",
        "params": {"severity": "error", "fingerprint": whole.file.rules[0].fingerprint},
    }  # fmt: skip


def test_every_rule_is_told_in_the_words_of_the_facet(catalog: Catalog):
    with quiet_threads(), made(catalog) as lineage:
        lineage.batch(report(0, unlisted={}))
        until(lambda: any(event["eventType"] == "RUNNING" for event in catalog.events()), "a batch is told")
    facet = catalog.events()[-1]["inputs"][0]["inputFacets"]["dataQualityAssertions"]
    assert {
        told["name"]: (told["success"], told["actual"], told["severity"], told["assertion"])
        for told in facet["assertions"]
    } == {
        "zip_determines_city": (False, "87", "error", "functional_dependency"),
        "code_is_unique": (False, "1", "error", "unique"),
        "never_broken": (True, "0", "warn", "functional_dependency"),
    }
    for told in facet["assertions"]:
        assert all(isinstance(value, ASSERTION[name]) for name, value in told.items())


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("t.a = s.a", "unique"),
        ("t.a = s.a and t.b = s.b", "unique"),
        ("t.a = s.a and t.b != s.b", "functional_dependency"),
        ("t.a = s.a and t.b != s.b and t.c != s.c", "denial_constraint"),
        ("t.a = s.b", "denial_constraint"),
        ("t.a < s.a", "denial_constraint"),
        ("t.a > 5", "denial_constraint"),
        ("t.a = s.a and t.b != s.b and t.c = 'x'", "denial_constraint"),
    ],
)
def test_rules_are_known_by_what_they_say(rule: str, kind: str):
    from weever_stream.observe.lineage import assertion

    assert assertion(parse_rule(rule), {}, {})["assertion"] == kind


def test_a_batch_that_changes_no_outcome_is_not_told(catalog: Catalog):
    with quiet_threads(), made(catalog) as lineage:
        until(lambda: catalog.taken, "the start")
        lineage.batch(report(0))
        until(lambda: len(catalog.taken) == 2, "the first batch")
        for batch in range(1, 50):
            lineage.batch(report(batch))
        lineage.batch(report(50, open={}))
        until(lambda: len(catalog.taken) == 3, "one that does")
    assert [event["eventType"] for event in catalog.events()] == ["START", "RUNNING", "RUNNING", "COMPLETE"]


def test_a_catalog_that_does_not_answer_holds_nothing_up(catalog: Catalog):
    catalog.hold.clear()
    with quiet_threads(), made(catalog) as lineage:
        until(lambda: catalog.taken, "the start")
        for batch in range(200):
            lineage.batch(report(batch, open={"zip_determines_city": batch}))
        assert len(catalog.taken) == 1, "it still has the first in hand"
        catalog.hold.set()
        until(lambda: len(catalog.taken) > 1, "the next")
    told = catalog.events()[1]["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"][0]
    assert told["actual"] == str(199 + 1000), "the latest, and none of those in between"


def test_a_catalog_that_refuses_is_told_of_once_and_not_followed(catalog: Catalog, capsys: pytest.CaptureFixture[str]):
    catalog.status = 302
    with logs.to_stderr({}), quiet_threads(), made(catalog) as lineage:
        for batch in range(5):
            seen = len(catalog.taken)
            lineage.batch(report(batch, open={"zip_determines_city": batch}))
            until(lambda seen=seen: len(catalog.taken) > seen, "each is tried")  # type: ignore[misc]
    assert {path for path, _, _ in catalog.taken} == {"/api/v1/lineage"}, "a redirect is not followed"
    told = capsys.readouterr().err
    assert told.count("the catalog does not take events reason=status 302") == 1, told
    assert KEY not in told


def test_a_catalog_that_is_not_there_is_no_reason_to_stop(capsys: pytest.CaptureFixture[str]):
    with Catalog() as gone:
        pass
    with logs.to_stderr({}), quiet_threads(), made(gone) as lineage:
        lineage.batch(report(0))
        until(lambda: "ConnectionRefusedError" in capsys.readouterr().err, "somebody is told")


def test_how_it_ended_is_told(catalog: Catalog):
    with quiet_threads():
        for error, _ in ((ValueError, "FAIL"), (KeyboardInterrupt, "ABORT")):
            with pytest.raises(error), made(catalog):
                raise error
    assert [event["eventType"] for event in catalog.events() if event["eventType"] != "START"] == ["FAIL", "ABORT"]


@pytest.mark.parametrize(
    ("source", "namespace", "name"),
    [
        ("{kind: delta, path: s3a://lake/shop/packages/}", "s3://lake", "shop/packages"),
        ("{kind: delta, path: 'abfss://box@account.dfs.core.windows.net/packages'}", "abfss://box@account.dfs.core.windows.net", "packages"),
        ("{kind: delta, path: 's3a://key:secret@lake/packages'}", "s3://lake", "packages"),
        ("{kind: delta, path: /lake/packages}", "file", "/lake/packages"),
        ("{kind: files, path: 'file:///feed'}", "file", "/feed"),
        ("{kind: delta, table: shop.packages}", "mine", "shop.packages"),
        ("{kind: kafka, servers: 'a:9092,b:9092', topic: t}", "kafka://a:9092", "t"),
        ("{kind: kafka, servers: '${env:BROKERS}', topic: t}", "kafka://", "t"),
    ],
)  # fmt: skip
def test_tables_have_the_names_that_others_give_them(source: str, namespace: str, name: str):
    assert dataset_of(job(source), "mine") == (namespace, name)


def test_it_is_off_unless_it_is_asked_for():
    assert lineage_of(job(), {}, "r") is None
    assert lineage_of(job(), {"OPENLINEAGE_URL": "http://x", "OPENLINEAGE_DISABLED": "true"}, "r") is None
    for url in ("marquez:5000", "file:///etc/passwd", "http://"):
        with pytest.raises(EngineError, match="OPENLINEAGE_URL is no address"):
            lineage_of(job(), {"OPENLINEAGE_URL": url}, "r")
