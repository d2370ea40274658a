"""A learner's state as a file: it comes back whole and goes on exactly, and no damaged file is taken for one.

Catches: a part of the state that is not written (names, remembered drops, sequences, what is watched); a changed, torn,
lengthened, foreign, forged or newer file that loads or fails with anything but a clear error; code run from a file.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.detect.containers import HEAD, Container
from tests.detect.test_torn_state import Payload
from tests.learn.shapes import SHAPES, few_samples
from tests.learn.truth import assert_counts, assert_exact, assert_watched
from weever_stream.errors import OutputError, StateError
from weever_stream.learn import Learner


def rows_of(shape: str, n: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    columns = SHAPES[shape].columns
    return [
        {"id": at, "name": "", **{name: draw.choice(some) for name, (_, some) in columns.items()}} for at in range(n)
    ]


def filled(shape: str = "many values", small: int = 3, key: Any = "id", most: int | None = 3) -> Learner:
    """A learner with sets that are watched, loose evidence, dead rows, and remembered drops."""
    rows = rows_of(shape, 30)
    with few_samples(2):
        learner = Learner(
            pa.Table.from_pylist(rows[:12], SHAPES[shape].schema),
            key=key,
            columns=list(SHAPES[shape].columns),
            small=small,
            max_predicates=most,
            **SHAPES[shape].options,
        )
        learner.insert(rows[12:])
        if key:
            learner.delete([3, 7, 29] if key == "id" else [("", at) for at in (3, 7, 29)], sequence=99)
        else:
            learner.delete([4, 8, 30], sequence=99)
    return learner


def living() -> list[dict[str, Any]]:
    return [row for row in rows_of("many values", 30) if row["id"] not in (3, 7, 29)]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "state"
    filled().dump(path)
    return path


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize(("small", "key"), [(3, "id"), (1000, ("name", "id")), (3, None)])
def test_a_learner_comes_back_as_it_was_and_goes_on_the_same(shape: str, small: int, key: Any, tmp_path: Path):
    learner = filled(shape, small, key, 2)
    learner.dump(tmp_path / "state")
    loaded = Learner.load(tmp_path / "state")
    assert repr(loaded.table().to_pylist()) == repr(learner.table().to_pylist())
    assert loaded.rules == learner.rules, "with their names"
    assert (loaded.key, loaded.columns, len(loaded)) == (learner.key, learner.columns, len(learner))
    assert loaded.max_predicates == learner.max_predicates
    loaded._check()
    assert_counts(loaded)
    assert_watched(loaded)
    more = rows_of(shape, 6, seed=9)
    for one in (learner, loaded):
        one.insert([{**row, "id": row["id"] + 50} for row in more])
        one.delete(one.table().select(["_row"] if key is None else list(one.key)).slice(2, 9))
        one._check()
    assert [one.fingerprint for one in loaded.rules] == [one.fingerprint for one in learner.rules]
    assert_exact(loaded, loaded.table().to_pylist())


def test_drops_and_sequences_are_remembered(tmp_path: Path):
    filled().dump(tmp_path / "state")
    loaded = Learner.load(tmp_path / "state")
    late = [row for row in rows_of("many values", 30) if row["id"] in (3, 7)]
    assert loaded.upsert(late, sequence=98).changes == 0, "the drop came after"
    assert loaded.upsert(late[:1], sequence=100).changes == 1
    assert loaded.upsert(late[1:]).changes == 0, "without a sequence it is older than the drop"
    assert_exact(loaded, [*living(), late[0]])


def test_numbers_of_rows_go_on(tmp_path: Path):
    learner = Learner([{"a": 1}, {"a": 2}, {"a": 3}])
    learner.delete([2])
    learner.dump(tmp_path / "state")
    loaded = Learner.load(tmp_path / "state")
    loaded.insert([{"a": 9}])
    assert loaded.table().to_pylist() == [{"_row": 1, "a": 1}, {"_row": 3, "a": 3}, {"_row": 4, "a": 9}]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_learners_of_few_rows_are_dumped_too(count: int, tmp_path: Path):
    rows = living()[:count]
    learner = Learner(pa.Table.from_pylist(rows, SHAPES["many values"].schema), key="id", columns=["a", "b"])
    learner.dump(tmp_path / "state")
    loaded = Learner.load(tmp_path / "state")
    loaded._check()
    loaded.insert(living()[count:6])
    assert_exact(loaded, living()[:6])


def test_a_dump_can_be_loaded_twice_and_dumped_again(dumped: Path, tmp_path: Path):
    one, other = Learner.load(dumped), Learner.load(dumped)
    one.delete(range(30))
    assert len(other) == 27
    other.dump(tmp_path / "again")
    assert Learner.load(tmp_path / "again").rules == other.rules


def test_a_key_may_have_any_name(tmp_path: Path):
    learner = Learner([{"_order": 1, "a": 1}, {"_order": 2, "a": 1}], key="_order")
    learner.delete([1], sequence=5)
    learner.dump(tmp_path / "state")
    assert len(Learner.load(tmp_path / "state")) == 1


def assert_refused(path: Path, content: bytes, match: str = ".") -> None:
    path.write_bytes(content)
    with pytest.raises(StateError, match=match) as refused:
        Learner.load(path)
    assert str(path) in refused.value.message
    assert refused.value.hint


def test_no_changed_byte_is_overlooked(tmp_path: Path, dumped: Path):
    content = bytearray(dumped.read_bytes())
    draw = random.Random(1)
    for place in [*range(64), *draw.sample(range(len(content)), 150), len(content) - 1]:
        flip = 1 << draw.randrange(8)
        content[place] ^= flip
        assert_refused(tmp_path / "state", bytes(content))
        content[place] ^= flip
    (tmp_path / "state").write_bytes(bytes(content))
    assert len(Learner.load(tmp_path / "state")) == 27, "nothing was wrong but the changed bytes"


def test_no_torn_or_lengthened_file_is_taken_for_whole(tmp_path: Path, dumped: Path):
    content = dumped.read_bytes()
    draw = random.Random(2)
    for length in [*range(40), *draw.sample(range(len(content)), 80), len(content) - 1]:
        assert_refused(tmp_path / "state", content[:length])
    assert_refused(tmp_path / "state", content + b"\0")


@pytest.mark.parametrize("content", [b"", b"PK\3\4 a zip file", b"PAR1" * 20, bytes(5000), b"WEEVERST" * 9], ids=repr)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes):
    assert_refused(tmp_path / "state", content, "not a dump of a learner")


def test_no_file_and_no_folder_are_told(tmp_path: Path):
    with pytest.raises(StateError, match="cannot be read"):
        Learner.load(tmp_path / "none")
    with pytest.raises(OutputError, match="could not be written"):
        filled().dump(tmp_path / "none" / "state")


def test_a_newer_version_is_refused_with_a_hint(tmp_path: Path, dumped: Path):
    content = dumped.read_bytes()
    magic, version, reserved, check, length = HEAD.unpack_from(content)
    newer = HEAD.pack(magic, version + 1, reserved, check, length) + content[HEAD.size :]
    assert_refused(tmp_path / "state", newer, f"version {version + 1}")


def test_parts_that_are_put_together_again_are_a_dump(tmp_path: Path, dumped: Path):
    (tmp_path / "state").write_bytes(Container.of(dumped.read_bytes()).whole())
    assert len(Learner.load(tmp_path / "state")) == 27


@pytest.mark.parametrize("longer", range(8))
def test_a_pickle_in_the_file_is_never_run(tmp_path: Path, dumped: Path, longer: int):
    touched = tmp_path / ("touched" + "x" * longer)
    payload = pickle.dumps(Payload(touched))
    parts = Container.of(dumped.read_bytes())
    for forged in parts.forged(payload):
        assert_refused(tmp_path / "state", forged)
    assert_refused(tmp_path / "state", payload)
    assert not touched.exists()


@pytest.mark.parametrize(
    "contents",
    [
        {"key": ["none"]},
        {"key": None},
        {"max_predicates": "3"},
        {"comparisons": [["a", "none", [2, 5]]]},
        {"comparisons": [["a", "a", [9]]]},
        {"comparisons": None},
        {"sets": [[-1]]},
        {"sets": [[10**6]]},
        {"sets": [["1"]]},
        {"sets": None},
        {"chosen": [1]},
        {"chosen": "many"},
        {"arrived": None},
        {"names": {"zz": "name"}},
        {"names": {"ff": "name"}},
        {"small": None},
    ],
    ids=repr,
)
def test_a_table_of_contents_that_no_dump_has_is_refused(tmp_path: Path, dumped: Path, contents: dict[str, Any]):
    assert_refused(tmp_path / "state", Container.of(dumped.read_bytes()).whole(contents))


def test_sections_that_do_not_belong_together_are_refused(tmp_path: Path, dumped: Path):
    parts = Container.of(dumped.read_bytes())
    one = (1).to_bytes(8, "little")
    pairs = np.frombuffer(parts.body("witnesses"), np.int64)
    assert len(pairs), "there is loose evidence"
    forged = {
        "orders": parts.body("orders") + one,
        "counts": parts.body("counts") + one,
        "counted": parts.body("counted")[:-8],
        "several": parts.body("several") + one,
        "loose": parts.body("loose") + one,
        "witnesses": parts.body("witnesses") + 2 * one,
        "boxes": parts.body("boxes")[:-1] + b"\x07",
    }
    for name, body in forged.items():
        assert_refused(tmp_path / "state", parts.whole(**{name: body}))
    for value in (-1, 10**9):
        wrong = pairs.copy()
        wrong[0] = value
        assert_refused(tmp_path / "state", parts.whole(witnesses=wrong.tobytes()))
    wrong = pairs.copy()
    wrong[1] = wrong[0]
    assert_refused(tmp_path / "state", parts.whole(witnesses=wrong.tobytes()))
    counts = np.frombuffer(parts.body("counts"), np.int64).copy()
    counts[0] = 0
    assert_refused(tmp_path / "state", parts.whole(counts=counts.tobytes()))
    parts.sections.pop()
    assert_refused(tmp_path / "state", parts.whole())
