"""The same changes give the same bytes in every process: whatever the hash seed, the zone and the locale are.

Catches: an order that comes from a set, a time that is written in the machine's zone, a text that is made by locale.
Routing, shards, manifests and run files run for real, without Spark, each time in a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

ENVIRONMENTS = [
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "4242", "TZ": "America/New_York", "LC_ALL": "C.UTF-8"},
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Apia", "LC_ALL": "de_DE.UTF-8"},
]
RULES = """
table: rows
key: [id, name]
rules:
  - {name: dependency, fd: a -> c}
  - {name: crossed, deny: t.a = s.b and t.c != s.c}
  - {name: times, deny: t.b = s.b and t.at < s.at and t.day > s.day, spread: 2}
  - {name: one_row, deny: t.d > 1.2}
"""


def story(folder: Path) -> str:
    """A digest of all that a job tells and keeps over two batches."""
    from tests.stream.simulated import Simulation, change_frame, setup_of
    from weever_stream.feeds.changes import DROP_ANYWHERE, PUT, PUT_ANYWHERE
    from weever_stream.rules import read_rules_text

    schema = pa.schema([
        ("id", pa.int64()), ("name", pa.large_string()), ("a", pa.int64()), ("b", pa.int64()), ("c", pa.large_string()),
        ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("d", pa.decimal128(10, 2)),
    ])  # fmt: skip
    setup = setup_of(
        read_rules_text(RULES).rules, schema, ("id", "name"), folder, shards=4, spread={"times": 2}, inline_bytes=0
    )
    simulation, digest = Simulation(setup, check=False), hashlib.sha256()
    for number in range(2):
        changes = []
        for key in range(number * 700, number * 700 + 5000):
            row = {
                "id": key % 7000, "name": f"é{key % 2}", "a": key // 3 if key % 5 else None, "b": key // 4, "c": f"Ä{key % 4}",
                "at": datetime(2024, 11, 3, key % 24, 30, tzinfo=timezone.utc), "day": date(9999 - key % 40, 12, 31),
                "d": Decimal(key % 4) / 2,
            }  # fmt: skip
            kind = PUT if not number else DROP_ANYWHERE if key % 4 == 3 else PUT_ANYWHERE
            changes.append((kind, number + 1, row))
        for delta in simulation.batch([change_frame(changes, schema)]):
            digest.update(repr(sorted(delta.items())).encode())
        for shard, state in sorted(simulation.states.items()):
            digest.update(f"{shard} {hashlib.sha256(state).hexdigest()}".encode())
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert files, "runs were written"
    for path in files:
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    assert simulation.open
    return digest.hexdigest()


@pytest.mark.slow
def test_seed_zone_and_locale_change_no_byte(tmp_path: Path):
    root = str(Path(__file__).parents[2])
    digests = set()
    for number, environment in enumerate(ENVIRONMENTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "tests.stream.test_same_bytes", str(folder)],
            env={**os.environ, "PYTHONPATH": root, **environment},
            cwd=root,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        digests.add(done.stdout.strip())
    assert len(digests) == 1, digests


if __name__ == "__main__":
    print(story(Path(sys.argv[1])))
