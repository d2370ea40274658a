"""Drift of rules, told or not told, in feeds that are made by chance with fixed seeds.

Catches: a notice for one wrong row, for one bad load, for a table that always was dirty or is so in bursts; a rule that
breaks for good and is not told, or late, or twice; a notice that never ends, or outlives its rule; a batch that counts
twice because it is repeated; state that is not all of it, grows, or depends on how often it was saved; quiet rules that
are treated otherwise than rules that are looked at each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weever_stream.cli.drift import sparkline
from weever_stream.errors import StateError
from weever_stream.learn.drift import BUCKETS, Drift, Notice, Observation, Struck

Draw = Callable[[np.random.Generator, float, int], int]


class Feed:
    """A rule, and batches that break it at some rate."""

    def __init__(self, seed: int = 0, drift: Drift | None = None, draw: Draw | None = None) -> None:
        self.drift = drift or Drift({"rule": "as it is"})
        self.chance = np.random.default_rng(seed)
        self.draw = draw or (lambda chance, rate, n: int(chance.binomial(n, rate)))
        self.batch = self.drift.batch
        self.changes = 0
        self.told: list[tuple[int, Notice]] = []

    def run(self, changes: int, rate: float, size: int = 100) -> list[int]:
        """Goes on for so many changes; after how many of them notices came."""
        before, known = self.changes, len(self.told)
        for _ in range(changes // size):
            self.one(size, self.draw(self.chance, rate, size))
        return [at - before for at, _ in self.told[known:]]

    def one(
        self, changes: int, rows: int, named: Sequence[tuple[int, int | None, bool]] = (), rule: str = "rule"
    ) -> None:
        self.batch += 1
        self.changes += changes
        struck = {rule: Struck(rows, named)} if rows else {}
        seen = Observation(self.batch, changes, f"at {self.batch}", f"day {self.batch}", struck, {rule: 7})
        self.told += [(self.changes, notice) for notice in self.drift.observe(seen)]

    @property
    def events(self) -> list[str]:
        return [notice.event for _, notice in self.told]


# What is told


@pytest.mark.parametrize("size", [1, 10, 100])
def test_a_clean_rule_that_2_of_100_changes_break_is_told_within_a_few_hundred(size: int):
    delays = []
    for seed in range(20):
        feed = Feed(seed)
        assert feed.run(100_000, 0.0, 1000) == []
        [delay] = feed.run(3_000, 0.02, size)
        delays.append(delay)
        notice = feed.told[0][1]
        assert (notice.event, notice.reason, notice.baseline, notice.open) == ("began", "rate", 0.0, 7)
        assert notice.recent > 0.005
        assert int(notice.since.split()[1]) >= 99
    assert np.median(delays) <= 400  # it is about 250, 290 and 300
    assert max(delays) <= 1_000


def test_a_jump_from_a_clean_snapshot_is_told_too():
    feed = Feed()
    feed.one(1_000_000, 10)
    assert feed.run(2_000, 0.02, 50)[0] <= 1_000


def test_a_dirty_rule_that_gets_much_worse_is_told():
    feed = Feed()
    assert feed.run(100_000, 0.01) == []
    assert feed.run(5_000, 0.05)[0] <= 1_500
    assert feed.told[0][1].baseline == pytest.approx(0.01, rel=0.2)


def test_a_notice_is_told_once_and_ends_when_the_rate_is_back():
    feed = Feed()
    feed.run(20_000, 0.0)
    feed.run(30_000, 0.05)
    assert feed.events == ["began"]
    assert feed.drift.drifting == ("rule",)
    ended = feed.run(10_000, 0.0)
    assert feed.events == ["began", "ended"]
    assert ended[0] <= 3_000
    began, over = (notice for _, notice in feed.told)
    assert (over.reason, over.since, over.since_position) == ("rate", began.since, began.since_position)
    assert over.recent == pytest.approx(0.05, rel=0.2)
    assert feed.drift.drifting == ()
    assert feed.run(10_000, 0.05)[0] <= 3_000, "and it is told when it comes again"


def test_a_notice_says_since_when_to_the_batch():
    feed = Feed()
    feed.run(50_000, 0.0)
    last_good = feed.batch
    feed.run(5_000, 0.2)
    assert feed.told[0][1].since == f"day {last_good}"
    assert feed.told[0][1].since_position == f"at {last_good}"


# What is not told


@pytest.mark.parametrize("rate", [0.0, 1e-4, 1e-3, 0.01, 0.05, 0.3, 0.9])
def test_a_steady_rate_is_never_told(rate: float):
    """Nine million changes at each rate, as many as the threshold promises on average before a false notice."""
    for size, batches in ((10, 20_000), (100, 20_000), (1_000, 4_000), (14_000, 200)):
        feed = Feed(size)
        assert feed.run(size * batches, rate, size) == [], (rate, size)


def test_dirt_that_comes_in_bursts_is_hardly_ever_told_and_never_once_it_is_known():
    """Rows that are wrong many at a time, at random: how far that is from chance must be seen before it is as usual."""
    told: list[int] = []
    feeds = 0
    for burst in (5, 20, 60):
        for rate in (0.0005, 0.002, 0.01, 0.05):
            for size, batches in ((10, 3_000), (100, 2_000), (1_000, 300)):
                for seed in range(3):
                    feed = Feed(seed, draw=lambda chance, r, n, b=burst: min(n, b * int(chance.poisson(r * n / b))))
                    feed.run(size * batches, rate, size)
                    told += [at for at, notice in feed.told if notice.event == "began"]
                    feeds += 1
    assert feeds == 108
    assert len(told) <= 14  # 1 feed of 20 is usual, see drift_rates
    assert max(told, default=0) <= 40_000  # none was later than 12,000


def test_one_bad_load_is_not_told_and_two_are():
    for rows in (50, 1_000):
        feed = Feed()
        feed.run(50_000, 0.0)
        feed.one(1_000, rows)
        assert feed.told == []
        assert feed.run(10_000, 0.0) == []
        feed.one(1_000, rows)
        assert feed.told == [], "after so many good changes it is not the same any more"
    feed = Feed()
    feed.run(50_000, 0.0)
    feed.one(1_000, 50)
    feed.one(1_000, 50)
    assert feed.events == ["began"]


def test_a_few_wrong_rows_are_not_told():
    feed = Feed()
    feed.run(50_000, 0.0)
    for _ in range(4):
        feed.one(100, 1)
    assert feed.told == []


def test_an_old_wrong_row_that_all_collide_with_counts_once():
    feed = Feed()
    feed.run(50_000, 0.0)
    for new in range(300):
        feed.one(10, 1, [(1000 + new, 7, True)])  # each new row breaks the rule with row 7
    assert feed.told == []
    again = Feed()
    again.run(50_000, 0.0)
    for new in range(300):
        again.one(10, 1, [(1000 + new, 7, False)])  # each is by far the one with more partners: row 7 is not to blame
    assert again.events == ["began"]


def test_a_wrong_row_is_known_by_whichever_place_it_is_named_at():
    feed = Feed()
    feed.run(50_000, 0.0)
    for new in range(200):
        feed.one(10, 2, [(7, 1000 + new, False), (7, 2000 + new, True)])
    assert feed.told == []
    assert feed.drift.trend("rule").recent * 200 * 10 <= 1.001


def test_more_than_are_named_count_too():
    feed = Feed()
    feed.run(50_000, 0.0)
    for first in range(0, 200, 20):
        feed.one(1_000, 20, [(first, None, True)])
    assert feed.events == ["began"]


def test_rows_that_break_a_rule_are_no_more_than_the_changes():
    feed = Feed()
    feed.run(50_000, 0.0)
    feed.one(2, 5_000)
    assert feed.drift.trend("rule").points[-1] is not None
    assert max(point or 0 for point in feed.drift.trend("rule").points) <= 1000


def test_nothing_is_told_before_enough_was_seen():
    feed = Feed()
    assert feed.run(900, 0.0) == []
    assert feed.run(3_000, 0.3) == [], "nobody knows how it was before"


# Rules that change


def test_a_rule_that_is_changed_begins_anew_and_its_notice_ends():
    feed = Feed()
    feed.run(50_000, 0.0)
    feed.run(5_000, 0.2)
    feed.drift.adopt({"rule": "as it is"})
    assert feed.drift.drifting == ("rule",), "as it is"
    feed.drift.adopt({"rule": "another"})
    assert feed.drift.drifting == ()
    feed.one(10, 0)
    assert [(notice.event, notice.reason) for _, notice in feed.told] == [("began", "rate"), ("ended", "changed")]
    assert feed.run(20_000, 0.2) == [], "for the new rule this is how it always was"
    trend = feed.drift.trend("rule")
    assert trend.changes == 20_010
    assert trend.points[0] is None
    assert trend.points[-1] == pytest.approx(200, rel=0.4)


def test_a_rule_that_goes_is_forgotten_and_its_notice_ends():
    feed = Feed()
    feed.run(50_000, 0.0)
    feed.run(5_000, 0.2)
    feed.drift.adopt({"other": "x"})
    saved = Drift.from_json(json.loads(json.dumps(feed.drift.as_json())))  # not told before it is noted
    feed.one(100, 50)
    assert [(notice.event, notice.reason) for _, notice in feed.told] == [("began", "rate"), ("ended", "gone")]
    with pytest.raises(KeyError):
        feed.drift.trend("rule")
    assert [notice.reason for notice in saved.observe(Observation(10_000, 1, "", "", {}))] == ["gone"]
    assert feed.run(50_000, 0.5) == [], "nobody asks any more"


def test_a_rule_that_comes_later_has_a_baseline_of_its_own():
    feed = Feed()
    feed.run(100_000, 0.0, 1_000)
    feed.drift.adopt({"rule": "as it is", "late": "new"})
    for _ in range(20):
        feed.one(100, 2, rule="late")
    assert feed.told == [], "2% from its first day on"
    assert feed.drift.trend("late").baseline == pytest.approx(0.02)
    assert feed.drift.trend("rule").baseline == 0.0


# Trends


def test_a_trend_covers_all_changes_and_then_the_latest():
    feed = Feed()
    feed.run(1_000, 0.1, 10)
    trend = feed.drift.trend("rule")
    assert (trend.width, len(trend.points)) == (64, 16)
    feed.run(20_000, 0.0, 10)
    trend = feed.drift.trend("rule")
    assert (trend.width, len(trend.points)) == (1024, 21)
    assert trend.points[0] == pytest.approx(100, rel=0.4)
    assert set(trend.points[1:]) == {0.0}
    feed.run(500_000, 0.01, 1_000)
    trend = feed.drift.trend("rule")
    assert (trend.width, len(trend.points)) == (4096, BUCKETS)
    assert min(point or 0 for point in trend.points) > 3
    assert trend.recent == pytest.approx(0.01, rel=0.2)
    assert trend.baseline == pytest.approx(0.01, rel=0.1)


def test_a_batch_of_many_buckets_fills_them_evenly():
    feed = Feed()
    feed.one(1_000_000, 5_000)
    points = feed.drift.trend("rule").points
    assert points == pytest.approx((5.0,) * len(points))


def test_a_line_has_a_bar_for_each_point():
    assert sparkline([]) == ""
    assert sparkline([None, 0.0, 1.0, 2.0]) == " ·▅█"
    assert sparkline([0.0, 0.0]) == "··"


# State


@settings(max_examples=60)
@given(
    batches=st.lists(
        st.tuples(
            st.integers(0, 4_000),
            st.dictionaries(st.sampled_from("abc"), st.tuples(st.integers(1, 60), st.booleans()), max_size=3),
        ),
        max_size=40,
    ),
    saves=st.sets(st.integers(0, 40)),
)
def test_what_is_saved_is_all_of_it_and_a_repeated_batch_counts_once(
    batches: list[tuple[int, dict[str, tuple[int, bool]]]], saves: set[int]
):
    rules = {"a": "1", "b": "1", "c": "1"}
    straight, saved = Drift(rules), Drift(rules)
    for number, (changes, broken) in enumerate(batches):
        struck = {
            rule: Struck(n, [(at % 50, None, False) for at in range(n)] if named else ())
            for rule, (n, named) in broken.items()
        }
        seen = Observation(number, changes, "p", str(number), struck)
        told = straight.observe(seen)
        again = saved.observe(seen)
        if number in saves:
            saved = Drift.from_json(json.loads(json.dumps(saved.as_json())))
            saved.adopt(rules)
            again = saved.observe(seen)  # the batch was not committed, and comes again
        assert again == told
    for rule in rules:
        assert straight.trend(rule) == saved.trend(rule)


def test_a_quiet_rule_is_as_one_that_is_looked_at_each_time():
    lazy, eager = Feed(), Feed()
    for feed in (lazy, eager):
        feed.run(40_000, 0.0)
        feed.run(1_000, 0.004)
    for _ in range(200):
        lazy.one(100, 0)
        eager.one(100, 0)
        watched = eager.drift._watched["rule"]
        watched.pass_by(eager.changes - watched.seen, eager.drift._squares - watched.squares)
        watched.seen, watched.squares = eager.changes, eager.drift._squares
    lazy.one(100, 1)
    eager.one(100, 1)
    one, other = lazy.drift._watched["rule"], eager.drift._watched["rule"]
    assert one.score == pytest.approx(other.score, rel=0.02)
    assert one.usual.n == pytest.approx(other.usual.n, rel=0.02)
    assert one.usual.dispersion() == pytest.approx(other.usual.dispersion(), rel=0.05)


def test_state_is_small():
    feed = Feed()
    for first in range(0, 100_000, 50):
        feed.one(100, 50, [(first + at, 10**9 + first + at, True) for at in range(50)])
    assert len(json.dumps(feed.drift.as_json())) < 5_000
    quiet = Drift({f"rule_{n}": "0123456789abcdef" for n in range(20_000)})
    quiet.observe(Observation(0, 1_000, "", "", {}))
    assert len(json.dumps(quiet.as_json())) < 1_000_000


@pytest.mark.parametrize("noted", [{}, {"version": 2}])
def test_state_of_another_release_is_refused(noted: dict[str, object]):
    with pytest.raises(StateError, match="version"):
        Drift.from_json(noted)


@pytest.mark.parametrize("name", ["batch", "changes", "rules", "watched", "last", "told"])
def test_damaged_state_is_refused(name: str):
    feed = Feed()
    feed.run(2_000, 0.1)
    noted = json.loads(json.dumps(feed.drift.as_json()))
    for damage in ({**noted, name: [3]}, {key: value for key, value in noted.items() if key != name}):
        with pytest.raises(StateError, match="damaged"):
            Drift.from_json(damage)
