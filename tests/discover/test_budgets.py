"""A discovery ends within its budgets, with the best it has, and says what it did not do.

Catches a phase that does not look at the clock, a set that grows without a limit, a rule that is told though it was not
checked, and a table of an odd shape that is passed over in silence. Budgets are of CPU time here and the ratios are
generous: the machine may be busy, and a step between two looks at the clock may last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np
import pyarrow as pa
import pytest

from weever_stream import parse_rule
from weever_stream.check import check
from weever_stream.cli import run as cli
from weever_stream.discover import budget, discover, hydra, run
from weever_stream.discover.budget import Budget, bytes_of, default_memory, machine_memory
from weever_stream.discover.completion import Completion
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.predicates import Options, space_of
from weever_stream.errors import DataError
from weever_stream.rules.file import read_rules

SECONDS = 0.5
ROOT = Path(__file__).parents[2]


@pytest.fixture
def by_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets are of CPU time. Kernels are loaded before: a first run compiles them, which takes its time once."""
    monkeypatch.setattr(run, "Budget", partial(Budget, clock=process_time))
    small = wide(4, 30)
    discover(small, error=0.01, cross=False)
    discover(small, max_predicates=2)


def wide(columns: int, rows: int, seed: int = 0) -> pa.Table:
    """Columns of five values each, the second of which follows from the first."""
    chance = np.random.default_rng(seed)
    table = {f"c{at}": chance.integers(0, 5, rows) for at in range(columns)}
    table["c1"] = table["c0"] // 2
    return pa.table(table)


@pytest.mark.parametrize(
    ("cross", "error", "rows"), [(False, 0.0, 60), (False, 0.0, 2000), (True, 0.0, 2000), (False, 0.01, 2000)]
)
@pytest.mark.usefixtures("by_cpu")
def test_three_hundred_columns_end_in_their_time(cross: bool, error: float, rows: int) -> None:
    table = wide(300, rows)
    began = process_time()
    found = discover(table, cross=cross, error=error, seconds=SECONDS, top=5)
    assert process_time() - began < 3 * SECONDS + 1
    assert not found.exact
    assert not found.in_time
    assert any("no time" in note for note in found.notes)
    if cross:
        assert any("pairs of columns were not compared" in note for note in found.notes)
    for one in found.rules:
        assert check([one.rule], table, mode="count").results[0].violations == one.violations
        assert one.error <= error, one.words


@pytest.mark.slow
@pytest.mark.usefixtures("by_cpu")
def test_short_rules_of_a_wide_table_are_found_before_time_ends() -> None:
    found = discover(wide(80, 200), cross=False, seconds=1.5, top=50)
    denied = {one.rule.fingerprint for one in found.rules}
    assert parse_rule("t.c0 = s.c0 and t.c1 != s.c1").fingerprint in denied
    assert not found.exact


def test_evidence_that_does_not_fit_is_left_out_and_no_rule_is_told_that_does_not_hold() -> None:
    table = wide(14, 400)
    space = space_of(table, Options(cross=False))
    whole = hydra.find_rules(space, most=3)
    assert whole.exact
    tight = _Tight()
    for scanned in (hydra.SCANNED, -1):
        found = hydra.find_rules(space, most=3, budget=tight, scanned=scanned)
        assert found.full
        assert not found.exact
        assert found.evidence.distinct <= 1000
        all_of_them = {row.tobytes() for row in whole.rules}
        assert {row.tobytes() for row in found.rules} == all_of_them, "what is left was counted one by one"


@pytest.mark.parametrize("scanned", [hydra.SCANNED, -1])
def test_rules_found_by_stages_are_all_rules_where_there_is_time(scanned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    space = space_of(wide(5, 60), Options(cross=False))
    expected = {row.tobytes() for row in hydra.find_rules(space).rules}
    monkeypatch.setattr(hydra, "_AT_FIRST", 0.0)
    found = hydra.find_rules(space, budget=Budget(1e9), scanned=scanned)
    assert found.exact
    assert {row.tobytes() for row in found.rules} == expected
    asked = hydra.find_rules(space, budget=Budget(1e9), scanned=scanned, most=2)
    assert asked.exact
    assert {row.tobytes() for row in asked.rules} == {row for row in expected if sum(row) <= 2}
    monkeypatch.setattr(hydra, "_BY_STAGE", 0.0)
    nothing = hydra.find_rules(space, budget=Budget(1e9), scanned=scanned)
    assert nothing.most == 0
    assert nothing.limited
    assert not nothing.exact


class _Tight(Budget):
    """Room for a thousand evidences."""

    def __init__(self, part: float = 1.0) -> None:
        super().__init__(None)

    def share(self, part: float, memory: float = 1.0) -> Budget:
        return self

    def evidences(self, comparisons: int, predicates: int) -> int:
        return 1000


def test_a_full_store_of_evidence_counts_on_and_takes_in_nothing_new() -> None:
    table = wide(6, 60)
    space = space_of(table, Options(cross=False))
    every, some = Evidence(space), Evidence(space, room=10)
    left, right = (side.astype(np.int64) for side in np.triu_indices(60, 1))
    every.add_pairs(left, right)
    some.add_pairs(left, right)
    assert not every.full
    assert some.full
    assert some.distinct == 10
    known = dict(zip(map(bytes, every.outcomes()[0]), every.outcomes()[1].tolist(), strict=True))
    told = dict(zip(map(bytes, some.outcomes()[0]), some.outcomes()[1].tolist(), strict=True))
    assert all(0 < pairs <= known[outcome] for outcome, pairs in told.items())
    assert sum(told.values()) > 2 * 2 * 10, "those that are known are counted on"


def test_a_candidate_is_not_settled_by_pairs_that_found_no_room() -> None:
    space = space_of(wide(3, 50), Options(cross=False))
    evidence = Evidence(space, room=1)
    evidence.add_pairs(np.array([0]), np.array([1]))
    candidate = np.zeros((1, len(space.predicates)), np.bool_)
    predicate = parse_rule("t.c2 = s.c2").predicates[0]
    candidate[0, space.number[predicate.left, predicate.op, predicate.right]] = True
    completion = Completion(space, evidence, evidence.outcomes(), 10**9, np.random.default_rng(0))
    completion.settle(candidate)
    assert evidence.full
    assert len(completion.open(candidate)) == 1


@pytest.mark.parametrize("memory", ["200MB", "8GB"])
def test_memory_limits_what_is_held(memory: str) -> None:
    limit = Budget(None, memory=bytes_of(memory))
    columns, predicates = 300, 1800
    kept = limit.evidences(columns, predicates)
    # a table of keys and counts, outcomes both ways round, and two sets of bits
    least = kept * (2 * 8 * 11 + 2 * (columns + 16) + 2 * 2 * predicates // 8)
    assert bytes_of(memory) / 10 < least < bytes_of(memory)
    assert limit.rules(predicates) * predicates < max(bytes_of(memory) / 4, 10_000 * predicates + 1)
    assert (limit.depth(kept) + 1) ** 2 * kept / 8 < bytes_of(memory)


@pytest.mark.slow
@pytest.mark.parametrize("error", [0.0, 0.01])
def test_a_process_takes_no_more_memory_than_it_may(error: float) -> None:
    """300 columns of 2,000 rows have two million kinds of pairs: gigabytes, if all were kept."""
    program = f"""
from benchmarks.children import forget_peak, peak_memory
from tests.discover.test_budgets import wide
from weever_stream.discover import discover
small, table = wide(4, 30), wide(300, 2000)
discover(small, cross=False, error=0.01)
discover(small, cross=False, max_predicates=2)
forget_peak()
before = peak_memory()
found = discover(table, cross=False, seconds=20, memory="300MB", error={error}, top=5)
assert not found.exact
print(peak_memory() - before)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 20 < int(done.stdout) < 300, "megabytes"


def test_sizes_are_written_as_people_write_them() -> None:
    assert [bytes_of(one) for one in ("2GB", "1.5 g", "512MiB", "100", 7)] == [2 * 10**9, 15 * 10**8, 512 << 20, 100, 7]
    for wrong in ("", "lots", "-2GB", "0"):
        with pytest.raises(DataError, match="no size of memory"):
            bytes_of(wrong)


@pytest.mark.parametrize(
    ("own", "file"),
    [
        ("0::/\n", "memory.max"),
        ("0::/system.slice/weever@packages.service\n", "system.slice/weever@packages.service/memory.max"),
        ("0::/system.slice/weever@packages.service\n", "system.slice/memory.max"),
        ("5:cpu:/\n4:memory:/docker/abc\n", "memory/docker/abc/memory.limit_in_bytes"),
        ("", "memory/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, file: str):
    monkeypatch.setattr(budget, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(budget, "_OWN_CGROUPS", tmp_path / "own")
    machine = machine_memory()
    (tmp_path / "own").write_text(own)
    limit = tmp_path / "cgroup" / file
    limit.parent.mkdir(parents=True)
    limit.write_text(f"{1 << 28}\n")
    assert machine_memory() == 4 * default_memory() == min(machine, 1 << 28)
    limit.write_text("max\n")
    assert machine_memory() == machine


def _nothing(rows: int) -> pa.Table:
    return pa.table({"a": pa.nulls(rows, pa.int64()), "b": pa.nulls(rows)})


@pytest.mark.parametrize(
    ("table", "told", "rules"),
    [
        (lambda: wide(300, 0), "the table has 0 rows", 0),
        (lambda: wide(300, 1), "the table has 1 row:", 0),
        (lambda: _nothing(50), "column b was left out: it has no value", 0),
        (lambda: pa.table({f"c{at}": [at] * 40 for at in range(150)}), None, 150),
        (lambda: pa.table({"a": ["x" * 1_000_000 + str(at) for at in range(20)]}), None, 1),
    ],
    ids=["no row", "one row", "all null", "constant", "long texts"],
)
@pytest.mark.usefixtures("by_cpu")
def test_odd_tables_end_and_are_told_of(table: Callable[[], pa.Table], told: str | None, rules: int) -> None:
    given = table()
    began = process_time()
    found = discover(given, seconds=10, top=None)
    assert process_time() - began < 30
    assert found.total == rules
    assert found.in_time
    assert found.exact
    if told:
        assert any(told in note for note in found.notes)
    else:
        assert not found.notes


def test_the_command_takes_a_size_and_refuses_what_is_none(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n2,2\n")
    assert cli(["discover", str(path), "--memory", "300MB"]) == 0
    assert cli(["discover", str(path), "--memory", "much"]) == 3
    assert "no size of memory" in capfd.readouterr().err


def _crossed(rows: int = 300) -> pa.Table:
    """Columns that share all their values: most comparisons are of different columns."""
    chance = np.random.default_rng(4)
    table = {f"c{at}": chance.integers(0, 5, rows) for at in range(5)}
    return pa.table({**table, "c1": table["c0"] // 2})


@pytest.mark.parametrize("scanned", [hydra.SCANNED, -1])
def test_rules_of_columns_alone_are_found_where_different_columns_take_all_the_time(
    scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _crossed()
    space, alone = space_of(table), space_of(table, Options(cross=False))
    assert len(space.predicates) > 3 * len(alone.predicates)
    search = hydra._search

    def unending(given: object, inversion: object, depth: object, *others: object, **options: object) -> object:
        """There is no time for a search that compares different columns."""
        among = others[-1] if len(others) > 3 else None
        if given is space and among is None:
            return hydra._Inverted(np.zeros((0, len(space.predicates)), np.bool_), False, 0, False)
        return search(given, inversion, depth, *others, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(hydra, "_search", unending)
    found = hydra.find_rules(space, most=3, budget=Budget(1e9), scanned=scanned)
    assert not found.exact
    assert found.limited
    monkeypatch.undo()
    expected = hydra.find_rules(alone, most=3)
    own = [space.number[p.left, p.op, p.right] for p in alone.predicates]  # type: ignore[index]
    assert {row.tobytes() for row in found.rules[:, own]} == {row.tobytes() for row in expected.rules}
    assert len(found.rules) == len(expected.rules) > 0


@pytest.mark.parametrize("error", [0.0, 0.01])
def test_what_was_found_when_somebody_stops_it_is_returned_and_holds(error: float) -> None:
    table = _crossed(900)
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > 40

    found = discover(table, error=error, stopped=stopped, top=8)
    assert asked > 40
    assert not found.in_time
    assert found.rules
    for one in found.rules:
        assert check([one.rule], table, mode="count").results[0].violations == one.violations
        assert one.error <= error


@pytest.mark.parametrize("how", ["no time is left", "somebody has stopped it"])
def test_candidates_are_counted_also_after_the_time_has_ended(how: str) -> None:
    space = space_of(wide(4, 60), Options(cross=False), Budget(None))
    every = hydra.find_rules(space, most=2)
    broken = np.zeros_like(every.rules[:1])
    broken[0, space.number[space.predicates[0].left, space.predicates[0].op, space.predicates[0].right]] = True  # type: ignore[index]
    waiting = np.concatenate([broken, every.rules])
    found = replace(every, rules=every.rules[:0], waiting=waiting, undecided=len(waiting))
    time = [0.0]
    ended = Budget(10.0, clock=lambda: time[0], stopped=lambda: how != "no time is left")
    time[0] = 11.0 if how == "no time is left" else 0.0
    assert not ended.go_on()
    told = hydra._with_those_that_hold(space, found, ended, lambda phase, done, total: None)
    assert {row.tobytes() for row in told.rules} == {row.tobytes() for row in every.rules} != set()
    assert told.undecided == 0


def test_ctrl_c_writes_the_rules_found_so_far(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rules = tmp_path / "a.csv", tmp_path / "rules.yaml"
    path.write_text("a,b\n" + "".join(f"{at},{at // 3}\n" for at in range(60)))
    ranked = run.rank

    def press(*given: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return ranked(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "rank", press)
    handler = signal.getsignal(signal.SIGINT)
    assert cli(["discover", str(path), "-o", str(rules)]) == 130
    assert signal.getsignal(signal.SIGINT) is handler
    assert "a is unique" in capfd.readouterr().out.replace("Unique", "unique")
    assert [rule.name for rule in read_rules(rules).rules]
