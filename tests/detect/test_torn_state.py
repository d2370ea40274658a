"""Saved state under every kind of damage, and writes that do not finish.

Catches: a part of the state that is not written (dropped keys, the dead); a changed, torn, lengthened, foreign or newer
file that loads or fails with anything but a clear error, right checksums over wrong content included; code run from a
file; an old file lost to a full disk or a killed process.
"""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.detect.agreement import triples
from tests.detect.containers import HEAD, Container
from tests.detect.drawn import RULES, SCHEMA, VALUES, small_runs
from weever_stream.detect.detector import Detector
from weever_stream.errors import DetectorError, StateError
from weever_stream.rules import Rule, parse_rule

NAMES = ["dependency", "order_in_group", "crossed_one_way", "one_row", "order_of_texts", "three_orders"]
SOME_RULES = [RULES[name] for name in NAMES]
FD = [parse_rule("t.a = s.a and t.c != s.c", name="fd")]


def filled(rules: list[Rule] = SOME_RULES, rows: int = 60, **options: Any) -> Detector:
    """A detector with several runs, dead rows, a tail, and remembered drops."""
    draw = random.Random(3)
    detector = Detector(rules, schema=SCHEMA, **{"key": "id", **options})
    made = [
        {"id": n, "name": f"n{n}", "amount": None}
        | {c: draw.choice([*values, None]) for c, (_, values) in VALUES.items()}
        for n in range(rows)
    ]
    with small_runs(batch=10, tail=15):
        detector.insert(made[:40], sequence=1)
        detector.insert(made[40:55], sequence=2)
        detector.delete([3, 4, 50], sequence=3)
        detector.upsert(made[5:9], sequence=4)
        detector.insert(made[55:], sequence=5)
    return detector


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "state"
    filled().dump(path)
    return path


def test_a_detector_comes_back_as_it_was(tmp_path: Path):
    detector = filled()
    before = triples(detector.violations(), ("id",))
    detector.dump(tmp_path / "state")
    loaded = Detector.load(tmp_path / "state", SOME_RULES, key="id")
    for one in (detector, loaded):
        assert triples(one.violations(), ("id",)) == before
        assert len(before) > 20
        assert len(one) == 57
        one._check()
    assert loaded.tally == detector.tally
    changes = [{"id": 3, **dict.fromkeys(VALUES, None), "name": None, "amount": None}]
    assert len(loaded.upsert(changes, sequence=2)) == 0
    assert len(loaded) == 57, "a drop is remembered"
    assert loaded.tally.stale == detector.tally.stale + 1
    both = [one.delete(list(range(30))) for one in (detector, loaded)]
    assert sorted(v.id for v in both[0]) == sorted(v.id for v in both[1])
    assert triples(detector.violations(), ("id",)) == triples(loaded.violations(), ("id",))


def test_a_dump_can_be_loaded_twice_and_dumped_again(tmp_path: Path, dumped: Path):
    one, other = (Detector.load(dumped, SOME_RULES, key="id") for _ in range(2))
    one.delete(list(range(60)))
    assert len(other) == 57
    other.dump(tmp_path / "again")
    again = Detector.load(tmp_path / "again", SOME_RULES, key="id")
    assert triples(again.violations(), ("id",)) == triples(other.violations(), ("id",))


def test_an_empty_detector_with_a_schema_can_be_dumped(tmp_path: Path):
    Detector(FD, key="id", schema=SCHEMA).dump(tmp_path / "state")
    loaded = Detector.load(tmp_path / "state", FD, key="id")
    assert len(loaded) == 0
    rows = [{"id": 1, "a": 1, "c": "x"}, {"id": 2, "a": 1, "c": "y"}]
    assert len(loaded.insert(rows)) == 1


def test_a_detector_that_knows_no_columns_cannot_be_dumped(tmp_path: Path):
    with pytest.raises(DetectorError, match="nothing to dump"):
        Detector(FD, key="id").dump(tmp_path / "state")


def test_rules_may_be_renamed_between_dump_and_load(tmp_path: Path):
    filled(FD).dump(tmp_path / "state")
    renamed = parse_rule("s.a = t.a and s.c <> t.c", name="another_name", severity="critical")
    loaded = Detector.load(tmp_path / "state", [renamed], key="id")
    assert {v.rule for v in loaded.violations()} == {"another_name"}


def test_rules_in_another_order_are_refused(tmp_path: Path):
    filled(SOME_RULES).dump(tmp_path / "state")
    with pytest.raises(StateError, match="other rules"):
        Detector.load(tmp_path / "state", SOME_RULES[::-1], key="id")


def test_a_rule_with_its_rows_exchanged_is_loaded_right_or_not_at_all(tmp_path: Path):
    detector = Detector(["t.g = s.g and t.a < s.a and t.c = 1"], key="id")
    detector.insert({"id": 1, "g": 1, "a": 1, "c": 0})
    detector.dump(tmp_path / "state")
    try:
        loaded = Detector.load(tmp_path / "state", ["t.g = s.g and t.a > s.a and s.c = 1"], key="id")
    except StateError:
        return
    found = loaded.insert({"id": 2, "g": 1, "a": 0, "c": 1})
    assert [(v.left_key, v.right_key) for v in found] == [("1", "2")]


def assert_refused(path: Path, content: bytes, match: str = ".") -> None:
    path.write_bytes(content)
    with pytest.raises(StateError, match=match) as refused:
        Detector.load(path, SOME_RULES, key="id")
    assert str(path) in refused.value.message
    assert refused.value.hint


def test_no_changed_byte_is_overlooked(tmp_path: Path, dumped: Path):
    content = bytearray(dumped.read_bytes())
    draw = random.Random(1)
    places = [*range(64), *draw.sample(range(len(content)), 150), len(content) - 1]
    for place in places:
        flip = 1 << draw.randrange(8)
        content[place] ^= flip
        assert_refused(tmp_path / "state", bytes(content))
        content[place] ^= flip
    (tmp_path / "state").write_bytes(bytes(content))
    assert len(Detector.load(tmp_path / "state", SOME_RULES, key="id")) == 57, "nothing was wrong but the changed bytes"


def test_no_torn_file_is_taken_for_whole(tmp_path: Path, dumped: Path):
    content = dumped.read_bytes()
    draw = random.Random(2)
    for length in [*range(40), *draw.sample(range(len(content)), 80), len(content) - 1]:
        assert_refused(tmp_path / "state", content[:length])


def test_a_file_with_more_behind_it_is_not_taken_for_whole(tmp_path: Path, dumped: Path):
    assert_refused(tmp_path / "state", dumped.read_bytes() + b"\0")


@pytest.mark.parametrize("content", [b"", b"PK\3\4 a zip file", b"PAR1" * 20, bytes(5000), b"ARROW1\0\0" * 9], ids=repr)
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes):
    assert_refused(tmp_path / "state", content, "not a dump")


def test_a_newer_version_is_refused_with_a_hint(tmp_path: Path, dumped: Path):
    content = dumped.read_bytes()
    magic, version, reserved, check, length = HEAD.unpack_from(content)
    newer = HEAD.pack(magic, version + 1, reserved, check, length) + content[HEAD.size :]
    assert_refused(tmp_path / "state", newer, f"version {version + 1}")
    assert_refused(tmp_path / "state", HEAD.pack(magic, 0, reserved, check, length) + content[HEAD.size :])


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("longer", range(8))
def test_a_pickle_in_the_file_is_never_run(tmp_path: Path, dumped: Path, longer: int):
    """Of every length modulo 8: a section of whole numbers takes what is a multiple of it."""
    touched = tmp_path / ("touched" + "x" * longer)
    payload = pickle.dumps(Payload(touched))
    pickle.loads(payload)
    assert touched.exists(), "the payload would work"
    touched.unlink()
    parts = Container.of(dumped.read_bytes())
    for forged in (payload, parts.with_table(payload), *parts.forged(payload)):
        assert_refused(tmp_path / "state", forged)
    assert not touched.exists()


UNFINISHED = """
import os, resource, sys
from pathlib import Path
from weever_stream.detect.detector import Detector
from weever_stream.errors import OutputError

path = Path(sys.argv[1])
before = path.read_bytes()
detector = Detector.load(path, ["t.a = s.a"], key="id")
detector.insert([{"id": n, "a": n} for n in range(10, 2000)])
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, most))
try:
    detector.dump(path)
except OutputError as error:
    print(error.message)
print(*sorted(file.name for file in path.parent.iterdir()), path.read_bytes() == before, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
os.fsync = lambda file: os._exit(137)
detector.dump(path)
"""


def test_a_full_disk_or_a_killed_process_leaves_the_old_file(tmp_path: Path):
    path = tmp_path / "state"
    detector = Detector(["t.a = s.a"], key="id")
    detector.insert([{"id": 1, "a": 1}, {"id": 2, "a": 1}])
    detector.dump(path)
    before = path.read_bytes()
    done = subprocess.run([sys.executable, "-c", UNFINISHED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 137, done.stderr
    error, state = done.stdout.splitlines()
    assert error.startswith(f"{path} could not be written: ")
    assert state == "state True", "after a full disk nothing is left beside the old file"
    assert path.read_bytes() == before, "nor has the killed process touched it"
    again = Detector.load(path, ["t.a = s.a"], key="id")
    again.insert({"id": 3, "a": 1})
    again.dump(path)
    assert Detector.load(path, ["t.a = s.a"], key="id").count("rule_1") == 3
