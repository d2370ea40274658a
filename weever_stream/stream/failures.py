"""What a user is told when a query fails: our own error if it was one, else what Spark calls it, and what to do.

Errors of ours travel from Python workers to the driver as text in a traceback, wrapped by Spark several times over;
here they are found again. Of other errors only the name is shown: Spark's messages may quote rows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weever_stream import errors
from weever_stream.errors import EngineError, WeeverError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["schema_changed", "told"]

_OURS = re.compile(r"weever_stream\.errors\.(\w+): (.+?)(?:\n\s*hint: ([^\n]*))?(?=\n|$)")
_KNOWN = {
    r"OffsetOutOfRange|KAFKA_DATA_LOSS|data may have been lost": (
        "the topic no longer holds changes that the job has not read",
        "changes are lost: start with an empty checkpoint to build the state anew, and retain the topic longer",
    ),
    r"DELTA_CHANGE_DATA_FILE_NOT_FOUND|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_MISSING_CHANGE_DATA|DELTA_TRUNCATED_TRANS": (
        "the table no longer holds changes that the job has not read (VACUUM, or its log's retention)",
        "changes are lost: start with an empty checkpoint to build the state anew, and retain the history longer",
    ),
    r"STREAMING_CHECKPOINT_MISSING_METADATA_FILE": (
        "the checkpoint has lost its metadata file",
        "restore the checkpoint from a copy, or start with an empty one",
    ),
    r"No space left on device": ("there is no space left on the device", "free some, and start the job again"),
    r"ConcurrentModificationException|CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY": (
        "another query uses the checkpoint",
        "stop it first: one checkpoint serves one job",
    ),
    r"TimeoutException.*(?:topic|node assignment|metadata)|UnknownTopicOrPartition": (
        "the brokers or the topic cannot be reached",
        "check `source.servers` and `source.topic`",
    ),
}
"""What texts of Spark and its connectors mean, and what to do."""
_SCHEMA = re.compile(r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_METADATA_EVOLUTION")
"""What Delta says where a restart is all that is needed; other changes of a schema need a person."""
_CLASS = re.compile(r"\b((?:[a-z]\w*\.)+[A-Z]\w*(?:Error|Exception))\b")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")


def told(texts: Iterable[str]) -> WeeverError:
    """The error to show, from the texts of an exception and its causes, the outermost first."""
    known = list(texts)
    for text in known:
        if found := _OURS.search(text):
            kind = getattr(errors, found[1], WeeverError)
            made: WeeverError = (kind if issubclass(kind, WeeverError) else WeeverError)(found[2], hint=found[3])
            return made
    for text in known:
        for pattern, (message, hint) in _KNOWN.items():
            if re.search(pattern, text, re.DOTALL):
                return EngineError(message, hint=hint)
    whole = "\n".join(known)
    conditions = [name for name in _CONDITION.findall(whole) if name != "STREAM_FAILED"]
    classes = _CLASS.findall(whole)
    name = conditions[-1] if conditions else classes[-1] if classes else "Spark does not say why"
    return EngineError(f"the query failed: {name}", hint="WEEVER_DEBUG=1 shows all of it")


def schema_changed(texts: Iterable[str]) -> bool:
    """Whether a query ended only because its source has a new schema: it can be started again."""
    return any(_SCHEMA.search(text) for text in texts)
