"""What a seed draws before a world begins: rules, columns, key, setup, the dialect of its feed, and the weather.

Worlds are small, a few shards and keys, so that rows meet, keys come again and a run takes tens of milliseconds. Sizes
at which the product makes runs, files and pieces are made small with them, or random worlds would hardly see any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa

from tests.detect.drawn import RULES, SCHEMA, small_runs
from tests.stream.simulated import setup_of
from weever_stream.detect import pairs
from weever_stream.rules import Rule
from weever_stream.stream.setup import Setup

__all__ = ["DIALECTS", "FAULTS", "KEYS", "Dialect", "Plan", "draw"]

LONG = "the same first eight bytes"
KEYS: Mapping[tuple[str, ...], Mapping[str, list[Any]]] = {
    ("id",): {"id": [*range(12), -(2**63), 2**63 - 1, 2**53, 2**53 + 1]},
    ("name",): {"name": ["", "a", "b", "ä", "z", "\0", LONG, LONG + "!", "B", "é", "10", "9"]},
    ("amount",): {"amount": [Decimal(f"{n}e-10") for n in (0, 1, -1, 10**10, 10**37, 10**37 + 1, -(10**37))]},
    ("name", "id"): {"name": ["", "a", "ä"], "id": [0, 1, 2**53, 2**53 + 1, -1]},
}
"""Keys and their values: few enough to come again, and some that careless code takes for each other."""


@dataclass(frozen=True)
class Dialect:
    """How a feed tells of its table. Within a batch all of them come in any order."""

    name: str
    known: float
    """How often an old row is told with the new one; else only its key is known, or nothing."""
    commit: int
    """The most changes under one sequence, each of another key. Batches do not cut them."""
    clears: bool = False
    late: bool = False
    """Changes come late, in parts, and again long after: all of them go anywhere, and drops are remembered."""
    remember: tuple[int, ...] = (0,)


DIALECTS = (
    Dialect("commits with old rows", 1, 4),
    Dialect("messages with old rows", 1, 1, clears=True),
    Dialect("upserts", 0, 1, clears=True, remember=(0, 0, 2)),
    Dialect("files in their order", 0.5, 3),
    Dialect("files that come late", 0, 3, late=True, remember=(10_000,)),
)

FAULTS: Mapping[str, float] = {
    "the driver is killed": 0.03,
    "a worker is killed": 0.1,
    "a task fails half way": 0.06,
    "a task runs twice": 0.2,
    "a file cannot be written": 0.08,
    "a file is written and told as failed": 0.08,
    "a file cannot be deleted": 0.3,
    "a sink fails": 0.04,
    "a file is damaged": 0.3,
    "a state is damaged": 0.06,
    "a worker is lost": 0.1,
    "the job is restarted": 0.1,
    "files are collected": 0.05,
    "a task goes on after its end": 0.04,
}
"""How often each strikes where it can, in a world that knows it."""


@dataclass(frozen=True)
class Plan:
    """A world before it begins."""

    rules: tuple[Rule, ...]
    schema: pa.Schema
    key: tuple[str, ...]
    keys: int
    dialect: Dialect
    setup: Setup
    batches: int
    changes: int
    """The most changes between two batches."""
    sizes: tuple[int, int, int]
    """Rows of a batch that make a run, rows of a tail, pairs of a piece."""
    weather: Mapping[str, float]
    faults: int
    """How many strike at most; a world must come to its end."""

    @contextmanager
    def small(self) -> Iterator[None]:
        """The product with the sizes of this world."""
        with ExitStack() as stack:
            stack.enter_context(small_runs(*self.sizes[:2]))
            stack.enter_context(mock.patch.object(pairs, "PAIRS_A_PIECE", self.sizes[2]))
            yield

    def __str__(self) -> str:
        setup = self.setup
        rules = ", ".join(f"{rule.name}{' spread' if rule.name in setup.spread else ''}" for rule in self.rules)
        return (
            f"{self.dialect.name}; key {', '.join(self.key)}; {setup.shards} shards, {setup.inline_bytes} bytes inline, "
            f"{setup.retain_batches} batches retained, {setup.remember_drops} drops remembered; rules: {rules}"
        )


def draw(random: Random, folder: str) -> Plan:
    """The plan of a world whose run files are in a folder."""
    names = random.sample(sorted(RULES), random.choice((1, 1, 1, 1, 2, 3)))
    rules = tuple(RULES[name] for name in names)
    key = random.choice((("id",), ("id",), *KEYS))
    dialect = random.choice(DIALECTS)
    read = sorted({column for rule in rules for column in rule.columns} - set(key))
    schema = pa.schema([SCHEMA.field(name) for name in (*key, *read)])
    setup = setup_of(
        rules,
        schema,
        key,
        folder,
        shards=random.choice((1, 1, 2, 2, 2, 3, 4)),
        inline_bytes=random.choice((0, 0, 0, 3000, 1 << 20)),
        retain_batches=random.choice((2, 2, 2, 3)),
        remember_drops=random.choice(dialect.remember),
        spread={name: 2 for name in names if random.random() < 0.3},
    )
    calm = random.random() < 0.15
    weather = {name: rate for name, rate in FAULTS.items() if not calm and random.random() < 0.6}
    return Plan(
        rules=rules,
        schema=schema,
        key=key,
        keys=random.randint(3, 14),
        dialect=dialect,
        setup=setup,
        batches=random.choice((2, 3, 3, 4, 5, 8)),
        changes=random.choice((3, 6, 6, 12)),
        sizes=(random.choice((0, 0, 2, 5)), random.choice((2, 4, 9)), random.choice((2, 1 << 16))),
        weather=weather,
        faults=random.randint(3, 12),
    )
