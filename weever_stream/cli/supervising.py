"""What commands that run a query have in common: they end in good order when they are asked to, and Spark with them.

On SIGTERM or Ctrl-C the current batch gets half a minute to finish; a second Ctrl-C does not wait. A batch that was
abandoned is repeated by the next start. The signal may reach every process of the job at once (`timeout`, systemd):
once it has been seen, whatever fails because of it is not an error, and the exit code is that of the signal.
"""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from weever_stream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["STARTING", "EndedEarly", "Stop", "jvm_may_end", "stoppable", "wait"]

STARTING = "starting Spark (the first start compiles kernels: up to half a minute more)"
_SECONDS_TO_END = 30.0


class Numbered(Protocol):
    """What is told of a batch."""

    @property
    def batch(self) -> int:
        """Its number."""
        ...


_Report = TypeVar("_Report", bound=Numbered)


@contextmanager
def jvm_may_end(spark: Any) -> Iterator[None]:
    """Stops Spark in the end. Where there is no Spark any more, says why: most often memory ran out."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    from weever_stream.stream.jvm import log_libraries, running

    log_libraries()
    try:
        yield
    except (Py4JError, ConnectionError) as error:
        if isinstance(error, Py4JJavaError):  # it answered
            raise
        if (java := running()) is not None:
            raise java.ended() from None
        raise EngineError(
            "Spark's JVM has ended, or was ended by the system",
            hint="if memory was short, give it more; then start the job again: it goes on",
        ) from None
    finally:
        with suppress(Exception):  # a JVM that is gone, or a connection that a signal cut in the middle of an answer
            spark.stop()


class EndedEarly(BaseException):
    """The job was asked to end before its query ran."""


class Stop:
    """Whether the job was asked to end, and when its last batch was done."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.batch_done = threading.Event()
        self.signal: int = 0
        self.running = False
        self.batch: int | None = None

    @property
    def code(self) -> int:
        """The exit code of an orderly end."""
        return 128 + self.signal if self.signal else 0

    def observed(self, observe: Callable[[_Report], None]) -> Callable[[_Report], None]:
        """Tells of a batch, and that it is done."""

        def tell(report: _Report) -> None:
            observe(report)
            self.batch = report.batch
            if self.asked.is_set():
                self.batch_done.set()

        return tell

    def on_signals(self) -> Any:
        """Within the block SIGTERM and Ctrl-C ask the job to end."""

        def ask(number: int, _: object) -> None:
            if self.asked.is_set():
                if number == signal.SIGINT:
                    raise KeyboardInterrupt
                return  # the job is ending already
            self.signal = number
            self.asked.set()
            if not self.running:  # a change of rules may take long, and can be cut off anywhere
                raise EndedEarly

        @contextmanager
        def handled() -> Any:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
            try:
                yield
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)

        return handled()


def stoppable(run: Callable[[Stop], int]) -> int:
    """Runs a command until it ends or a signal stops it; the exit code."""
    stop = Stop()
    with stop.on_signals():
        try:
            return run(stop)
        except EndedEarly:
            return stop.code
        except Exception:
            if not stop.signal:
                raise
            return stop.code


def wait(query: StreamingQuery, stop: Stop, idle: Callable[[], None]) -> bool:
    """Until the query ends, or the job is asked to: then until the batch under way is done. Whether it has ended."""
    looked = 0.0
    while query.isActive and not stop.asked.wait(0.2):
        if time.monotonic() - looked >= 1:  # a batch that hangs is never idle: that is how one can tell
            looked = time.monotonic()
            status = query.status
            if not status["isTriggerActive"] and status["message"].startswith("Waiting"):  # not while it starts
                idle()
    if not query.isActive:
        return True
    until = time.monotonic() + _SECONDS_TO_END
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
        if stop.batch_done.wait(0.1):
            break
    return False
