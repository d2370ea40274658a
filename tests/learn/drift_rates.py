"""The numbers of docs/drift.md: python -m tests.learn.drift_rates. Seeds are others than those of the tests."""

from __future__ import annotations

import numpy as np

from tests.learn.test_drift import Feed


def bursts() -> None:
    """Rows that are wrong several at a time, at random, from the first day on: how many feeds are told of falsely."""
    feeds, changes, at = 0, 0, []
    for burst in (5, 20, 60):
        for rate in (0.0005, 0.002, 0.01, 0.05):
            for size, batches in ((10, 20_000), (100, 10_000), (1_000, 3_000)):
                for seed in range(1000, 1010):
                    feed = Feed(seed, draw=lambda chance, r, n, b=burst: min(n, b * int(chance.poisson(r * n / b))))
                    feed.run(size * batches, rate, size)
                    feeds, changes = feeds + 1, changes + size * batches
                    at += [when for when, notice in feed.told if notice.event == "began"]
    print(f"bursts: {len(at)} notices in {feeds} feeds, {changes:,} changes; the last after {max(at, default=0):,}")


def steady() -> None:
    """Rows that are wrong one by one, always at one rate."""
    notices = changes = 0
    for rate in (0, 1e-4, 1e-3, 0.01, 0.05, 0.3, 0.9):
        for size, batches in ((10, 20_000), (100, 20_000), (1_000, 4_000), (14_000, 200)):
            for seed in (2000, 2001, 2002):
                feed = Feed(seed)
                feed.run(size * batches, rate, size)
                notices, changes = notices + feed.events.count("began"), changes + size * batches
    print(f"steady: {notices} notices in {changes:,} changes")


def delays() -> None:
    """From 100,000 clean changes to 2 of 100: after how many changes it is told."""
    for size in (1, 10, 100):
        found = []
        for seed in range(3000, 3200):
            feed = Feed(seed)
            feed.run(100_000, 0.0, 1000)
            found += feed.run(3_000, 0.02, size)[:1]
        told = [int(value) for value in (np.median(found), np.percentile(found, 95), max(found))]
        print(f"batches of {size}: told in {len(found)} of 200 feeds; median, 95%, most: {told}")


if __name__ == "__main__":
    bursts()
    steady()
    delays()
