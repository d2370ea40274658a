"""The desk decides rightly: once, in time, not too often, and again when it is over.

Catches: an alert told twice, or resolved that was never told; a resolve that a flapping violation undoes; thresholds
and times that are off; a silence that swallows the end of an alert, or an alert that is still open at its end; a storm
that becomes a storm of alerts; values that leave the job although nobody allowed it; a delivery that is lost by a crash.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.alerts.desks import START, after, desk, news, rules, target
from weever_stream.alerts.desk import HISTORY, Desk, dedup_key
from weever_stream.alerts.news import count, held_of_each, joined
from weever_stream.alerts.notice import Notice
from weever_stream.alerts.subjects import Subject
from weever_stream.errors import RuleError
from weever_stream.job.alerts import Silence, Window
from weever_stream.job.routes import routes_of


def deliver(desk: Desk, now: datetime) -> list[Notice]:
    """Delivers all that is wanted."""
    wants, _ = desk.wants(now)
    sent = []
    for want in wants:
        notice = desk.sending(want, now)
        sent.append(notice)
        desk.delivered(want, notice, {}, now)
    return sent


def told(notices: list[Notice]) -> list[tuple[str, str, int]]:
    return [(one.what, one.rule, one.open) for one in notices]


def test_an_alert_is_opened_once_and_resolved_once():
    one = desk()
    one.take(news(one, 0, zips=2))
    assert told(deliver(one, START)) == [("open", "zips", 2)]
    one.take(news(one, 1, zips=3))
    assert deliver(one, after(10)) == []  # an update only after an hour
    one.take(news(one, 2))
    assert deliver(one, after(20)) == []  # it may come back
    wants, later = one.wants(after(30))
    assert not wants
    assert later == after(80)
    assert told(deliver(one, after(80))) == [("resolve", "zips", 0)]
    assert deliver(one, after(9999)) == []
    assert [event["event"] for event in one.history] == ["open", "resolve"]


def test_a_batch_that_is_repeated_says_nothing_new():
    one = desk()
    assert one.take(news(one, 5, zips=2))
    assert not one.take(news(one, 5, zips=2))
    assert not one.take(news(one, 4, zips=9))
    assert told(deliver(one, START)) == [("open", "zips", 2)]


def test_a_batch_after_which_as_many_are_open_but_not_the_same_is_something_new():
    one = desk(of=rules(BY_ZIP))
    assert one.take(news(one, 0, added(2), zips=2))
    assert one.take(news(one, 1, [*added(1, 2), *removed(1)], zips=2))
    assert one.take(news(one, 2, zips=2))  # where there are groups, a batch that is missing must be known for missing
    plain = desk()
    plain.take(news(plain, 0, zips=2))
    assert not plain.take(news(plain, 1, zips=2))


def test_a_flapping_violation_is_one_alert():
    one = desk()
    sent = []
    for step in range(20):  # open and closed again every ten seconds
        one.take(news(one, step, zips=step % 2))
        sent += deliver(one, after(10 * step))
    sent += deliver(one, after(1000))
    assert told(sent) == [("open", "zips", 1)]
    one.take(news(one, 99, zips=0))
    sent = deliver(one, after(1000)) + deliver(one, after(1060))
    assert told(sent) == [("resolve", "zips", 0)]


def test_what_is_over_before_it_was_told_is_never_told():
    one = desk(target(**{"for": "10 minutes"}))
    one.take(news(one, 0, zips=1))
    assert deliver(one, START) == []
    assert one.wants(after(1))[1] == after(600)
    one.take(news(one, 1))
    assert deliver(one, after(700)) == []
    one.take(news(one, 2, zips=1))
    assert deliver(one, after(800)) == []
    assert told(deliver(one, after(1400))) == [("open", "zips", 1)]


def test_thresholds_of_target_and_rule():
    one = desk(target(after="5 violations"), of=rules("", "alerts: {after: 2, for: 1 minute}"))
    one.take(news(one, 0, zips=4, codes=2))
    assert deliver(one, START) == []
    assert told(deliver(one, after(60))) == [("open", "codes", 2)]
    one.take(news(one, 1, zips=5, codes=1))
    assert told(deliver(one, after(70))) == [("open", "zips", 5)]
    assert told(deliver(one, after(130))) == [("resolve", "codes", 1)]  # less than it takes; the number says it


def test_updates_come_when_the_number_has_changed_and_not_too_often():
    one = desk(target(update_every="10 minutes"))
    one.take(news(one, 0, zips=1))
    deliver(one, START)
    for step in range(1, 12):
        one.take(news(one, step, zips=1 + step))
        sent = deliver(one, after(60 * step))
        assert told(sent) == ([("update", "zips", 11)] if step == 10 else [])
    assert sum(event["event"] == "update" for event in one.history) == 1


def test_a_target_that_forgets_is_reminded():
    one = desk()
    one.repeats = {"ops": 900.0}
    one.take(news(one, 0, zips=1))
    first = deliver(one, START)
    assert deliver(one, after(899)) == []
    again = deliver(one, after(900))
    assert told(again) == [("update", "zips", 1)]
    assert again[0].dedup_key == first[0].dedup_key
    assert again[0].opened_at == START


def test_who_hears_of_what():
    night = target(name="night", min_severity="critical")
    logistics = target(name="logistics", owners=["logistics"])
    named = target(name="named", rules=["codes"])
    found = {(r.target, r.rule) for r in routes_of([night, logistics, named], rules())}
    assert found == {("night", "codes"), ("logistics", "zips"), ("named", "codes")}
    chosen = routes_of([night, named], rules("", "alerts: {to: named}"))
    assert {(r.target, r.rule) for r in chosen} == {("named", "codes")}


@pytest.mark.parametrize(
    ("options", "about", "message"),
    [
        ({"rules": ["zip"]}, "", "name a rule zip"),
        ({"silences": [{"rules": ["zip"], "until": "2026-03-03"}]}, "", "name a rule zip"),
        ({}, "alerts: {to: opps}", "is told to opps"),
        ({}, "alerts: {group_by: [street]}", "grouped by street"),
        ({"group_by": ["street"]}, "", "grouped by street"),
        ({}, "alerts: {for: soon}", "is no duration"),
        ({}, "alerts: {values: [street]}", "show a column street"),
        ({"mask": ["street"]}, "", "mask a column street"),
    ],
)
def test_names_that_are_not_there_are_refused(options: dict[str, Any], about: str, message: str):
    with pytest.raises(RuleError, match=message):
        routes_of([target(**options)], rules(about))


# Quiet times


def test_a_silence_holds_back_openings_and_not_ends():
    one = desk(target(silences=[{"rules": ["zips"], "from": after(100), "until": after(200), "why": "migration"}]))
    one.take(news(one, 0, codes=1))
    assert told(deliver(one, after(90))) == [("open", "codes", 1)]
    one.take(news(one, 1, zips=7))
    assert deliver(one, after(110)) == []
    assert told(deliver(one, after(170))) == [("resolve", "codes", 0)]
    assert [e["event"] for e in one.history] == ["open", "suppressed", "resolve"]  # suppressed once, not at each look
    assert "migration" in one.history[1]["why"]
    assert told(deliver(one, after(200))) == [("open", "zips", 7)]


def test_silences_set_by_hand():
    one = desk()
    one.silences = [Silence.model_validate({"until": after(50)})]
    one.take(news(one, 0, zips=1))
    wants, later = one.wants(START)
    assert not wants
    assert later is not None
    assert later <= after(50)
    one.take(news(one, 1))
    assert deliver(one, after(60)) == []  # it was over before the silence was


@pytest.mark.parametrize(
    ("window", "inside", "outside"),
    [
        ({"from": "22:00", "to": "06:00"}, ["2026-03-02T22:00", "2026-03-03T05:59"], ["2026-03-03T06:00"]),
        ({"days": ["fri"], "from": "22:00", "to": "06:00"}, ["2026-03-07T05:00"], ["2026-03-06T05:00"]),
        ({"days": ["sat", "sun"]}, ["2026-03-07T00:00", "2026-03-08T23:59"], ["2026-03-09T00:00"]),
        ({"from": "09:00", "to": "10:00", "zone": "Europe/Berlin"}, ["2026-03-02T08:30"], ["2026-03-02T09:30"]),
        ({"from": "09:00", "to": "10:00", "zone": "Europe/Berlin"}, ["2026-07-01T07:30"], ["2026-07-01T08:30"]),
        ({"from": "18:00", "to": "24:00"}, ["2026-03-02T23:59"], ["2026-03-03T00:00", "2026-03-02T17:59"]),
    ],
)
def test_windows(window: dict[str, Any], inside: list[str], outside: list[str]):
    made = Window.model_validate(window)
    assert all(made.covers(datetime.fromisoformat(one + "+00:00")) for one in inside)
    assert not any(made.covers(datetime.fromisoformat(one + "+00:00")) for one in outside)


def test_in_a_window_nothing_is_opened_and_after_it_what_is_still_open():
    one = desk(target(windows=[{"from": "12:00", "to": "13:00"}]))
    one.take(news(one, 0, zips=1, codes=1))
    assert deliver(one, after(60)) == []
    one.take(news(one, 1, zips=1))
    assert told(deliver(one, after(3600))) == [("open", "zips", 1)]


def test_an_alert_that_was_just_over_is_not_opened_again_for_a_while():
    one = desk(target(suppress_for="1 hour", quiet="0 seconds"))
    one.take(news(one, 0, zips=1))
    deliver(one, START)
    one.take(news(one, 1))
    assert told(deliver(one, after(10))) == [("resolve", "zips", 0)]
    one.take(news(one, 2, zips=1))
    assert deliver(one, after(20)) == []
    assert told(deliver(one, after(3610))) == [("open", "zips", 1)]
    assert [e["event"] for e in one.history] == ["open", "resolve", "suppressed", "open"]


# Groups and storms

BY_ZIP = "alerts: {group_by: equality, values: all}"


def added(n: int, start: int = 0) -> list[tuple[str, str, str, str]]:
    return [("zips", "added", f"v{at}", f"zip{at}") for at in range(start, start + n)]


def removed(n: int, start: int = 0) -> list[tuple[str, str, str, str]]:
    return [(rule, "removed", name, at) for rule, _, name, at in added(n, start)]


def test_each_group_has_its_own_alert():
    one = desk(of=rules(BY_ZIP))
    one.take(news(one, 0, [*added(2), ("zips", "added", "w", "zip0")], zips=3))
    sent = deliver(one, START)
    assert sorted((dict(n.group)["zip"], n.open) for n in sent) == [("zip0", 2), ("zip1", 1)]
    assert len({n.dedup_key for n in sent}) == 2
    one.take(news(one, 1, removed(1, 1), zips=2))
    over = deliver(one, after(1)) + deliver(one, after(61))
    assert [(n.what, n.group["zip"]) for n in over] == [("resolve", "zip1")]
    assert over[0].dedup_key in {n.dedup_key for n in sent}


def test_a_storm_is_a_few_alerts_and_one_for_the_others():
    one = desk(target(max_alerts=3), of=rules(BY_ZIP))
    one.take(news(one, 0, added(5000), zips=5000))
    sent = deliver(one, START)
    assert len(sent) == 4
    others = [n for n in sent if n.group_id == "others"]
    assert [n.open for n in others] == [4997]
    assert len(json.dumps(one.noted())) < 5000
    one.take(news(one, 1, removed(5000)))
    over = deliver(one, after(1)) + deliver(one, after(61))
    assert {(n.what, n.open) for n in over} == {("resolve", 0)}
    assert {n.dedup_key for n in over} == {n.dedup_key for n in sent}
    assert one.subjects.places == {}


def test_the_numbers_of_groups_add_up_to_the_rules():
    one = desk(target(max_alerts=2), of=rules(BY_ZIP))
    alive: set[int] = set()
    for batch, (more, gone) in enumerate([(6, 0), (3, 4), (0, 5), (8, 1), (0, 8)]):
        first = max(alive, default=-1) + 1
        gone_now = sorted(alive)[:gone]
        deltas = added(more, first) + [d for at in gone_now for d in removed(1, at)]
        alive = alive - set(gone_now) | set(range(first, first + more))
        one.take(news(one, batch, deltas, zips=len(alive)))
        groups = {place[2]: s.open for place, s in one.subjects.places.items() if place[1] == ("zip",)}
        assert sum(groups.values()) == len(alive)
        assert sum(name != "others" for name in groups) <= 2
        deliver(one, after(1000 * batch))
        deliver(one, after(1000 * batch + 100))
    assert not alive
    assert not one.alerts


def of_columns(by: tuple[str, ...], noted: Any = None) -> Desk:
    route = replace(routes_of([target()], rules(BY_ZIP), ["id"])[0], by=by, shown=frozenset(by))
    one = Desk("packages", [route], noted, job="nightly", rules=["zips"])
    one.repeats = {"ops": None}
    return one


def take(one: Desk, batch: int, change: str, rows: dict[str, dict[str, Any]], still_open: int) -> None:
    """A batch in which the violations of `rows`, by id, are added or removed."""
    names, values = list(rows), [json.dumps(row) for row in rows.values()]
    columns = {"rule": ["zips"] * len(rows), "change": [change] * len(rows), "violation_id": names}
    columns |= {"left_key": names, "right_key": names, "left_values": values, "right_values": values}
    asked = one.question()
    one.take(joined([count(columns, asked)], asked, batch, f"p{batch}", {"zips": still_open}))


ODD = ("a,b", "a", 'quo"ted', "two\nlines", "x=y", "slash/ed", " ", "null")


@pytest.mark.parametrize("column", ODD)
def test_group_columns_may_have_any_name_and_value(column: str):
    """Ten violations are added and ten removed: none is counted after that, whatever else of the rule is open."""
    by = (column, "b")
    one = of_columns(by)
    kinds = [{column: value, "b": other} for value in (*ODD, None) for other in ("1,2", None)]
    rows = {f"v{at}": kinds[at % len(kinds)] for at in range(10 * len(kinds))}
    take(one, 0, "added", rows, len(rows))
    sent = deliver(one, START)
    assert len({notice.dedup_key for notice in sent}) == len(sent) == len(kinds), "each has an alert of its own"
    assert {tuple(notice.group.items()) for notice in sent} == {tuple(kind.items()) for kind in kinds}
    assert {notice.open for notice in sent} == {10}
    one = of_columns(by, json.loads(json.dumps(one.noted())))  # and all of it outlives the process
    first = {name: row for name, row in rows.items() if row == kinds[0]}
    take(one, 1, "removed", first, len(rows) - 10)
    over = deliver(one, after(1)) + deliver(one, after(62))
    assert [(notice.what, dict(notice.group), notice.open) for notice in over] == [("resolve", kinds[0], 0)]


def test_keys_of_alerts_do_not_meet():
    names = ("a", "a/b", "a b", "a  b", "a\nb", "a%20b", "a,b", "\ud83d", "ö")
    places = [
        (name, by, group) for name in names for by, group in (((), ""), (("a,b",), "others"), (("a", "b"), "others"))
    ]
    keys = [dedup_key(job, table, place) for job in ("a", "b") for table in ("a", "a/a") for place in places]
    assert len({*keys}) == len(keys)
    assert all(key.isprintable() and " " not in key for key in keys)
    assert dedup_key("nightly", "packages", ("zips", (), "")) == "weever/nightly/packages/zips"


def test_alerts_that_are_open_keep_their_key_when_the_job_is_renamed():
    one = desk()
    one.take(news(one, 0, zips=2))
    (opened,) = deliver(one, START)
    renamed = desk(noted=json.loads(json.dumps(one.noted())))
    renamed.job = "another"
    renamed.take(news(renamed, 1, codes=1))
    sent = deliver(renamed, after(1)) + deliver(renamed, after(62))
    assert {notice.what: notice.dedup_key for notice in sent} == {
        "resolve": opened.dedup_key,
        "open": "weever/another/packages/codes",
    }


def test_a_violation_stays_in_the_group_in_which_it_was_opened():
    one = desk(of=rules(BY_ZIP))
    one.take(news(one, 0, [("zips", "added", "v1", "here"), ("zips", "added", "v2", "there")], zips=2))
    deliver(one, START)
    one.take(news(one, 1, [("zips", "removed", "v1", "there")], zips=1))  # its rows have moved while it lasted
    over = deliver(one, after(1)) + deliver(one, after(61))
    assert [(n.what, n.group["zip"]) for n in over] == [("resolve", "here")]


def test_a_group_with_more_violations_than_are_held_by_id_keeps_its_number():
    one = desk(of=rules(BY_ZIP))
    many = held_of_each(20) + 100
    one.take(news(one, 0, [("zips", "added", f"v{at}", "here") for at in range(many)], zips=many))
    (place,) = [place for place in one.subjects.places if place[2] not in ("", "others")]
    assert one.subjects.places[place].open == many
    for batch, start in enumerate(range(0, many, 150), 1):
        gone = [("zips", "removed", f"v{at}", "here") for at in range(start, min(many, start + 150))]
        left = max(0, many - start - 150)
        one.take(news(one, batch, gone, zips=left))
        assert one.subjects.places.get(place, Subject()).open == left


def test_two_targets_that_group_a_rule_otherwise_have_their_own_numbers():
    by_city = target(name="city", group_by=["city"], rules=["zips"])
    by_zip = target(name="zip", group_by=["zip"], rules=["zips"])
    one = desk(by_city, by_zip, of=rules("alerts: {values: all}"))
    many = 2000  # all of one city, each with a zip of its own
    one.take(news(one, 0, added(many), zips=many))
    deliver(one, START)
    one.take(news(one, 1, removed(many - 1, 1), zips=1))
    groups = {
        place[2]: s.open for place, s in one.subjects.places.items() if place[1] == ("city",) and place[2] != "others"
    }
    assert list(groups.values()) == [1]


def test_the_target_that_wants_the_fewest_alerts_decides_how_many_groups_there_are():
    pager, log = target(name="pager", max_alerts=2), target(name="all", max_alerts=500)
    one = desk(pager, log, of=rules(BY_ZIP))
    one.take(news(one, 0, added(300), zips=300))
    wants, _ = one.wants(START)
    assert sum(want.target == "pager" for want in wants) == 3


def test_batches_that_went_by_unseen_leave_no_group_stuck():
    one = desk(of=rules(BY_ZIP))
    one.take(news(one, 0, added(3), zips=3))
    deliver(one, START)
    one.take(news(one, 2, added(1, 3), zips=2))  # in batch 1 two were mended
    groups = {place[2]: s.open for place, s in one.subjects.places.items() if place[1] == ("zip",)}
    assert sum(groups.values()) == 2
    one.take(news(one, 3, removed(1, 3)))
    deliver(one, after(1))
    assert all(n.what == "resolve" for n in deliver(one, after(100)))
    assert not one.alerts


def test_another_grouping_does_not_close_what_it_opens():
    one = desk(target(group_by=["zip"], max_alerts=1, rules=["zips"]))
    one.take(news(one, 0, added(3), zips=3))
    before = {n.dedup_key for n in deliver(one, START)}
    another = desk(target(group_by=["city"], max_alerts=1, rules=["zips"]), noted=one.noted())
    another.take(news(another, 1, zips=3))
    sent = deliver(another, after(1))
    opened = {n.dedup_key for n in sent if n.what == "open"}
    assert {n.dedup_key for n in sent if n.what == "resolve"} == before
    assert opened
    assert not opened & before


def test_violations_that_were_open_before_alerts_were_asked_for_are_told():
    one = desk(of=rules(BY_ZIP))
    one.take(news(one, 7, added(1), zips=11))  # ten of which nothing is known
    sent = deliver(one, START)
    assert sorted((n.group_id == "others", n.open) for n in sent) == [(False, 1), (True, 10)]


# What may be shown


@pytest.mark.parametrize("values", ["none", "keys", "all", "[city]"])
def test_only_what_a_rule_allows_is_kept_or_shown(values: str):
    one = desk(target(mask=["zip"]), of=rules(f"alerts: {{group_by: equality, values: {values}}}"))
    one.take(news(one, 0, [("zips", "added", "v1", "zip-is-secret")], zips=1))
    (sent,) = deliver(one, START)
    (example,) = sent.examples
    assert example.violation_id == "v1"
    assert (example.left_key, example.right_key) == ((None, None) if values == "none" else ("v1-l", "v1-r"))
    masked = desk(target(mask=["id"]), of=rules(f"alerts: {{values: {values}}}"))
    masked.take(news(masked, 0, [("zips", "added", "v1", "here")], zips=1))
    assert "v1-l" not in json.dumps(masked.noted()) + repr(deliver(masked, START))  # the key is masked
    assert example.left_values == ({"city": "Ulm"} if values in ("all", "[city]") else None)
    assert sent.group == {}
    everything = json.dumps(one.noted()) + repr(sent)
    assert "zip-is-secret" not in everything
    assert ("Ulm" in everything) == (values in ("all", "[city]"))
    assert ("v1-l" in everything) == (values != "none")


def test_examples_are_of_what_is_open():
    one = desk(of=rules("alerts: {values: keys}"))
    one.take(news(one, 0, added(3), zips=3))
    one.take(news(one, 1, removed(2), zips=1))
    (sent,) = deliver(one, START)
    assert [e.violation_id for e in sent.examples] == ["v2"]


def test_an_alert_whose_number_stays_is_updated_when_its_examples_are_fixed():
    one = desk(target(update_every="60 seconds"))
    one.take(news(one, 0, added(3), zips=3))
    (opened,) = deliver(one, START)
    one.take(news(one, 1, [*removed(3), *added(3, 3)], zips=3))  # as many are open, and none of those
    assert deliver(one, after(59)) == []
    one = desk(target(update_every="60 seconds"), noted=json.loads(json.dumps(one.noted())))
    (update,) = deliver(one, after(60))
    assert (update.what, update.open) == ("update", 3)
    assert {e.violation_id for e in opened.examples} == {"v0", "v1", "v2"}
    assert {e.violation_id for e in update.examples} == {"v3", "v4", "v5"}
    one.take(news(one, 2, zips=3))
    assert deliver(one, after(9999)) == []
    quiet = desk(target(examples=0, update_every="60 seconds"))  # who sees none hears of none
    quiet.take(news(quiet, 0, added(3), zips=3))
    deliver(quiet, START)
    quiet.take(news(quiet, 1, [*removed(3), *added(3, 3)], zips=3))
    assert deliver(quiet, after(9999)) == []


def test_examples_that_are_fixed_are_followed_by_others():
    one = desk(target(update_every="60 seconds"))
    one.take(news(one, 0, added(10), zips=10))
    (opened,) = deliver(one, START)
    fixed = {e.violation_id for e in opened.examples}
    assert len(fixed) == 3
    one = desk(target(update_every="60 seconds"), noted=json.loads(json.dumps(one.noted())))
    one.take(news(one, 1, [delta for delta in removed(10) if delta[2] in fixed], zips=7))
    (update,) = deliver(one, after(60))
    assert (update.what, update.open, len(update.examples)) == ("update", 7, 3)
    assert fixed.isdisjoint(e.violation_id for e in update.examples)


def test_so_many_examples_are_held_and_no_more():
    one = desk(target(examples=2))
    one.take(news(one, 0, added(100), zips=100))
    assert {len(subject.examples) for subject in one.subjects.places.values() if subject.open} == {8}


# Failures


def test_while_a_rule_is_backfilled_its_alert_stays_as_it_is():
    """Fewer open violations, or none, do not mean that any is fixed."""
    one = desk(target(update_every="10 seconds"))
    one.repeats = {"ops": 100.0}  # a target that forgets
    one.take(news(one, 0, zips=288))
    assert told(deliver(one, START)) == [("open", "zips", 288)]
    for batch, still_open in ((1, 0), (2, 5)):
        one.take(replace(news(one, batch, zips=still_open), backfilling=frozenset({"zips"})))
        assert deliver(one, after(50 * batch - 1)) == []
        one = desk(target(update_every="10 seconds"), noted=json.loads(json.dumps(one.noted())))  # over restarts too
        one.repeats = {"ops": 100.0}
    (reminder,) = deliver(one, after(120))
    assert (reminder.what, reminder.open, reminder.backfilling) == ("update", 288, True)
    one.take(news(one, 3, zips=287))  # the backfill is complete
    assert told(deliver(one, after(500))) == [("update", "zips", 287)]
    one.take(replace(news(one, 4), backfilling=frozenset({"zips"})))
    one.take(news(one, 5))  # and of another one that leaves nothing
    assert deliver(one, after(501)) == [], "its quiet time begins with the end of the backfill"
    assert told(deliver(one, after(562))) == [("resolve", "zips", 0)]


def test_a_delivery_that_fails_is_tried_again_and_given_up_in_the_end():
    one = desk(target(give_up_after="1 hour"))
    one.take(news(one, 0, zips=1))
    (want,), _ = one.wants(START)
    one.sending(want, START)
    assert one.wants(START)[0] == []  # it is under way
    assert not one.failed(want, "503", 30.0, START)
    assert one.waiting("ops") == 1
    assert one.wants(after(29)) == ([], after(30))
    (want,), _ = one.wants(after(30))
    one.sending(want, after(30))
    assert one.failed(want, "503", 30.0, after(3600))
    assert one.wants(after(9999))[0] == []
    one.take(news(one, 1))
    one.wants(after(9999))
    one.take(news(one, 2, zips=1))  # another one: it is tried
    assert len(one.wants(after(10000))[0]) == 1
    assert [e["event"] for e in one.history] == ["failed", "gave up"]


def test_what_was_given_up_is_tried_again_by_the_next_start():
    one = desk()
    one.take(news(one, 0, zips=1))
    (want,), _ = one.wants(START)
    one.sending(want, START)
    one.failed(want, "401", None, START)
    assert one.wants(after(5))[0] == []
    another = desk(noted=json.loads(json.dumps(one.noted())))
    assert told(deliver(another, after(6))) == [("open", "zips", 1)]


def test_what_is_over_while_its_opening_is_under_way_is_resolved():
    one = desk(target(quiet="0 seconds"))
    one.take(news(one, 0, zips=1))
    (want,), _ = one.wants(START)
    notice = one.sending(want, START)
    one.take(news(one, 1))
    assert one.wants(after(5))[0] == []
    one.delivered(want, notice, {"thread": "7"}, after(6))
    (want,), _ = one.wants(after(7))
    assert want.what == "resolve"
    assert one.alerts[want.target, want.place].memory == {"thread": "7"}


def test_what_may_have_been_opened_and_is_over_is_resolved():
    one = desk()
    one.take(news(one, 0, zips=1))
    (want,), _ = one.wants(START)
    one.sending(want, START)
    crashed = one.noted()  # before it was known how it went
    another = desk(noted=crashed)
    another.take(news(another, 1))
    assert told(deliver(another, after(1)) + deliver(another, after(61))) == [("resolve", "zips", 0)]
    one.failed(want, "timeout", 5.0, after(1), unsure=True)
    one.take(news(one, 1))
    assert told(deliver(one, after(6)) + deliver(one, after(66))) == [("resolve", "zips", 0)]


def test_an_end_that_may_have_arrived_is_followed_by_a_new_opening_if_it_comes_back():
    for noted in (False, True):
        one = desk()
        one.take(news(one, 0, zips=1))
        (opened,) = deliver(one, START)
        one.take(news(one, 1))
        one.wants(after(1))
        (want,), _ = one.wants(after(61))
        one.sending(want, after(61))
        if noted:  # the driver dies, and another goes on
            one = desk(noted=json.loads(json.dumps(one.noted())))
        else:
            one.failed(want, "timeout", 5.0, after(71), unsure=True)
        one.take(news(one, 2, zips=1))
        (again,) = deliver(one, after(80))
        assert (again.what, again.dedup_key) == ("open", opened.dedup_key)
        assert again.serial != opened.serial  # or the other side would take it for the first one
        assert deliver(one, after(90)) == []


def test_an_end_that_was_given_up_is_told_by_the_next_start():
    one = desk(target(quiet="0 seconds"))
    one.take(news(one, 0, zips=1))
    deliver(one, START)
    one.take(news(one, 1))
    (want,), _ = one.wants(after(1))
    one.sending(want, after(1))
    assert one.failed(want, "401", None, after(2))
    assert deliver(one, after(9999)) == []
    another = desk(target(quiet="0 seconds"), noted=json.loads(json.dumps(one.noted())))
    assert told(deliver(another, after(10000))) == [("resolve", "zips", 0)]


def test_times_that_pass_between_two_short_runs_count():
    said: dict[str, Any] = {"for": "10 minutes", "quiet": "10 minutes"}
    noted, sent = None, []
    for step in range(8):  # a run every six minutes, as cron would start it
        one = desk(target(**said), noted=noted)
        one.take(news(one, step, zips=1 if step < 4 else 0))
        sent += [(step, *rest) for rest in told(deliver(one, after(360 * step)))]
        noted = json.loads(json.dumps(one.noted()))
    assert sent == [(2, "open", "zips", 1), (6, "resolve", "zips", 0)]


def test_a_clock_that_was_ahead_holds_nothing_up():
    one = desk()
    one.take(news(one, 0, zips=1))
    (want,), _ = one.wants(after(10**8))
    one.sending(want, after(10**8))
    one.failed(want, "503", 30.0, after(10**8))
    assert told(deliver(one, START)) == [("open", "zips", 1)]


def test_what_surely_was_not_opened_is_not_resolved():
    one = desk()
    one.take(news(one, 0, zips=1))
    (want,), _ = one.wants(START)
    one.sending(want, START)
    one.failed(want, "refused", 5.0, after(1))
    one.take(news(one, 1))
    assert deliver(one, after(6)) + deliver(one, after(66)) == []


def test_an_alert_of_a_rule_or_a_route_that_is_gone_is_resolved():
    one = desk()
    one.take(news(one, 0, zips=1, codes=1))
    deliver(one, START)
    without = tuple(rule for rule in rules() if rule.name == "codes")
    another = desk(of=without, noted=one.noted())
    assert deliver(another, after(1)) == []  # it may be that the start is refused
    another.agreed = True
    (sent,) = deliver(another, after(1))
    assert (sent.what, sent.rule, sent.reason) == ("resolve", "zips", "rule_removed")
    hears_less = desk(target(min_severity="critical"), noted=one.noted())
    hears_less.agreed = True
    (sent,) = deliver(hears_less, after(1))
    assert (sent.what, sent.rule, sent.reason) == ("resolve", "zips", "not_routed")
    only_critical = desk(target(name="other"), noted=one.noted())
    only_critical.agreed = True
    assert sorted(told(deliver(only_critical, after(1)))) == [("open", "codes", 1), ("open", "zips", 1)]
    assert {(e["event"], e.get("why")) for e in only_critical.history if e["target"] == "ops"} >= {
        ("dropped", "there is no such target any more")
    }


def test_history_is_bounded():
    one = desk(target(quiet="0 seconds"))
    for step in range(HISTORY):
        one.take(news(one, step, zips=(step + 1) % 2))
        deliver(one, after(step))
    assert len(one.history) == HISTORY


class DeskMachine(RuleBasedStateMachine):
    """Any numbers, times, failures and crashes: what was told is a proper story, and in the end it is the truth."""

    @initialize(lasting=st.sampled_from([0, 30]), quiet=st.sampled_from([0, 60]), enough=st.integers(1, 3))
    def start(self, lasting: int, quiet: int, enough: int) -> None:
        said: dict[str, Any] = {"for": f"{lasting} seconds", "quiet": f"{quiet} seconds", "after": enough}
        self.target, self.rules = target(max_alerts=2, **said), rules("alerts: {group_by: equality}")
        self.lasting, self.quiet, self.enough = lasting, quiet, enough
        self.desk = desk(self.target, of=self.rules)
        self.now, self.batch, self.alive = START, 0, dict.fromkeys(range(0), "")
        self.saved = self.desk.noted()
        self.open: dict[str, bool] = {}
        self.maybe_repeated: set[str] = set()

    def save(self) -> None:
        self.saved = json.loads(json.dumps(self.desk.noted()))

    @rule(more=st.lists(st.sampled_from("abcd"), max_size=3), drops=st.integers(0, 3))
    def a_batch(self, more: list[str], drops: int) -> None:
        gone = list(self.alive)[:drops]
        deltas = [("zips", "removed", f"v{at}", self.alive.pop(at)) for at in gone]
        for zip_code in more:
            at = max([*self.alive, *gone, -1]) + 1
            self.alive[at] = zip_code
            deltas.append(("zips", "added", f"v{at}", zip_code))
        self.desk.take(news(self.desk, self.batch, deltas, zips=len(self.alive)))
        self.batch += 1
        self.save()

    @rule(seconds=st.sampled_from([1, 10, 29, 31, 61, 4000]))
    def time_goes_by(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(ends=st.sampled_from(["noted", "crash", "lost", "lost, unsure", "arrived, unsure"]), data=st.data())
    def a_delivery(self, ends: str, data: st.DataObject) -> None:
        wants, _ = self.desk.wants(self.now)
        if not wants:
            return
        want = data.draw(st.sampled_from(wants))
        notice = self.desk.sending(want, self.now)
        self.save()
        if "lost" in ends:
            self.desk.failed(want, "503", 5.0, self.now, unsure="unsure" in ends)
            self.maybe_repeated |= {notice.dedup_key} if "unsure" in ends else set()
            self.save()
            return
        was, key = self.open.get(notice.dedup_key, False), notice.dedup_key
        again = key in self.maybe_repeated
        if notice.what == "resolve":
            assert was or again, "what was never told is not resolved"
            assert notice.open < self.enough
            self.open[key] = False
        else:
            assert notice.open >= self.enough
            assert (notice.what == "open") == (not was) or again, "opened once"
            self.open[key] = True
        self.maybe_repeated.discard(key)
        if ends == "noted":
            self.desk.delivered(want, notice, {}, self.now)
        else:
            self.maybe_repeated.add(key)
        if ends == "crash":
            self.crash()
        elif "unsure" in ends:
            self.desk.failed(want, "timeout", 5.0, self.now, unsure=True)
        self.save()

    @rule()
    def crash(self) -> None:
        self.desk = desk(self.target, of=self.rules, noted=self.saved)

    def teardown(self) -> None:
        if not hasattr(self, "desk"):
            return
        for _ in range(3):  # time enough for all that waits
            deliver_and_follow(self)
            self.now += timedelta(seconds=4000)
        wanted = {place[2] for place, one in self.desk.subjects.places.items() if place[1] and one.open >= self.enough}
        is_open = {key.split("/")[4] for key, value in self.open.items() if value}
        assert is_open == wanted
        assert sum(one.open for place, one in self.desk.subjects.places.items() if place[1]) == len(self.alive)


def deliver_and_follow(machine: DeskMachine) -> None:
    for notice in deliver(machine.desk, machine.now):
        machine.open[notice.dedup_key] = notice.what != "resolve"


def test_whatever_happens_the_story_is_proper_and_ends_with_the_truth():
    run_state_machine_as_test(DeskMachine, settings=settings(max_examples=50, stateful_step_count=25))
