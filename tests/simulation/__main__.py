"""python -m tests.simulation: runs seed after seed, those that failed last time first."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from itertools import chain

from tests.simulation import broken
from tests.simulation.kept import FOLDER, forget, keep, kept
from tests.simulation.plan import FAULTS
from tests.simulation.run import Ran, found_by, run_jobs, run_noted, run_one

COMMAND = "python -m tests.simulation"
SHOWN = (
    *FAULTS, "a rule goes", "a rule comes", "a rule becomes", "a rule is spread", "files damaged", "damage refused",
    "files collected", "tasks tried again", "queries failed", "starts cut off", "starts failed",
)  # fmt: skip


def main() -> int:
    faulthandler.enable()
    options = _options()
    if options.trace:
        return _traced(options.seed)
    if options.broken:
        return _broken(options.seed, options.runs)
    again = kept()
    if again:
        print(f"first the {len(again)} that failed before ({FOLDER})")
    until = time.monotonic() + options.seconds if options.seconds else float("inf")
    seeds = chain(again, range(options.seed, options.seed + options.runs))
    if options.jobs > 1:
        ran = run_jobs(seeds, options.jobs, until, _Progress())
    else:
        ran = run_noted(seeds, until, _Progress())
    print(ran.line())
    print("in 1,000 runs: " + ", ".join(f"{name}: {1000 * ran.struck[name] / max(ran.runs, 1):.0f}" for name in SHOWN))
    for seed in set(again) & set(ran.passed):
        forget(seed)
    for seed, story in ran.failed.items():
        print(f"\nseed {seed} fails, run it alone: {COMMAND} --seed {seed} --trace\n{story}")
    return 1 if ran.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many seeds")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="the first; by default a new one")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share the seeds")
    parser.add_argument("--seconds", type=float, help="how long at most")
    parser.add_argument("--trace", action="store_true", help="run the one seed, and print every event")
    parser.add_argument("--broken", action="store_true", help="put faults into the product, and see that each is found")
    return parser.parse_args()


def _traced(seed: int) -> int:
    print(f"seed {seed}")
    try:
        run_one(seed, print)
    except Exception:
        keep(seed)
        raise
    forget(seed)
    return 0


def _broken(seed: int, runs: int) -> int:
    missed = 0
    for name, fault in broken.FAULTS.items():
        found = found_by(fault, range(seed, seed + runs))
        missed += found is None
        print(f"{name}: {f'not found by {runs} seeds' if found is None else f'found by seed {found}'}", flush=True)
    return 1 if missed else 0


class _Progress:
    """A line now and then, and each failing seed at once: it is kept even if nobody waits for the end."""

    def __init__(self) -> None:
        self._last, self._failed = time.monotonic(), 0

    def __call__(self, ran: Ran) -> None:
        if len(ran.failed) > self._failed:
            for seed in list(ran.failed)[self._failed :]:
                keep(seed)
                print(f"seed {seed} fails", flush=True)
            self._failed = len(ran.failed)
        if time.monotonic() - self._last > 5:
            self._last = time.monotonic()
            print(ran.line(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
