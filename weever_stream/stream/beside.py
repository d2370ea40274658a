"""Learning beside the job's own query, in one process: it starts after it, ends with it, and never ends it.

A thread starts the query that learns and waits for it. If it fails, that is told and counted, and detection goes on;
the next start of the job takes it up where it was. A new schema of the source starts it again. Cost: a thread.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from weever_stream.errors import WeeverError
from weever_stream.stream.failures import schema_changed, texts_of, told
from weever_stream.stream.restarts import Restarts

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Beside"]

_LOOKS_EVERY = 1


class Beside:
    """A query that runs beside another. `begin` starts it; `failed` is told why it ended, if it did so by itself."""

    def __init__(self, begin: Callable[[], StreamingQuery], failed: Callable[[WeeverError], None]) -> None:
        self._begin, self._failed = begin, failed
        self._thread: threading.Thread | None = None
        self._ended, self._asked = threading.Event(), threading.Event()
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Starts it, unless it was started already: a job whose query starts again keeps what runs beside it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="weever learning", daemon=True)
            self._thread.start()

    def finish(self, asked: threading.Event) -> None:
        """Waits until it ends by itself, or until somebody asks for an end."""
        while self._thread is not None and not self._ended.wait(0.2) and not asked.is_set():
            pass

    def stop(self, patience: float = 30.0) -> None:
        """Ends it. A batch that was not finished is done again by the next start."""
        self._asked.set()
        if self._thread is None:
            return
        # A discovery under way is not waited for longer than that: Spark itself would wait for a minute.
        threading.Thread(target=self._end, name="weever learning's end", daemon=True).start()
        self._thread.join(patience)

    def _end(self) -> None:
        if self._query is not None:
            with suppress(Exception):  # how it ends is seen by the other thread
                self._query.stop()

    def _run(self) -> None:
        try:
            restarts = Restarts()
            while not self._asked.is_set() and self._again(restarts):
                pass
        finally:
            self._ended.set()

    def _again(self, restarts: Restarts) -> bool:
        """Runs the query to its end. Whether it is to be started again."""
        try:
            return self._await_end(self._begin(), restarts)
        except WeeverError as error:
            failure = error
        except Exception as error:
            failure = told(texts_of(error))
        if not self._asked.is_set():
            self._failed(failure)
        return False

    def _await_end(self, query: StreamingQuery, restarts: Restarts) -> bool:
        """Waits for the end of the query. Whether only the schema of its source has changed."""
        self._query = query
        if self._asked.is_set():
            query.stop()
        try:
            while not query.awaitTermination(_LOOKS_EVERY):
                pass
        except Exception as error:
            texts = texts_of(error)
            if not schema_changed(texts):
                raise told(texts) from None
            restarts.add(query)
            return True
        return False
