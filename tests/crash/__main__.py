"""The soak: `python -m tests.crash --kills 200 --seed 7`. Drivers are killed until so many have been; nothing may break.

One checkpoint and one set of sinks live through all of it. After every death all that is published is held to the
truth (see `tests.crash.world`), and every tenth round works off the feed and compares the end. Reports kills, restarts,
batches, and what was lost, duplicated or wrong, which must all be zero; else exit code 1, and the folder is kept.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.conftest import SETTINGS
from tests.crash.lives import Life
from tests.crash.pager import Pager
from tests.crash.rounds import ROUNDS, Broken, drained
from tests.crash.world import World
from tests.crash.wrong import Wrong


def archived(world: World) -> None:
    """A first life in peace, whose JVM leaves its classes in an archive: the next ones start in half the time."""
    archive, option = world.folder / "classes.jsa", "spark.driver.extraJavaOptions"
    world.describe(spark={option: f"{SETTINGS[option]} -XX:ArchiveClassesAtExit={archive}"})
    with Life(world, "--once") as life:
        if life.ended() != 0:
            raise Broken("the first driver should work", life)
        while life.parts():
            time.sleep(0.1)
    world.spark = {option: f"{SETTINGS[option]} -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"}
    world.describe()
    world.check(whole=True)


def main() -> int:
    """Runs the soak."""
    asked = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    asked.add_argument("--kills", type=int, default=200)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked.add_argument("--source", choices=["files", "delta"], default="files")
    asked.add_argument("--minutes", type=float, default=float("inf"), help="stop earlier")
    asked.add_argument("--folder", type=Path, help="where to work; one of its own in the folder for temporary files")
    asked.add_argument("--rounds", nargs="*", choices=sorted(ROUNDS), default=sorted(ROUNDS))
    asked.add_argument("--keep", action="store_true", help="leave the folder")
    options = asked.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="weever-crash-"))
    print(f"seed {options.seed}, source {options.source}, in {folder}", flush=True)
    pager = Pager().__enter__()  # ends with this process
    world = World(folder / "world", options.seed, options.source, alerts=[pager.options()], learns=True)
    world.pager = pager
    archived(world)
    drawn = random.Random(options.seed)
    kills: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    rounds, began = 0, time.monotonic()
    often = [name for name in options.rounds if ROUNDS[name][0]]
    last = [name for name in options.rounds if not ROUNDS[name][0]]
    while True:
        if often and sum(kills.values()) < options.kills and time.monotonic() - began < options.minutes * 60:
            kind = drawn.choices(often, [ROUNDS[name][0] for name in often])[0]
        elif last:
            kind = last.pop(0)
        else:
            break
        try:
            kills[kind] += ROUNDS[kind][1](world, drawn)
            world.kills = sum(kills.values())
            rounds += 1
            if rounds % 10 == 0:
                drained(world)
        except Wrong as wrong:
            failures[wrong.kind] += 1
            print(f"round {rounds}, {kind}: {wrong}", flush=True)
            break
        except AssertionError as broken:
            failures["broken"] += 1
            print(f"round {rounds}, {kind}: {broken}", flush=True)
            break
        done = time.monotonic() - began
        print(
            f"{done:6.0f} s  round {rounds:4}  {kind:12} kills {sum(kills.values()):4}  batches {world.batches:5}"
            f"  feed {world.last:5}  published {world.position:5}",
            flush=True,
        )
    if not failures:
        drained(world)  # raises where anything is lost
    told = {name: failures[name] for name in ("lost", "duplicated", "wrong", "broken")}
    print(f"kills {sum(kills.values())} {dict(kills)}, restarts {rounds}, batches {world.batches}, {told}")
    print(f"python -m tests.crash --kills {options.kills} --seed {options.seed} --source {options.source}")
    if failures:
        print(f"what was left is in {folder}")
    elif options.folder is None and not options.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
