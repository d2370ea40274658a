"""The whole job over a folder of change files, held to Spark SQL's self-joins of the table that they lead to.

Catches: an open set that depends on how a feed is cut into batches, on what is told twice or out of order; a batch that
shows a state in which the table never was; a record that cannot be read and is lost, or stops the job without a word.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.stream.jobs import COLUMNS, RULES, Stream, job_text, truth
from tests.stream.simulated import Change, Simulation, change_frame, setup_of
from weever_stream.errors import DataError
from weever_stream.feeds.changes import DROP, PUT, PUT_ANYWHERE
from weever_stream.rules import read_rules_text
from weever_stream.stream.failures import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record = dict[str, Any]
VALUES: dict[str, list[Any]] = {
    "a": [0, 1, 2, 2**53 + 1, None],
    "b": [0, 1, 2],
    "n": [0, 1, 2**53, 2**53 + 1, None],
    "f": [-0.0, 0.0, 1.5, 1e300, None],
    "c": ["", "x", "Ä", "the same first eight bytes", "the same first eight bytes!"],
}


class Feed:
    """A table that changes at random, and its commits: the records of one version each."""

    def __init__(self, seed: int, *, keys: int = 16) -> None:
        self.random = random.Random(seed)
        self.keys = keys
        self.table: dict[int, Record] = {}
        self.version = 0

    def commits(self, n: int) -> list[list[Record]]:
        return [self.commit() for _ in range(n)]

    def commit(self) -> list[Record]:
        """Some keys change, each once."""
        self.version += 1
        records: list[Record] = []
        for key in self.random.sample(range(self.keys), self.random.choice([1, 1, 2, 4])):
            records += self.change(key)
        self.random.shuffle(records)
        return [{**record, "_commit_version": self.version} for record in records]

    def change(self, key: int) -> list[Record]:
        old = self.table.pop(key, None)
        if old is not None and self.random.random() < 0.25:
            # A delete tells the whole old row, or its key alone.
            return [{**self.random.choice([old, {"id": key}]), "_change_type": "delete"}]
        new = {"id": key, **{name: self.random.choice(values) for name, values in VALUES.items()}}
        self.table[key] = new
        if self.random.random() < 0.4:
            return [{**new, "_change_type": "upsert"}]
        if old is None:
            return [{**new, "_change_type": "insert"}]
        return [{**old, "_change_type": "update_preimage"}, {**new, "_change_type": "update_postimage"}]


class Folder:
    """Files of lines, read in the order in which they were added."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(exist_ok=True)
        self.files = len(list(path.iterdir()))

    def add(self, records: Iterable[Record | str]) -> None:
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        beside = self.path / f"_{self.files}"
        beside.write_text("".join(f"{line}\n" for line in lines))
        # Spark reads the older file first.
        os.utime(beside, (1_700_000_000 + self.files,) * 2)
        beside.rename(self.path / f"{self.files:05}.json")
        self.files += 1


def stream_of(
    spark: SparkSession, folder: Path, name: str, files: Sequence[Iterable[Record | str]], **more: Any
) -> Stream:
    """A job over these files, one of them a batch if `each`."""
    each, source = more.pop("each", False), more.pop("source", {})
    made = Folder(folder / name)
    for records in files:
        made.add(records)
    options = {"options": {"maxFilesPerTrigger": 1}} if each else {}
    described = {"kind": "files", "path": str(made.path), **options, **source}
    return Stream(spark, job_text(described, folder / f"{name}-job", **more))


def cut(records: Sequence[Any], parts: int) -> list[list[Any]]:
    return [list(records[at::parts]) for at in range(parts)]


def together(commits: Iterable[Iterable[Record]]) -> list[Record]:
    return [record for commit in commits for record in commit]


@pytest.mark.slow
def test_the_open_set_is_the_same_however_a_feed_is_cut_repeated_or_shuffled(spark: SparkSession, tmp_path: Path):
    feed = Feed(1)
    commits = feed.commits(40)
    records = together(commits)
    shuffled = records.copy()
    feed.random.shuffle(shuffled)
    doubled = [*records, *feed.random.sample(records, len(records) // 2)]
    feed.random.shuffle(doubled)
    ways = {
        "in-one-batch": stream_of(spark, tmp_path, "one", [records]),
        "in-batches": stream_of(
            spark, tmp_path, "some", [together(commits[at : at + 20]) for at in range(0, 40, 20)], each=True
        ),
        "files-twice": stream_of(spark, tmp_path, "twice", [records[:50], records], each=True),
        "shuffled": stream_of(spark, tmp_path, "shuffled", cut(shuffled, 3), each=True, inline_bytes=0),
        "shuffled-and-twice": stream_of(spark, tmp_path, "both", cut(doubled, 2), each=True),
    }
    expected = truth(spark, feed.table.values(), ways["shuffled"].rules)
    assert {rule for rule, _, _ in expected} == set(RULES), "every rule has something to say"
    for way, stream in ways.items():
        stream.run()
        assert stream.kept.open == expected, way
    assert len(ways["in-batches"].reports) == 2
    assert ways["in-batches"].reports[-1].changes > 0
    assert ways["shuffled"].reports[-1].stale > 0


def test_a_feed_in_batches_leads_to_the_truth_and_repeating_it_changes_nothing(spark: SparkSession, tmp_path: Path):
    feed = Feed(11)
    commits = feed.commits(24)
    some = {name: RULES[name] for name in ("dependency", "no_equality")}
    stream = stream_of(spark, tmp_path, "feed", [together(commits[:12]), together(commits[12:])], rules=some)
    stream.run()
    assert stream.kept.open == truth(spark, feed.table.values(), stream.rules)
    Folder(tmp_path / "feed").add(reversed(together(commits)))
    stream.run()
    assert [(report.added, report.removed) for report in stream.reports[1:]] == [(0, 0)]
    assert stream.kept.open == truth(spark, feed.table.values(), stream.rules)


class Swaps:
    """Rows of which exactly one pair violates each rule, whatever changes place with what.

    Two rows of one group differ in `c`; all other rows are alone in their groups. Each commit moves the pair: to another
    group, to other rows, or by exchanging one of the two for another row.
    """

    def __init__(self, seed: int, rows: int = 6) -> None:
        self.random = random.Random(seed)
        self.rows = rows
        self.groups = [0, 0, *range(1, rows - 1)]
        self.version = 1

    def row(self, key: int) -> Record:
        group = self.groups[key]
        return {"id": key, "a": group, "b": group, "n": group, "f": float(group), "c": f"c{key}"}

    def first(self) -> list[tuple[Record | None, Record]]:
        return [(None, self.row(key)) for key in range(self.rows)]

    def commit(self) -> list[tuple[Record, Record]]:
        """Old and new rows of what changes."""
        self.version += 1
        old = [self.row(key) for key in range(self.rows)]
        before = list(self.groups)
        while self.groups == before:
            if self.random.random() < 0.3:  # the same rows in a new group
                shift = self.random.randrange(1, 50)
                self.groups = [group + shift for group in self.groups]
            else:
                self.random.shuffle(self.groups)
        new = [self.row(key) for key in range(self.rows)]
        return [(one, other) for one, other in zip(old, new, strict=True) if one != other]


SWAP_RULES = {
    "dependency": RULES["dependency"],
    "crossed": RULES["crossed"],
    "spread_out": {"deny": "t.a = s.a and t.c < s.c", "spread": 2},
    "no_equality": {"deny": "t.n <= s.n and t.f >= s.f and t.c < s.c"},
}


def lines_of(commit: Iterable[tuple[Record | None, Record]], version: int, *, images: bool) -> list[Record]:
    lines = []
    for old, new in commit:
        if old is not None and images:
            lines.append({**old, "_change_type": "update_preimage", "_commit_version": version})
        kind = "upsert" if not images else "update_postimage" if old is not None else "insert"
        lines.append({**new, "_change_type": kind, "_commit_version": version})
    return lines


@pytest.mark.parametrize("images", [True, False])
def test_a_violation_that_only_moves_is_one_after_every_batch(tmp_path: Path, images: bool):
    rules = read_rules_text(job_text({"kind": "files", "path": "unused"}, tmp_path, SWAP_RULES)).rules
    kinds = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    spread = {"spread_out": 2}
    swaps, stream = (
        Swaps(4),
        Simulation(setup_of(rules, schema, ("id",), tmp_path, shards=5, spread=spread), check=False),
    )
    for number in range(25):
        changes: list[Change] = []
        for old, new in swaps.commit() if number else swaps.first():
            if old is not None and images:
                changes.append((DROP, swaps.version, old))
            changes.append((PUT if images else PUT_ANYWHERE, swaps.version, new))
        stream.batch([change_frame(changes, schema)])
        # The crossed rule tells both orders of its pair as one: it reads the same with t and s exchanged.
        assert stream.counts() == dict.fromkeys(SWAP_RULES, 1), number


@pytest.mark.slow
def test_no_batch_of_a_running_job_shows_a_count_that_never_was(spark: SparkSession, tmp_path: Path):
    swaps = Swaps(9)
    files = [lines_of(swaps.first(), 1, images=True)]
    files += [lines_of(swaps.commit(), swaps.version, images=bool(at % 2)) for at in range(5)]
    stream = stream_of(spark, tmp_path, "swaps", files, each=True, rules=SWAP_RULES)
    stream.run()
    assert len(stream.kept.counts) == 6
    assert all(counts == dict.fromkeys(SWAP_RULES, 1) for counts in stream.kept.counts)
    assert all(report.open == dict.fromkeys(SWAP_RULES, 1) for report in stream.reports)
    assert stream.kept.open == truth(spark, [swaps.row(key) for key in range(swaps.rows)], stream.rules)


GOOD = [
    {"id": key, "a": 1, "b": 1, "n": key, "f": 1.0, "c": f"c{key % 2}", "_change_type": "insert", "_commit_version": 1}
    for key in range(18)
]
BAD = [
    '{"id": 100, "a": 1',
    json.dumps({**GOOD[0], "id": 101, "a": "PRIVATE"}),
    json.dumps({**GOOD[0], "id": None}),
    json.dumps({**GOOD[0], "id": 102, "_change_type": "replace"}),
]


def letters_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.rglob("*.json")) for line in file.read_text().splitlines()]


def test_lines_that_cannot_be_read_become_dead_letters_and_the_job_goes_on(spark: SparkSession, tmp_path: Path):
    lines = [*GOOD, *BAD]
    random.Random(1).shuffle(lines)
    rejects = {"max_share": 0.5, "sink": {"kind": "files", "path": str(tmp_path / "letters")}}
    stream = stream_of(
        spark, tmp_path, "feed", [lines], rules={"dependency": RULES["dependency"]}, source={"rejects": rejects}
    )
    stream.run()
    assert (stream.reports[0].changes, stream.reports[0].rejected) == (18, 4)
    assert stream.kept.open == truth(spark, GOOD, stream.rules)
    letters = letters_in(tmp_path / "letters")
    assert {letter["record"] for letter in letters} == set(BAD)
    reasons = {letter["record"]: letter["reason"] for letter in letters}
    assert "column a" in reasons[BAD[1]]
    assert "PRIVATE" not in reasons[BAD[1]]
    assert reasons[BAD[2]] == "key column id is null or missing"
    assert reasons[BAD[3]].startswith("_change_type is none of")
    for letter in letters:
        origin = json.loads(letter["origin"])
        assert origin["file"].endswith("/feed/00000.json")
        assert lines[origin["line"] - 1] == letter["record"]
        assert letter["source_position"] == stream.reports[0].position


def test_dead_letters_of_csv_name_the_line_on_which_a_record_begins(spark: SparkSession, tmp_path: Path):
    (tmp_path / "feed").mkdir()
    head = "id,a,b,n,f,c,_change_type,_commit_version\r\n"
    good = '"{0}",1,1,{0},1.0,"two\r\nlines",insert,1\r\n'
    bad = {
        '"5 x",1,1,1,1.0,"  spaces, a ""quote"" ",insert,1\r\n': "column id",
        '"",1,1,1,1.0,c,insert,1\r\n': "column id",
        ",1,1,1,1.0,c,insert,1\r\n": "key column id is null",
        "6,1,1\r\n": "the line has more or fewer cells",
    }
    text, begins = head, {}
    for number, (line, reason) in enumerate(bad.items()):
        text += good.format(number)
        begins[text.count("\n") + 1] = reason
        text += line
    (tmp_path / "feed" / "in 100%20.csv").write_text(text, newline="")
    source = {"kind": "files", "path": str(tmp_path / "feed"), "format": "csv", "rejects": {"max_share": 0.9}}
    stream = Stream(spark, job_text(source, tmp_path / "job", rules={"dependency": RULES["dependency"]}))
    stream.run()
    letters = letters_in(tmp_path / "job" / "checkpoint" / "weever" / "rejects")
    found = {json.loads(letter["origin"]).get("line"): letter for letter in letters}
    assert found.keys() == begins.keys(), letters
    assert all(found[line]["reason"].startswith(reason) for line, reason in begins.items()), letters
    assert found[4]["record"].split(",", 5)[5] == '"  spaces, a ""quote"" ",insert,1'


def test_too_many_lines_that_cannot_be_read_stop_the_job_and_are_kept(spark: SparkSession, tmp_path: Path):
    rules, strict = {"dependency": RULES["dependency"]}, {"rejects": {"judged_from": 22}}
    stream = stream_of(spark, tmp_path, "feed", [[*GOOD, *BAD]], rules=rules, source=strict)
    error = told([str(stream.fail())])
    assert isinstance(error, DataError)
    assert error.message == "4 of 22 records cannot be read, more than a share of 0.1"
    assert "max_share" in (error.hint or "")
    assert not stream.kept.open
    assert not stream.reports
    kept = letters_in(tmp_path / "feed-job" / "checkpoint" / "weever" / "rejects")
    assert {letter["record"] for letter in kept} == set(BAD)
