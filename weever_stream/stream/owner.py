"""Who owns a checkpoint while a query runs: this driver by its lease, and the JVM that Spark runs in by a lock.

A driver is two processes. When Python is killed, the JVM notices that its standard input ends and exits in its own
time; measured on a busy machine it lived for a second more, committed the batch under way and planned the next. A
second driver must not run beside it, so the JVM itself holds a lock too (`FileChannel.tryLock`), which ends with the
JVM. Whoever starts waits for it: seconds after a crash, never longer than a minute.

With Spark Connect there is no JVM here to ask: the lease alone must do.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from weever_stream.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from weever_stream.sinks.batch import Batch
    from weever_stream.state.lease import Lease

__all__ = ["StillOurs", "locked_by_jvm", "released_with"]

_PATIENCE, _LOOKS_EVERY = 60.0, 5


class StillOurs:
    """The first sink of every batch: it stops a driver that has lost its lease before it writes anything."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    def write(self, batch: Batch) -> None:
        """Writes nothing."""
        self._lease.check()


class _Lock:
    """A lock that the JVM holds. Python keeps the channel: the JVM would let go of what nobody refers to."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def release(self) -> None:
        with suppress(Exception):  # the JVM may be gone, and its locks with it
            self._channel.close()


def locked_by_jvm(spark: SparkSession, lease: Lease, patience: float = _PATIENCE) -> None:
    """Makes the JVM hold the checkpoint too, as long as the lease is held. Waits for the JVM of a driver that died."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None or any(isinstance(one, _Lock) for one in lease.with_it):
        return
    path = lease.beside(".jvm")
    channel = jvm.java.io.RandomAccessFile(str(path), "rw").getChannel()
    end = time.monotonic() + patience
    while _lock(channel) is None:
        if time.monotonic() > end:
            channel.close()
            raise StateError(
                f"the JVM of an earlier driver still works on the checkpoint: it holds {path}",
                hint="end that process (`lsof` or `fuser` on the file tells its number), then start again",
            )
        time.sleep(0.1)
    lease.with_it.append(_Lock(channel))


def _lock(channel: Any) -> Any:
    """The lock, or None if another process has it."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        return channel.tryLock()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "OverlappingFileLockException":
            return None  # this JVM holds it, for a lease that is about to be released
        return True  # a file system without locks: the lease alone must do


def released_with(query: StreamingQuery, lease: Lease) -> None:
    """Lets go of the lease when the query ends, whoever ends it, and ends the query when the lease is lost."""

    def wait() -> None:
        with suppress(Exception):  # how it ended is told to those who ask the query
            while not query.awaitTermination(_LOOKS_EVERY):
                if lease.lost:
                    query.stop()
        lease.release()

    threading.Thread(target=wait, name="weever query's end", daemon=True).start()
