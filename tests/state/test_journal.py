"""The journal of something in memory, held to what it was after every batch.

Catches: a batch that is applied twice or not at all after a crash; a torn file that is believed, or that is given up
for although another way leads there; files that pile up; a whole that is written again with every batch.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from weever_stream.errors import OutputError, StateError
from weever_stream.state import journal as module
from weever_stream.state.journal import Journal
from weever_stream.state.store import StoreOptions


class Sums:
    """Numbers in memory: a stand-in for nothing, just the smallest thing that has a history."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def apply(self, changes: pa.Table) -> None:
        self.numbers += changes.column("n").to_pylist()

    def dump(self, path: Path) -> None:
        path.write_text(",".join(map(str, self.numbers)) + ";")

    @classmethod
    def load(cls, path: Path) -> Sums:
        text = path.read_text()
        if not text.endswith(";"):
            raise StateError("torn")
        return cls([int(one) for one in text[:-1].split(",")])


def changes(batch: int) -> pa.Table:
    return pa.table({"n": pa.array([batch, batch], pa.int64())})


def restored(folder: Path, batch: int) -> list[int] | None:
    found = Journal(StoreOptions(str(folder))).restore(batch, Sums.load, Sums.apply)
    return None if found is None else found.numbers


def wanted(batch: int) -> list[int]:
    return [one for before in range(batch) for one in (before, before)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "SMALL", 1800)
    return tmp_path / "journal"


def written(folder: Path, batches: int) -> Journal:
    journal = Journal(StoreOptions(str(folder)))
    held = Sums([])
    for batch in range(batches):
        held.apply(changes(batch))
        if batch:
            journal.note(batch, changes(batch))
        if journal.due(batch):
            journal.dump(batch, held.dump)
        journal.tidy(batch)
        assert restored(folder, batch + 1) == wanted(batch + 1)
        assert restored(folder, batch) == (wanted(batch) if batch else None), "the last batch may be done again"
    return journal


def test_it_comes_back_to_before_and_after_the_last_batch_and_keeps_few_files(folder: Path) -> None:
    written(folder, 16)
    names = sorted(path.name for path in folder.iterdir())
    dumps = [name for name in names if name.startswith("dump")]
    assert 1 <= len(dumps) <= 2, names
    assert len(names) < 12, names
    assert all(name.startswith(("dump-", "changes-")) for name in names)


def test_a_torn_dump_is_passed_over_while_another_way_leads_there(folder: Path) -> None:
    journal = written(folder, 3)
    held = Sums(wanted(4))
    journal.note(3, changes(3))
    journal.dump(3, held.dump)
    (folder / "dump-3").write_text("0,0")
    assert restored(folder, 4) == wanted(4)


def test_what_is_noted_of_the_batch_that_comes_is_not_looked_at(folder: Path) -> None:
    journal = written(folder, 3)
    journal.note(3, changes(99))
    (folder / "changes-3").write_bytes((folder / "changes-3").read_bytes()[:-9])
    again = Journal(StoreOptions(str(folder)))
    assert restored(folder, 3) == wanted(3)
    again.forget(3)
    assert not (folder / "changes-3").exists()
    again.note(3, changes(3))
    assert restored(folder, 4) == wanted(4)


@pytest.mark.parametrize("harm", ["torn", "missing", "other"])
def test_changes_that_are_needed_and_not_whole_are_refused_by_name(folder: Path, harm: str) -> None:
    written(folder, 3)
    path = folder / "changes-2"
    if harm == "torn":
        path.write_bytes(path.read_bytes()[:-9])
    elif harm == "missing":
        path.unlink()
    else:
        path.write_bytes((folder / "changes-1").read_bytes())
    with pytest.raises(StateError, match="changes-2"):
        restored(folder, 3)


def test_files_of_another_time_than_the_checkpoint_are_refused(folder: Path) -> None:
    written(folder, 3)
    (folder / "dump-0").unlink()
    with pytest.raises(StateError, match="leads to batch 3"):
        restored(folder, 3)


def test_a_disk_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="could not be written"):
        Journal(StoreOptions(str(tmp_path / "file" / "journal"))).note(1, changes(1))
