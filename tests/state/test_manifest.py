"""Manifests under every kind of damage, and what `weever state` reads out of sound ones.

Catches: a manifest that is torn, changed, foreign or of a newer release and loads all the same; a round trip that loses
a run, the dead, a remembered drop or a retired file; counts of rows, dead and bytes that are not those of the shards.
"""

from __future__ import annotations

import struct

import pytest

from tests.detect.drawn import RULES, SCHEMA, small_runs
from tests.stream.simulated import Simulation, change_frame, setup_of
from tests.stream.test_work import Feed
from weever_stream.errors import StateError
from weever_stream.state.inspect import held, skew, verify
from weever_stream.state.manifest import FamilyState, Manifest, SavedRun, SavedTail
from weever_stream.state.store import StoredFile

SOME = [RULES[name] for name in ("dependency", "crossed_one_way", "one_row")]
MANIFEST = Manifest(
    7,
    {
        "family": FamilyState(
            [
                SavedRun(3, [True, False], b"dead", StoredFile("00001/x.run", 10, 20)),
                SavedRun(2, [True], None, None, [b"rows", b"order", b"tree of odd length"]),
            ],
            SavedTail(4, b"table", b"", b"bits"),
            [5, 0],
            6,
            {"stale": 1},
        ),
        "empty": FamilyState(),
    },
    [(3, "00001/old.run"), (5, "00001/older.run")],
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Simulation:
    """A job after some batches, with runs inline, in files, and in tails."""
    folder = tmp_path_factory.mktemp("runs")
    made = Simulation(setup_of(SOME, SCHEMA, ("id",), folder, shards=3, inline_bytes=6000, remember_drops=9))
    feed = Feed(5, images=False)
    with small_runs():
        for size in (15, 15, 15, 15, 2):
            made.batch([change_frame(feed.batch(size), SCHEMA)])
    return made


def loaded(stream: Simulation) -> dict[int, Manifest]:
    return {shard: Manifest.load(state, f"shard {shard}") for shard, state in stream.states.items()}


def test_a_manifest_comes_back_as_it_was():
    again = Manifest.load(MANIFEST.dump(), "it")
    assert again == MANIFEST
    assert again.dump() == MANIFEST.dump()
    assert again.files() == {"00001/x.run", "00001/old.run", "00001/older.run"}


@pytest.mark.parametrize("length", [0, 7, 8, 23, 24, 100, -64, -1])
def test_a_torn_manifest_is_refused_by_name(length: int):
    with pytest.raises(StateError, match=r"^the state of shard 3 is (torn|not )"):
        Manifest.load(MANIFEST.dump()[:length], "the state of shard 3")


def test_a_manifest_with_something_behind_its_end_is_refused():
    with pytest.raises(StateError, match="trailing bytes"):
        Manifest.load(MANIFEST.dump() + b"\0", "the state of shard 3")


def test_no_flipped_bit_changes_what_is_read():
    sound = MANIFEST.dump()
    refused = 0
    for at in range(len(sound)):
        flipped = bytearray(sound)
        flipped[at] ^= 1 << at % 8
        try:
            read = Manifest.load(bytes(flipped), "the state of shard 3")
        except StateError as error:
            refused += error.message.startswith("the state of shard 3 is ")
        else:
            assert read == MANIFEST, f"byte {at} is none that fills a gap"
    assert refused > len(sound) / 2


def test_a_manifest_of_a_newer_release_is_refused():
    newer = bytearray(MANIFEST.dump())
    struct.pack_into("<H", newer, 8, 2)
    with pytest.raises(StateError, match="is of version 2, and this release reads up to 1") as raised:
        Manifest.load(bytes(newer), "the state of shard 3")
    assert raised.value.hint == "use a newer release"


def test_what_is_held_is_what_the_shards_have(stream: Simulation):
    lines = list(held(loaded(stream)))
    assert sum(line.open for line in lines) == len(stream.open) > 0
    assert {line.batch for line in lines} == {4}
    files = [run.file for manifest in loaded(stream).values() for state in manifest.families.values()
             for run in state.runs if run.file]  # fmt: skip
    assert sum(line.files for line in lines) == len(files) > 0
    assert sum(line.file_bytes for line in lines) == sum(file.length for file in files)
    assert sum(line.dead for line in lines) > 0
    for line in lines:
        family = next(one for one in stream.setup.families if one.identity == line.family)
        manifest = loaded(stream)[line.shard]
        shard = stream.work.keeper.open(family, manifest, "it").shard
        parts = list(shard.forest)
        assert line.rows == sum(len(part) - len(part.dead) for part in parts)
        assert line.dead == sum(len(part.dead) for part in parts)
        assert line.runs == len(parts)
        assert line.inline_bytes <= len(stream.states[line.shard])


def test_skew_is_that_of_the_fullest_shard_among_all(stream: Simulation):
    lines = list(held(loaded(stream)))
    rows = [sum(line.rows for line in lines if line.shard == shard) for shard in range(3)]
    assert skew(lines, 3) == pytest.approx(max(rows) / (sum(rows) / 3))
    assert skew([line for line in lines if line.shard == 1], 3) == pytest.approx(3.0), "the others hold nothing"
    assert skew([], 3) == 1.0


def test_sound_state_passes_every_check(stream: Simulation):
    assert list(verify(loaded(stream), stream.setup.families, stream.work.keeper)) == []


def test_a_check_names_the_shard_and_what_is_wrong_with_it(stream: Simulation):
    manifests = loaded(stream)
    one, other = (next(run for run in _inline(manifests[shard]) if len(run.inline[1]) > 8) for shard in (1, 2))
    one.inline[0] = bytes(one.inline[0])[:-100]
    other.inline[1] = bytes(other.inline[1])[:-8]
    manifests[0].families["other"] = FamilyState()
    stream.restart()
    wrong = dict(verify(manifests, stream.setup.families, stream.work.keeper))
    assert wrong.keys() == {0, 1, 2}
    assert wrong[0] == "family other is not one of the rules'"
    assert wrong[1] == "the state of shard 1 is torn or was changed: a section cannot be read"
    assert wrong[2] == "the state of shard 2 is torn or was changed (ValueError)"


def _inline(manifest: Manifest) -> list[SavedRun]:
    return [run for state in manifest.families.values() for run in state.runs if run.inline]
