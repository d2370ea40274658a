"""What a worker process keeps between tasks. Catches: a second job in a reused session, or a job started again with
other options, that works with the settings of the first one."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.stream.simulated import change_frame, setup_of
from weever_stream.feeds.changes import DROP_ANYWHERE, PUT_ANYWHERE
from weever_stream.rules import ColumnType, parse_rule
from weever_stream.state.manifest import Manifest
from weever_stream.state.store import StoreOptions
from weever_stream.stream import operator
from weever_stream.stream.routing import Router
from weever_stream.stream.setup import Setup

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("c", pa.int64())])
RULE = parse_rule("t.a = s.a and t.c != s.c", name="fd")
WIDER = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("c", pa.float64())])


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return setup_of([RULE], SCHEMA, ("id",), tmp_path, shards=4)


def others(setup: Setup) -> dict[str, list[Any]]:
    """For fields of a setup values that it does not have."""
    spread = replace(setup.rules[0], rule=replace(RULE, spread=2))
    store = setup.store
    return {
        "rules": [(), (spread,), (replace(setup.rules[0], rule=replace(RULE, name="other")),)],
        "key": [(("id", ColumnType("string")),)],
        "columns": [WIDER],
        "shards": [9],
        "store": [StoreOptions(store.uri, {"access_key": "x"}), StoreOptions(store.uri, cache="/elsewhere")],
        "spread": [{"fd": 2}],
        "inline_bytes": [1],
        "retain_batches": [2],
        "remember_drops": [7],
        "max_pairs": [3],
        "generations": [{1: 1}],
        "ended": [{0: "removed"}],
        "fills": [{0: (1, 1, 1, 1)}],
        "offsets": [StoreOptions(store.uri + "/offsets")],
    }


def test_work_is_kept_for_a_setup_that_is_the_same(setup: Setup):
    work = operator._work(setup)
    assert operator._work(replace(setup)) is work
    assert operator._work(replace(setup, store=StoreOptions(setup.store.uri + "/other"))) is not work
    assert operator._work(setup) is work, "two jobs in one process do not take turns"


def test_work_is_made_again_when_any_field_of_the_setup_differs(setup: Setup):
    assert all(field.compare for field in fields(Setup)), "so that a field which is added later counts too"
    for name, values in others(setup).items():
        for value in values:
            before, changed = operator._work(setup), replace(setup, **{name: value})
            work = operator._work(changed)
            assert work is not before, name
            assert work.setup is changed


def test_a_job_that_remembers_drops_does_so_after_one_that_does_not(setup: Setup):
    for remembered, held in ((0, 1), (10, 0)):
        work = operator._work(replace(setup, remember_drops=remembered, shards=1))
        router = Router(work.setup)
        state: bytes | None = None
        # The drop comes first, and the change that it overtook after it.
        for number, change in enumerate([(DROP_ANYWHERE, 5, {"id": 1}), (PUT_ANYWHERE, 4, {"id": 1, "a": 1, "c": 1})]):
            bodies = [message.pack() for _, message in router.route(change_frame([change], SCHEMA))]
            steps = work.apply(0, number, state, bodies)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    state = end.value.dump()
                    break
        assert state is not None
        opened = work.keeper.open(work.setup.families[0], Manifest.load(state, "it"), "it")
        assert opened.shard.held() == held
