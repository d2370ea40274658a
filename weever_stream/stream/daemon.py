"""Spark's Python daemon with the engine loaded before it forks its first worker.

A worker then starts with numba, pandas, pyarrow and our kernels in memory instead of loading them, for some seconds of
CPU, at the start of a job and whenever a worker has died. The session names it as `spark.python.daemon.module`.
"""

from __future__ import annotations

import pandas  # noqa: F401
from pyspark.daemon import manager

import weever_stream.stream.operator  # noqa: F401

if __name__ == "__main__":
    manager()
