"""Spark's Python daemon for the harness: the engine with small runs, and with the crash points of its workers.

Workers are forked from it, so what is put in here is in all of them, without a hook in the package.
"""

from __future__ import annotations

from pyspark.daemon import manager

import weever_stream.stream.daemon  # noqa: F401
from tests.crash.points import install
from weever_stream.detect import forest

if __name__ == "__main__":
    # The engine's sizes suit real tables: with them a few rows would never make a run, and hence no run file.
    forest.SMALL, forest.CAPACITY = 3, 9
    install()
    manager()
