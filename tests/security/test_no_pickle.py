"""State, notes, messages and dumps are data and never code.

Catches: a module that learns to unpickle; a reader that runs what somebody has put into a checkpoint. Each payload
would make a file if it were ever unpickled. Spark ships our functions to its workers by cloudpickle: that is code of
the installed package, not of the checkpoint.
"""

from __future__ import annotations

import ast
import base64
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weever_stream
from tests.detect.drawn import RULES, SCHEMA, small_runs
from tests.stream.simulated import Simulation, change_frame, setup_of
from tests.stream.test_work import Feed
from weever_stream.detect.detector import Detector
from weever_stream.detect.dump import _FORMAT as DUMP
from weever_stream.detect.sections import Format, pieces
from weever_stream.errors import StateError
from weever_stream.job.job import job_of
from weever_stream.rules import read_rules_text
from weever_stream.state.manifest import _FORMAT as MANIFEST
from weever_stream.state.manifest import Manifest
from weever_stream.state.notes import Notes
from weever_stream.state.store import RunStore, StoreOptions
from weever_stream.stream.messages import _FORMAT as MESSAGE
from weever_stream.stream.messages import Message
from weever_stream.stream.saved import ABOUT, saved_setup

CODE = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle", "_pickle"}
CALLS = {"eval", "exec", "compile", "__import__", "unsafe_load", "full_load", "read_pickle", "to_pickle"}
"""What runs a text, by the name under which it is called. `re.compile` and such have an owner and are meant."""


def modules() -> list[Path]:
    return sorted(Path(weever_stream.__file__).parent.rglob("*.py"))


def test_no_module_imports_what_runs_data():
    found = []
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module).partition(".")[0], *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [node.func.id] if node.func.id in CALLS else []
                found += [f"{path.name}:{node.lineno}: {name}" for name in names]
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found.append(f"{path.name}:{node.value.lineno}: allow_pickle")
            found += [f"{path.name}:{node.lineno}: {name}" for name in names if name in CODE]
    assert len(modules()) > 80
    assert found == []


class Payload:
    """What somebody plants: unpickled, it makes a file."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "it-ran"

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)

    @property
    def bytes(self) -> bytes:
        return pickle.dumps(self)


@pytest.fixture
def payload(tmp_path: Path) -> Payload:
    made = Payload(tmp_path)
    pickle.loads(made.bytes)
    assert made.mark.exists(), "the payload works where it is unpickled"
    made.mark.unlink()
    return made


def shells(form: Format, payload: bytes) -> list[bytes]:
    """The payload bare, and in every place of a container of ours that checks."""
    whole = [
        pieces(form, {}, [("rows", payload)]),
        pieces(form, {"families": {}, "batch": 0, "retired": [], "clear": -1}, [("rows", payload)] * 3),
        pieces(form, {"about": base64.b64encode(payload).decode(), "plan": [], "runs": []}, [("schema", payload)]),
    ]
    return [payload, *(b"".join(one) for one in whole)]


def hostile_schema(payload: bytes) -> pa.Schema:
    """An Arrow schema whose extension type older versions of pyarrow unpickled (CVE-2023-47248)."""
    tagged = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": payload}
    return pa.schema([pa.field("id", pa.int64(), metadata=tagged), pa.field("a", pa.int64(), metadata=tagged)])


def hostile_rows(payload: bytes) -> bytes:
    schema = hostile_schema(payload)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write(pa.record_batch([pa.array([1]), pa.array([2])], schema=schema))
    return sink.getvalue().to_pybytes()


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(StateError):
        call()


def test_a_planted_manifest_is_refused_and_not_run(payload: Payload):
    for content in shells(MANIFEST, payload.bytes):
        try:
            Manifest.load(content, "the state of shard 0")
        except StateError:
            continue
        assert content is not payload.bytes, "what is no manifest is refused"
    assert not payload.mark.exists()


def test_a_planted_message_is_refused_and_not_run(payload: Payload):
    for content in [*shells(MESSAGE, payload.bytes), *shells(MESSAGE, hostile_rows(payload.bytes))]:
        try:
            Message.unpack([content])
        except (StateError, pa.ArrowException, ValueError, KeyError):
            continue
        assert content is not payload.bytes
    assert not payload.mark.exists()


def test_a_planted_dump_is_refused_and_not_run(payload: Payload, tmp_path: Path):
    file = read_rules_text("table: x\nkey: id\nrules:\n  - {name: a, fd: a -> id}")
    path = tmp_path / "dump"
    for content in [*shells(DUMP, payload.bytes), *shells(DUMP, hostile_rows(payload.bytes))]:
        path.write_bytes(content)
        refused(lambda: Detector.load(path, file.rules))
    assert not payload.mark.exists()


def test_a_planted_note_is_refused_and_not_run(payload: Payload, tmp_path: Path):
    notes, runs = StoreOptions(str(tmp_path / "weever")), StoreOptions(str(tmp_path / "weever/runs"))
    text = "table: x\nkey: id\ncolumns: {id: bigint, a: bigint}\nrules:\n  - {name: a, fd: a -> id}\n"
    job = job_of(
        read_rules_text(f"{text}source: {{kind: files, path: {tmp_path}}}\nstate: {{checkpoint: {tmp_path}}}\n")
    )
    (tmp_path / "weever").mkdir()
    (tmp_path / "weever" / ABOUT).write_bytes(payload.bytes)
    refused(lambda: Notes(notes).read(ABOUT))
    columns = base64.b64encode(hostile_schema(payload.bytes).serialize().to_pybytes()).decode()
    Notes(notes).write(ABOUT, {"columns": columns, "key": ["id"], "shards": 4, "state": "another", "format": 1})
    refused(lambda: saved_setup(job, notes, runs))
    assert not payload.mark.exists()


def test_a_planted_run_file_is_refused_and_not_run(payload: Payload, tmp_path: Path):
    """Also where the manifest is forged so that length and checksum fit."""
    setup = setup_of([RULES["dependency"]], SCHEMA, ("id",), str(tmp_path / "runs"), shards=1, inline_bytes=0)
    stream, feed = Simulation(setup), Feed(3, images=False)
    with small_runs():
        for _ in range(3):
            stream.batch([change_frame(feed.batch(30), SCHEMA)])
        ((shard, state),) = stream.states.items()
        manifest = Manifest.load(state, "")
        saved = [run for family in manifest.families.values() for run in family.runs if run.file]
        assert saved
        for content in (payload.bytes, *shells(Format(b"WEEVERUN", 1, "", ""), hostile_rows(payload.bytes))):
            forged = RunStore(setup.store).write("00000/forged", [content])
            for run in saved:
                run.file = forged
            stream.states[shard] = manifest.dump()
            stream.restart()
            refused(lambda: stream.batch([change_frame(feed.batch(5), SCHEMA)]))
            stream.states[shard] = state
    assert not payload.mark.exists()
