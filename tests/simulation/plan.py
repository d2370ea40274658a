"""What a seed draws before a world begins: rules, columns, key, setup, the dialect of its feed, and the weather.

Most worlds are as small as can be, one rule and two or three batches, and take a few hundredths of a second; some are
larger, and a few are large: what takes many batches, shards and rules at once is found by those. Keys are few, so that
rows meet and keys come again. Sizes at which the product makes runs, files and pieces are made small, or random worlds
would hardly see any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa

from tests.detect.drawn import RULES, SCHEMA, small_runs
from weever_stream.detect import pairs
from weever_stream.rules import Rule

__all__ = ["DIALECTS", "FAULTS", "KEYS", "Dialect", "Plan", "Size", "draw"]

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
    "a file cannot be written": 0.15,
    "a file is written and told as failed": 0.08,
    "a file cannot be deleted": 0.7,
    "a sink fails": 0.04,
    "a file is damaged": 0.3,
    "a state is damaged": 0.06,
    "a worker is lost": 0.1,
    "the job is restarted": 0.1,
    "files are collected": 0.06,
    "a task goes on after its end": 0.03,
    "the rules change": 0.5,
    "the lane cannot be written": 0.3,
}
"""How often each strikes where it can, in a world that knows it."""


@dataclass(frozen=True)
class Size:
    """How large a world is: from what its numbers are drawn."""

    weight: float
    rules: tuple[int, ...]
    shards: tuple[int, ...]
    keys: tuple[int, int]
    batches: tuple[int, ...]
    changes: tuple[int, ...]
    faults: tuple[int, int]


SIZES = (
    Size(0.88, (1,), (1, 1, 2), (2, 6), (1, 2, 2), (2, 3, 6), (1, 4)),
    Size(0.09, (1, 1, 2), (1, 2, 2, 3), (3, 10), (2, 3, 4), (3, 6), (2, 8)),
    Size(0.03, (1, 2, 3), (2, 3, 4), (3, 14), (4, 5, 8), (3, 6, 12), (3, 12)),
)


@dataclass(frozen=True)
class Plan:
    """A world before it begins."""

    rules: tuple[Rule, ...]
    """Those that it begins with."""
    others: tuple[Rule, ...]
    """Those that may come into it."""
    schema: pa.Schema
    key: tuple[str, ...]
    keys: int
    dialect: Dialect
    shards: int
    inline_bytes: int
    retain_batches: int
    remember_drops: int
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
        rules = ", ".join(f"{rule.name}{' spread' if rule.spread > 1 else ''}" for rule in self.rules)
        return (
            f"{self.dialect.name}; key {', '.join(self.key)}; {self.shards} shards, {self.inline_bytes} bytes inline, "
            f"{self.retain_batches} batches retained, {self.remember_drops} drops remembered; rules: {rules}"
        )


def draw(random: Random) -> Plan:
    """The plan of a world."""
    (size,) = random.choices(SIZES, [size.weight for size in SIZES])
    calm, changing = random.random() < 0.15, random.random() < 0.15
    n = random.choice(size.rules)
    drawn = [RULES[name] for name in random.sample(sorted(RULES), n + changing * random.randint(1, 2))]
    pool = [replace(rule, spread=2) if random.random() < 0.2 else rule for rule in drawn]
    key = random.choice((("id",), ("id",), *KEYS))
    dialect = random.choice(DIALECTS)
    read = sorted({column for rule in pool for column in rule.columns} - set(key))
    weather = {
        name: rate
        for name, rate in FAULTS.items()
        if (changing if name == "the rules change" else not calm and random.random() < 0.6)
    }
    return Plan(
        rules=tuple(pool[:n]),
        others=tuple(pool[n:]),
        schema=pa.schema([SCHEMA.field(name) for name in (*key, *read)]),
        key=key,
        keys=random.randint(*size.keys),
        dialect=dialect,
        shards=random.choice(size.shards),
        inline_bytes=random.choice((0, 0, 0, 3000, 1 << 20)),
        retain_batches=random.choice((1, 2, 2, 3)),
        remember_drops=random.choice(dialect.remember),
        batches=random.choice(size.batches) + changing * random.choice((1, 2)),
        changes=random.choice(size.changes),
        sizes=(random.choice((0, 0, 2, 5)), random.choice((2, 4, 9)), random.choice((2, 1 << 16, 1 << 16))),
        weather=weather,
        faults=random.randint(*size.faults) + changing,
    )
