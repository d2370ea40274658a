"""Crash points: named places of the job at which a process is killed. Nothing of this is in the package itself.

    WEEVER_CRASH=after_state:2      the second time that a batch's tasks are done, the driver dies
    WEEVER_CRASH=worker:30:4        a Python worker kills itself in every 30th call, 4 times at most

The n-th pass is counted in a file, because tasks run in several processes: WEEVER_CRASH_COUNT names it. `install` puts
the points in by replacing functions, in the driver and (through `tests.crash.daemon`) in Python workers. Dying is
SIGKILL to the driver's process group, Python and JVM together: no handler, no flush, no goodbye.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["DELIVERIES", "LESSONS", "POINTS", "die", "install"]

POINTS = (
    "after_run_file",
    "after_state",
    "before_sink",
    "between_tables",
    "between_sinks",
    "after_sink_before_commit",
)
"""In the order of a batch: a run file is written; all tasks have committed their state; no sink has the batch; of a
sink of two Delta tables one has it; one sink of two has it; all have it, but Spark has not committed it."""
DELIVERIES = ("before_delivery", "after_delivery")
"""An alert is decided on and noted, and not sent; it is delivered, and that is not noted."""
LESSONS = ("after_journal", "after_rule_events", "after_rule_notes", "after_dump")
"""Of a batch that rules are learned from: its changes are in the journal; its events are in the table; the rules that
hold are noted; the learner is dumped."""


def install() -> None:
    """Puts in the point that the environment names."""
    point, _, rest = os.environ.get("WEEVER_CRASH", "").partition(":")
    if point:
        _INSTALLERS[point](*(int(part) for part in rest.split(":") if part))


def die() -> None:
    """The end of the driver: its process group is killed, from whichever process this is."""
    group = int(os.environ["WEEVER_CRASH_GROUP"])
    if group <= 1:
        raise RuntimeError("no process group to kill")
    os.killpg(group, signal.SIGKILL)
    os._exit(137)


def _passes() -> int:
    """How often a point has been passed, this time included. Appending is atomic: each pass has its own number."""
    path = os.environ["WEEVER_CRASH_COUNT"]
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, b".")
        return os.lseek(file, 0, os.SEEK_CUR)
    finally:
        os.close(file)


def _at(n: int) -> Callable[[], None]:
    def passed() -> None:
        if _passes() == n:
            die()

    return passed


def _around(method: str, *, before: bool = False) -> Callable[[int], None]:
    """Before or after a method of a class, given by its whole name."""
    place, _, name = method.rpartition(".")
    module, _, owner = place.rpartition(".")

    def put_in(n: int) -> None:
        kind = getattr(import_module(f"weever_stream.{module}"), owner)
        whole, passed = getattr(kind, name), _at(n)

        def call(*arguments: Any, **more: Any) -> Any:
            if before:
                passed()
            done = whole(*arguments, **more)
            if not before:
                passed()
            return done

        setattr(kind, name, call)

    return put_in


def _after_state(n: int) -> None:
    from weever_stream.stream import batches

    whole, passed = batches._said, _at(n)

    def said(output: Any) -> Any:
        rows = whole(output)
        passed()
        return rows

    batches._said = said


def _around_sink(before: int | None, after: int | None, n: int) -> None:
    """At the sink of a number, before it is written or after."""
    from weever_stream.stream import query

    whole, passed = query.open_sinks, _at(n)

    class Sink:
        def __init__(self, inner: Any, number: int) -> None:
            self.inner, self.number = inner, number

        def write(self, batch: Any) -> None:
            if self.number == before:
                passed()
            self.inner.write(batch)
            if self.number == after:
                passed()

    def opened(*arguments: Any, **more: Any) -> Any:
        return [Sink(sink, number) for number, sink in enumerate(whole(*arguments, **more))]

    query.open_sinks = opened


def _worker(one_in: int, at_most: int) -> None:
    """The worker that runs a shard kills itself, as the kernel does when memory is short: before or after its work.

    Calls are counted over all workers, so that one dies in every `one_in` and no task can die each time it is tried.
    """
    from weever_stream.stream.work import ShardWork

    whole = ShardWork.apply

    def passed() -> None:
        calls = _passes()
        if calls % one_in == 0 and calls // one_in <= at_most:
            os.kill(os.getpid(), signal.SIGKILL)

    def apply(self: ShardWork, *arguments: Any) -> Any:
        passed()
        manifest = yield from whole(self, *arguments)
        passed()
        return manifest

    ShardWork.apply = apply  # type: ignore[method-assign]


_INSTALLERS: dict[str, Callable[..., None]] = {
    "after_run_file": _around("state.store.RunStore.write"),
    "after_state": _after_state,
    "before_sink": lambda n: _around_sink(0, None, n),
    "between_tables": _around("sinks.delta.DeltaTables._change_open", before=True),
    "between_sinks": lambda n: _around_sink(None, 0, n),
    "after_sink_before_commit": _around("stream.batches.Batches.__call__"),
    "before_delivery": _around("alerts.dispatch.Dispatch._deliver", before=True),
    "after_delivery": _around("alerts.targets.webhook.Webhook.send"),
    "after_journal": _around("state.journal.Journal.note"),
    "after_rule_events": _around("stream.lessons.Lessons._write"),
    "after_rule_notes": _around("stream.lessons.Lessons._note"),
    "after_dump": _around("state.journal.Journal.dump"),
    "worker": _worker,
}
