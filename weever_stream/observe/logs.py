"""What a job logs: events with fields, as lines for people, or with WEEVER_LOG_JSON=1 as one JSON object a line.

    log = logs.get("alerts")
    log.warning("alert_failed", "the target did not take it", target="ops", status=503)

Events go through the logging of Python's standard library, to loggers under `weever_stream`; those who run the job
inside a program of their own handle them as they like. The command line handles them itself, on standard error. Lines
for people leave out what the command tells anyway (`told=True`) and what is below a warning, unless
WEEVER_LOG_LEVEL says otherwise.

Whoever logs passes names, numbers and ids, never a value of a row. Texts are cleaned of control characters, so nobody
can forge a line, and cut. Cost: nothing for events that nobody handles.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["IDENTITY", "Log", "as_json", "bind", "get", "line", "to_stderr"]

IDENTITY = ("run_id", "query_id", "batch_id", "rule")
"""Which process, query, batch and rule an event is of: on every JSON line where it is known."""
_TAKEN = frozenset({"timestamp", "level", "logger", "event"})
_ROOT = "weever_stream"
_LONGEST = 2000
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\u202a-\u202e\u2066-\u2069]+")
"""Control characters, what else ends a line, halves of surrogate pairs, and what turns the direction of text."""
_bound: dict[str, Any] = {}
"""Of the one job of this process. Batches and alerts run in threads of their own, so this is no context variable."""

logging.getLogger(_ROOT).addHandler(logging.NullHandler())


class Log:
    """Logs the events of one part of the package."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")

    def debug(self, event: str, message: str = "", *, told: bool = False, **fields: Any) -> None:
        """For those who look for a fault."""
        self._log(logging.DEBUG, event, message, told, fields)

    def info(self, event: str, message: str = "", *, told: bool = False, **fields: Any) -> None:
        """Something happened as it should."""
        self._log(logging.INFO, event, message, told, fields)

    def warning(self, event: str, message: str = "", *, told: bool = False, **fields: Any) -> None:
        """Somebody should look at it, not now. `told`: the command says it in its own words too."""
        self._log(logging.WARNING, event, message, told, fields)

    def error(self, event: str, message: str = "", *, told: bool = False, **fields: Any) -> None:
        """Something that was to be done is not done."""
        self._log(logging.ERROR, event, message, told, fields)

    def _log(self, level: int, event: str, message: str, told: bool, fields: Mapping[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"weever": {"message": message, **fields}, "weever_told": told})


def get(name: str) -> Log:
    """The log of a part of the package: `alerts`, `job`."""
    return Log(name)


def bind(**fields: Any) -> None:
    """Fields of every event of this process from now on; None takes one away."""
    for name, value in fields.items():
        if value is None:
            _bound.pop(name, None)
        else:
            _bound[name] = value


def as_json(environ: Mapping[str, str] | None = None) -> bool:
    """Whether logs are JSON."""
    return (os.environ if environ is None else environ).get("WEEVER_LOG_JSON", "").lower() in ("1", "true")


@contextmanager
def to_stderr(environ: Mapping[str, str] | None = None) -> Iterator[None]:
    """Within the block events go to standard error, as the environment says."""
    environ = os.environ if environ is None else environ
    machine = as_json(environ)
    handler = _Stderr()
    handler.setFormatter(_Json() if machine else _Text())
    if not machine:
        handler.addFilter(lambda record: not getattr(record, "weever_told", False))
    level = _LEVELS.get(environ.get("WEEVER_LOG_LEVEL", "").lower(), logging.INFO if machine else logging.WARNING)
    logger = logging.getLogger(_ROOT)
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        _bound.clear()


class _Stderr(logging.Handler):
    """Standard error as it is at the time, one line an event. A line that cannot be written is lost, no more."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, ValueError, AttributeError):
            print(self.format(record), file=sys.stderr, flush=True)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return line(record.created, record.levelname, record.name, record.getMessage(), _fields(record))


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        message = fields.pop("message", None)
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        named = [f"{name}={_clean(value)}" for name, value in fields.items() if name not in _bound]
        what = _clean(message) if message else _clean(record.getMessage())
        return " ".join([at, record.levelname.lower(), f"{record.name.removeprefix(_ROOT + '.')}:", str(what), *named])


def line(created: float, level: str, logger: str, event: str, fields: Mapping[str, Any]) -> str:
    """One event as one JSON object on one line; identity first, so that a person finds it too."""
    at = datetime.fromtimestamp(created, timezone.utc).replace(tzinfo=None)
    known = {name: value for name, value in {**_bound, **fields}.items() if name not in _TAKEN}
    told = {
        "timestamp": f"{at.isoformat(timespec='microseconds')}Z",
        "level": level.lower(),
        "logger": logger,
        "event": _clean(event),
        **{name: _clean(known.pop(name)) for name in IDENTITY if known.get(name) is not None},
        **{name: _clean(value) for name, value in known.items() if value is not None and value != ""},
    }
    return json.dumps(told, ensure_ascii=False)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of an event; none of a record that was logged in the plain way, whose text is its event."""
    return dict(getattr(record, "weever", {}))


def _clean(value: Any) -> Any:
    """A value that fits on a line: numbers as they are, texts without control characters and not too long."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, dict):
        return {str(_clean(str(name))): _clean(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    text = _UNPRINTABLE.sub(" ", str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
