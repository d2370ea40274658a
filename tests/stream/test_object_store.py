"""Run files on an object store, over the real S3 protocol, with copies in a local cache.

Catches: state that differs between a disk and an object store; a run file that is gone, torn or changed there and is
read all the same; a bad copy in the cache that outlives the repair of the file; credentials in a message.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.detect.drawn import RULES, SCHEMA, small_runs
from tests.stream.servers.s3 import ObjectStore
from tests.stream.simulated import Simulation, change_frame, setup_of
from tests.stream.test_work import Feed, truth
from weever_stream.errors import OutputError, StateError
from weever_stream.state import lease as lease_module
from weever_stream.state.inspect import orphans
from weever_stream.state.lease import Lease
from weever_stream.state.leasenote import open_note
from weever_stream.state.manifest import Manifest
from weever_stream.state.notes import Notes
from weever_stream.state.store import RunStore, StoreOptions

pytestmark = pytest.mark.slow

SOME = [RULES[name] for name in ("dependency", "crossed", "no_equality")]


@pytest.fixture(scope="module")
def s3() -> Iterator[ObjectStore]:
    with ObjectStore() as store:
        yield store


def options(s3: ObjectStore, folder: str, cache: Path, **more: Any) -> StoreOptions:
    return StoreOptions(f"s3://{s3.bucket}/{folder}", {**s3.options, **more}, str(cache))


def test_a_job_whose_runs_are_on_s3_agrees_with_the_truth(s3: ObjectStore, tmp_path: Path):
    setup = setup_of(SOME, SCHEMA, ("id",), "unused", shards=2, inline_bytes=0, retain_batches=2)
    setup = replace(setup, store=options(s3, "job/runs", tmp_path / "cache"))
    feed, stream = Feed(6, images=False), Simulation(setup)
    with small_runs():
        for number in range(5):
            stream.batch([change_frame(feed.batch(20), SCHEMA)])
            stream.restart()
            if number == 2:  # another machine: its cache is empty
                stream.setup = replace(setup, store=options(s3, "job/runs", tmp_path / "elsewhere"))
                stream.restart()
            assert set(stream.open) == truth(SOME, feed.table, ("id",))
    named = {name for state in stream.states.values() for name in Manifest.load(state, "").files()}
    assert {name for name, _, _ in stream.work.store.listed()} == named
    assert any((tmp_path / "cache").rglob("*.run"))
    assert any((tmp_path / "elsewhere").rglob("*.run"))


def test_files_that_are_gone_or_changed_are_refused_by_name_until_they_are_mended(s3: ObjectStore, tmp_path: Path):
    where = options(s3, "damaged", tmp_path)
    file = RunStore(where).write("00001/7", [b"a" * 1000, b"b"])
    files, path = s3.filesystem(), f"{s3.bucket}/damaged/{file.name}"
    with files.open_input_file(path) as whole:
        content = whole.read()
    assert len(content) == 1001
    for torn in (content[:-1], b"", content[:-1] + b"c"):
        with files.open_output_stream(path) as out:
            out.write(torn)
        for copy in tmp_path.rglob("*.run"):
            copy.unlink()  # the host that wrote it has a copy; another has not
        with pytest.raises(StateError, match=file.name) as raised:
            RunStore(where).read(file)
        assert s3.secret_key not in raised.value.render()
    files.delete_file(path)
    with pytest.raises(StateError, match=f"{file.name} is missing"):
        RunStore(where).read(file)
    with files.open_output_stream(path) as out:
        out.write(content)
    assert bytes(RunStore(where).read(file)) == content
    for copy in tmp_path.rglob("*.run"):
        copy.write_bytes(b"x" * 1001)
    with pytest.raises(StateError, match="is torn or was changed"):
        RunStore(where).read(file)
    assert bytes(RunStore(where).read(file)) == content, "a bad copy is fetched again"


def test_orphans_and_notes_are_found_on_s3(s3: ObjectStore, tmp_path: Path):
    where = options(s3, "notes/weever", tmp_path)
    notes, runs = Notes(where), RunStore(options(s3, "notes/weever/runs", tmp_path))
    assert notes.read("job.json") is None
    notes.write("job.json", {"one": 1})
    notes.write("job.json", {"two": 2})
    assert Notes(where).read("job.json") == {"two": 2}
    file = runs.write("00000/1", [b"left behind"])
    assert orphans([Manifest(1)], runs, 3600) == []
    assert orphans([Manifest(0)], runs, -60) == [], "its batch may be under way"
    assert orphans([Manifest(1)], runs, -60) == [(file.name, 11)]
    assert runs.delete([file.name]) == [file.name]
    assert list(runs.listed()) == []


def test_a_store_that_refuses_or_is_not_there_is_told_without_secrets(s3: ObjectStore, tmp_path: Path):
    nowhere = replace(options(s3, "runs", tmp_path), uri="s3://no-such-bucket/runs")
    with pytest.raises(OutputError, match=r"the run file 00000/1-\w+\.run could not be written") as raised:
        RunStore(nowhere).write("00000/1", [b"x"])
    assert s3.secret_key not in raised.value.render()
    assert s3.secret_key not in repr(nowhere)
    with pytest.raises(StateError, match=r"cannot be opened for run files: TypeError"):
        RunStore(options(s3, "runs", tmp_path, no_such_option=1))


def test_of_two_that_take_a_lease_at_once_one_gets_it(s3: ObjectStore, tmp_path: Path):
    one, two = (open_note(options(s3, "raced/weever", tmp_path)) for _ in range(2))
    assert one.conditional
    assert one.read() is None
    assert two.read() is None, "both have seen that nobody holds it"
    assert one.replace({"token": "one"})
    assert not two.replace({"token": "two"})
    assert two.read() == {"token": "one"}
    # The same for one that both have seen to be stale, and for a holder that slept while another took it.
    assert two.replace({"token": "two"})
    assert not one.replace({"token": "one", "renewed": 1})
    assert one.read() == {"token": "two"}


def test_a_lease_on_s3_is_held_lost_and_given_back(s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    where = options(s3, "lease/weever", tmp_path)
    monkeypatch.setattr(lease_module, "gettempdir", lambda: str(tmp_path / "host"))
    monkeypatch.setattr(lease_module, "RENEWED_EVERY", 0.05)
    with Lease(where) as lease:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(lease_module, "_HELD", {})
            elsewhere.setattr(lease_module, "gettempdir", lambda: str(tmp_path / "host2"))
            with pytest.raises(StateError, match="is in use by weever run"):
                Lease(where).take()
        lease.check()
        renewed = (Notes(where).read("lease.json") or {})["renewed"]
        end = time.monotonic() + 30
        while (Notes(where).read("lease.json") or {})["renewed"] == renewed:
            assert time.monotonic() < end
            time.sleep(0.02)
        Notes(where).write("lease.json", {"token": "x", "what": "weever run", "host": "h", "pid": 7, "since": "now"})
        while lease.lost is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        with pytest.raises(StateError, match="it is held by weever run on h"):
            lease.check()
    assert (Notes(where).read("lease.json") or {})["token"] == "x", "what is another's stays"
    Notes(where).write("lease.json", {"token": "x", "renewed": 0})
    with Lease(where) as again:
        again.check()


def test_an_option_that_only_arrow_knows_leaves_a_plain_note(
    s3: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    note = open_note(options(s3, "plain/weever", tmp_path, request_timeout=5))
    assert not note.conditional
    assert note.replace({"token": "one"})
    assert note.read() == {"token": "one"}
    assert [record.message for record in caplog.records] == ["lease_is_weak"]
    assert s3.secret_key not in str([vars(record) for record in caplog.records])


def test_a_journal_on_s3_comes_back_and_is_tidied(s3: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tests.state.test_journal import Sums, changes, wanted
    from weever_stream.state import journal as module
    from weever_stream.state.journal import Journal

    monkeypatch.setattr(module, "SMALL", 1800)
    where, held = options(s3, "journal", tmp_path), Sums([])
    journal = Journal(where)
    for batch in range(9):
        held.apply(changes(batch))
        if batch:
            journal.note(batch, changes(batch))
        if journal.due(batch):
            journal.dump(batch, held.dump)
        journal.tidy(batch)
    again = Journal(where)
    for batch in (8, 9):
        found = again.restore(batch, Sums.load, Sums.apply)
        assert found is not None
        assert found.numbers == wanted(batch)
    names = [name for name, _, _ in RunStore(where).listed()]
    assert len([name for name in names if name.startswith("dump")]) <= 2
    again.forget(8)
    assert "changes-8" not in [name for name, _, _ in RunStore(where).listed()]
