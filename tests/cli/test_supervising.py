"""How a command ends when a signal reaches it. Catches: failures that a signal caused and that are shown as errors."""

from __future__ import annotations

import os
import signal

import pytest

from weever_stream.cli.supervising import Stop, stoppable
from weever_stream.errors import EngineError

CODES = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]


@pytest.mark.parametrize(("number", "code"), CODES)
def test_a_signal_before_the_query_runs_ends_the_start(number: int, code: int):
    def start(stop: Stop) -> int:
        os.kill(os.getpid(), number)
        raise AssertionError("it went on")

    assert stoppable(start) == code


@pytest.mark.parametrize(("number", "code"), CODES)
def test_what_fails_because_of_a_signal_is_not_an_error(number: int, code: int):
    """The signal has reached the JVM too, which is gone, or the stop of a query that hangs has taken too long."""

    def run(stop: Stop) -> int:
        stop.running = True
        os.kill(os.getpid(), number)
        assert stop.asked.is_set()
        raise EngineError("Spark's JVM has ended")

    assert stoppable(run) == code


def test_a_second_sigterm_changes_nothing_and_a_second_interrupt_does_not_wait():
    def run(stop: Stop) -> int:
        stop.running = True
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return stop.code

    assert stoppable(run) == 143


def test_without_a_signal_errors_are_errors():
    def run(stop: Stop) -> int:
        raise EngineError("Spark's JVM has ended")

    with pytest.raises(EngineError):
        stoppable(run)
    assert stoppable(lambda stop: 7) == 7
