"""No name that is read from somewhere leads outside of the folder that it belongs to.

Catches: a forged manifest that makes a job read, map or delete other people's files; a link in the run store through
which `weever state gc` deletes what is not its own; copies of rows in a folder that other users can read or plant; a
reference to a device that never ends; a rule's name that becomes a path.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.detect.drawn import RULES, SCHEMA, small_runs
from tests.stream.simulated import Simulation, change_frame, setup_of
from tests.stream.test_work import Feed
from weever_stream.errors import RuleError, StateError
from weever_stream.rules import read_rules_text
from weever_stream.rules.references import MAX_SECRET
from weever_stream.state.inspect import orphans
from weever_stream.state.manifest import Manifest
from weever_stream.state.store import RunStore, StoredFile, StoreOptions, _make_private

NAMES = [
    "../victim",
    "00000/../../victim",
    "./../victim",
    "00000/..",
    "..",
    ".",
    "",
    "/",
    "//etc/passwd",
    "00000//x.run",
    "00000/",
    "a\\..\\..\\victim",
    "00000/x\x00.run",
    "00000/x\n.run",
    "00000/\x1b[31m.run",
    "~/victim",
    "00000/%2e%2e/victim",
    "s3://bucket/victim",
    "00000/x.run?versionId=1",
]


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(b"not yours")
    return path


@pytest.mark.parametrize("name", [*NAMES, "ABSOLUTE"])
def test_a_name_that_leads_outside_is_neither_read_nor_deleted(name: str, victim: Path):
    store = RunStore(StoreOptions(str(victim.parent / "runs")))
    name = str(victim) if name == "ABSOLUTE" else name
    with pytest.raises(StateError, match="the state names the file") as read:
        store.read(StoredFile(name, 9, 0))
    with pytest.raises(StateError, match="the state names the file"):
        store.delete([name])
    assert victim.read_bytes() == b"not yours"
    assert "\x1b" not in read.value.render()


def test_the_names_that_the_store_gives_are_taken(tmp_path: Path):
    store = RunStore(StoreOptions(str(tmp_path / "runs")))
    file = store.write("00000/0000000007-0123abcd", [b"a run"])
    assert bytes(store.read(file)) == b"a run"
    assert store.delete([file.name]) == [file.name]


def some_runs(folder: Path) -> tuple[Simulation, Feed]:
    setup = setup_of([RULES["dependency"]], SCHEMA, ("id",), str(folder), shards=1, inline_bytes=0, retain_batches=2)
    stream, feed = Simulation(setup), Feed(3, images=False)
    for _ in range(3):
        stream.batch([change_frame(feed.batch(30), SCHEMA)])
    return stream, feed


def test_a_forged_manifest_stops_the_job_and_touches_nothing(victim: Path):
    with small_runs():
        stream, feed = some_runs(victim.parent / "runs")
        ((shard, state),) = stream.states.items()
        for name in ("../victim", str(victim)):
            forged = Manifest.load(state, "")
            forged.retired.append((-1000, name))
            stream.states[shard] = forged.dump()
            stream.restart()
            with pytest.raises(StateError, match="the state names the file"):
                stream.batch([change_frame(feed.batch(5), SCHEMA)])
            forged = Manifest.load(state, "")
            for family in forged.families.values():
                for run in family.runs:
                    run.file = run.file and replace(run.file, name=name)
            stream.states[shard] = forged.dump()
            stream.restart()
            with pytest.raises(StateError, match="the state names the file"):
                stream.batch([change_frame(feed.batch(5), SCHEMA)])
            stream.states[shard] = state
    assert victim.read_bytes() == b"not yours"


def test_links_in_the_store_lead_nowhere(tmp_path: Path):
    store = RunStore(StoreOptions(str(tmp_path / "runs")))
    file = store.write("00000/1", [b"a run"])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0000000001-x-0.run").write_bytes(b"not yours")
    os.symlink(outside, tmp_path / "runs" / "00002")
    os.symlink(outside / "0000000001-x-0.run", tmp_path / "runs" / "00000" / "0000000001-link-0.run")
    (tmp_path / "runs" / "notes.txt").write_text("put here by a person")
    (tmp_path / "runs" / "00000" / "README.md").write_text("this one too")
    before = time.time() + 60
    for path in (tmp_path / "runs").rglob("*"):
        os.utime(path, (before - 7200,) * 2)
    found = [name for name, _ in orphans([Manifest(5)], store, 0)]
    assert sorted(found) == ["00000/0000000001-link-0.run", file.name], "neither behind links nor of strangers"
    with pytest.raises(StateError, match="the state names the file"):
        store.delete(["00002/0000000001-x-0.run"])
    with pytest.raises(StateError, match="the state names the file"):
        store.read(StoredFile("00002/0000000001-x-0.run", 9, 0))
    with pytest.raises(StateError, match="the state names the file"):
        store.write("00002/1", [b"a run"])
    assert store.delete(found) == found, "a link is deleted, not what it leads to"
    assert (outside / "0000000001-x-0.run").read_bytes() == b"not yours"
    assert len(list(outside.iterdir())) == 1


def test_a_checkpoint_that_is_a_link_itself_is_as_good_as_its_folder(tmp_path: Path):
    (tmp_path / "disk").mkdir()
    os.symlink(tmp_path / "disk", tmp_path / "runs")
    store = RunStore(StoreOptions(str(tmp_path / "runs")))
    file = store.write("00000/1", [b"a run"])
    assert bytes(store.read(file)) == b"a run"
    assert [name for name, _, _ in store.listed()] == [file.name]


def test_copies_of_rows_are_for_their_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "weever-runs"
    _make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    _make_private(folder)
    folder.chmod(0o755)
    with pytest.raises(StateError, match="can be read or written by others"):
        _make_private(folder)
    folder.chmod(0o700)
    os.symlink(folder, tmp_path / "link")
    with pytest.raises(StateError, match="can be read or written by others"):
        _make_private(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: os.stat(folder).st_uid + 1)
    with pytest.raises(StateError, match="can be read or written by others"):
        _make_private(folder)


def resolved(reference: str) -> Any:
    file = read_rules_text(f"table: x\nrules: []\nsource: {{options: {{a: '${{{reference}}}'}}}}", path="f.yaml")
    filled = file.resolve({"NAME": "value"}).source
    assert filled is not None
    return filled["options"]["a"].reveal()


def test_a_reference_is_to_a_plain_file_of_bounded_size(tmp_path: Path):
    whole = tmp_path / "secret"
    whole.write_bytes(b"x" * MAX_SECRET)
    os.symlink(whole, tmp_path / "link")  # Kubernetes mounts secrets as links
    assert resolved(f"file:{tmp_path}/link") == "x" * MAX_SECRET
    whole.write_bytes(b"x" * (MAX_SECRET + 1))
    with pytest.raises(RuleError, match="is larger than"):
        resolved(f"file:{whole}")
    os.mkfifo(tmp_path / "pipe")
    for name in ("/dev/zero", f"{tmp_path}/pipe"):
        with pytest.raises(RuleError, match="is no plain file"):
            resolved(f"file:{name}")
    for name in (str(tmp_path), "", "/no/such", "a\\0b"):
        with pytest.raises(RuleError, match=r"cannot be read|is no plain file") as raised:
            resolved(f"file:{name}")
        assert raised.value.place is not None
    whole.write_bytes(b"\xff\xfe")
    with pytest.raises(RuleError, match="is not UTF-8"):
        resolved(f"file:{whole}")


def test_a_reference_inside_a_secret_is_not_followed():
    """What a secret says is text: it does not open another file."""
    file = read_rules_text("table: x\nrules: []\nsource: {options: {a: '${env:A}'}}")
    filled = file.resolve({"A": "${file:/etc/passwd}"}).source
    assert filled is not None
    assert filled["options"]["a"].reveal() == "${file:/etc/passwd}"
