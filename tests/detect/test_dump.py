"""Saved state. Catches: something left out of a dump, a damaged file that loads, code that a file could smuggle in."""

from __future__ import annotations

import os
import pickle
import random
import struct
from pathlib import Path

import pytest

from weever_stream import Detector
from weever_stream.errors import OutputError, StateError

RULES = ["t.zip = s.zip and t.city != s.city", "t.a < s.a and t.b > s.b", "t.a = 3"]


def made(seed: int = 1, rows: int = 900) -> Detector:
    chance = random.Random(seed)
    detector = Detector(RULES, key=["id", "part"])
    for start in range(0, rows, 300):
        detector.insert([row(chance, number) for number in range(start, start + 300)], sequence=start)
    detector.delete([(number, "x") for number in range(0, rows, 7)], sequence=rows)
    detector.upsert([row(chance, number) for number in range(1, 40, 7)], sequence=rows + 1)
    return detector


def row(chance: random.Random, number: int) -> dict[str, object]:
    a = chance.randrange(50)
    return {
        "id": number,
        "part": "x",
        "zip": chance.choice(["1", "2", None]),
        "city": chance.choice(["Rome", "Paris"]),
        "a": a,
        "b": a + 3 * chance.random(),
    }


def ids(detector: Detector) -> set[str]:
    return {violation.id for violation in detector.violations()}


def test_a_loaded_detector_is_the_one_that_was_dumped(tmp_path: Path) -> None:
    detector = made()
    detector.dump(tmp_path / "state")
    again = Detector.load(tmp_path / "state", RULES, key=["id", "part"])
    again._check()
    assert ids(again) == ids(detector)
    assert len(again) == len(detector)
    assert again.tally == detector.tally
    assert [again.count(rule) for rule in again.rules] == [detector.count(rule) for rule in detector.rules]
    # It goes on the same way: late changes stay stale, new ones are found.
    for one in (detector, again):
        assert len(one.upsert({"id": 0, "part": "x", "zip": "1", "city": "Oslo", "a": 1, "b": 1.0}, sequence=5)) == 0
    change = {"id": 9999, "part": "y", "zip": "1", "city": "Oslo", "a": 60, "b": -1.0}
    assert [v.id for v in again.insert(change)] == [v.id for v in detector.insert(change)] != []


def test_numbered_rows_go_on_after_loading(tmp_path: Path) -> None:
    detector = Detector(["t.a = s.a"])
    detector.insert([{"a": 1}, {"a": 2}])
    detector.dump(tmp_path / "state")
    again = Detector.load(tmp_path / "state", ["t.a = s.a"])
    assert [(v.left_key, v.right_key) for v in again.insert([{"a": 1}])] == [("1", "3")]


def test_any_damage_is_refused(tmp_path: Path) -> None:
    detector = made(rows=300)
    whole = tmp_path / "state"
    detector.dump(whole)
    content = whole.read_bytes()
    chance = random.Random(3)
    broken = tmp_path / "broken"
    for _ in range(150):
        at = chance.randrange(len(content))
        broken.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
        if content[10:12] != broken.read_bytes()[10:12]:
            continue  # two bytes of padding in the head say nothing
        with pytest.raises(StateError):
            Detector.load(broken, RULES, key=["id", "part"])
    for length in [0, 5, 23, 24, 100, len(content) // 2, len(content) - 1]:
        broken.write_bytes(content[:length])
        with pytest.raises(StateError):
            Detector.load(broken, RULES, key=["id", "part"])


def test_a_newer_version_says_so(tmp_path: Path) -> None:
    made(rows=300).dump(tmp_path / "state")
    content = bytearray((tmp_path / "state").read_bytes())
    content[8:10] = struct.pack("<H", 99)
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(StateError, match="version 99, and this release reads up to 1"):
        Detector.load(tmp_path / "state", RULES, key=["id", "part"])


@pytest.mark.parametrize(
    ("rules", "key"),
    [(RULES[:2], ["id", "part"]), ([*RULES[:2], "t.a = 4"], ["id", "part"]), (RULES, ["id"]), (["t.x = s.x"], ["id"])],
)
def test_other_rules_or_another_key_are_refused(tmp_path: Path, rules: list[str], key: list[str]) -> None:
    made(rows=300).dump(tmp_path / "state")
    with pytest.raises(StateError, match="was written for other rules"):
        Detector.load(tmp_path / "state", rules, key=key)


def test_a_pickle_in_place_of_state_is_not_run(tmp_path: Path) -> None:
    touched = tmp_path / "touched"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {touched}",)

    (tmp_path / "state").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StateError, match="not a dump"):
        Detector.load(tmp_path / "state", RULES, key=["id", "part"])
    assert not touched.exists()


def test_nothing_in_the_package_unpickles() -> None:
    package = Path(__file__).parents[2] / "weever_stream"
    assert not [file for file in package.rglob("*.py") if "import pickle" in file.read_text(encoding="utf-8")]


def test_a_dump_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    detector = made(rows=300)
    detector.dump(tmp_path / "state")
    old = (tmp_path / "state").read_bytes()
    (tmp_path / "state.tmp").mkdir()  # in the way of the file that is written first
    with pytest.raises(OutputError, match="could not be written"):
        detector.dump(tmp_path / "state")
    assert (tmp_path / "state").read_bytes() == old


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="cannot be read"):
        Detector.load(tmp_path / "nothing", RULES, key=["id", "part"])


def test_a_link_stays_a_link_and_a_pipe_is_refused(tmp_path: Path) -> None:
    detector = made(rows=300)
    (tmp_path / "real").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    detector.dump(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert ids(Detector.load(tmp_path / "real", RULES, key=["id", "part"])) == ids(detector)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="is not a file"):
        detector.dump(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
