"""What a user is told when a query fails: our own error if it was one, else what Spark calls it, and what to do.

Errors of ours travel from Python workers to the driver as text in a traceback, wrapped by Spark several times over;
here they are found again. Of other errors only the name is shown: Spark's messages may quote rows.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weever_stream import errors
from weever_stream.errors import EngineError, WeeverError
from weever_stream.sinks.failures import out_of_memory
from weever_stream.stream import jvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["explained", "lost", "schema_changed", "shorten_failures", "texts_of", "told"]

_OURS = re.compile(r"weever_stream\.errors\.(\w+): (.+?)(?:\n\s*hint: ([^\n]*))?(?=\n|$)")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] weever: (.+)\n\s*hint: (.+)\n")
"""What an expression of ours raises in the JVM. Not the text alone: Spark quotes the plan, and the plan has it too."""
_LOST = {
    r"OffsetOutOfRange|KAFKA_DATA_LOSS|data may have been lost": (
        "the topic no longer holds changes that the job has not read",
        "changes are lost: start with an empty checkpoint to build the state anew, and retain the topic longer",
    ),
    r"DELTA_CHANGE_DATA_FILE_NOT_FOUND|DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_MISSING_CHANGE_DATA|DELTA_TRUNCATED_TRANS"
    r"|DELTA_LOG_FILE_NOT_FOUND|Could not find any delta files for version": (
        "the table no longer holds changes that the job has not read (VACUUM, or its log's retention)",
        "changes are lost: start with an empty checkpoint to build the state anew, and retain the history longer",
    ),
    r"DIFFERENT_DELTA_TABLE_READ": (
        "the checkpoint belongs to another table, or the table was deleted and created again",
        "name an empty checkpoint and start with --take-over, which finds everything again",
    ),
    r"FAILED_READ_FILE\.FILE_NOT_EXIST": (
        "a file with changes that the job has not read is gone: by VACUUM, or deleted from a source's folder",
        "changes are lost: name an empty checkpoint and start with --take-over, which finds everything again; and "
        "retain files longer",
    ),
    r"DELTA_CHANGE_DATA_FEED_INCOMPATIBLE": (
        "its schema has changed in a way that its change feed cannot be read over",
        "name an empty checkpoint and start with --take-over, which finds everything again",
    ),
}
"""What texts of Spark and its connectors mean where a source no longer has what was read, and what to do."""
_KNOWN = {
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|CANNOT_CONVERT_PARQUET|SchemaColumnConvertNotSupported": (
        "a Parquet file has a column of another type than the files before it",
        "write it again in their types: only whole numbers may become wider",
    ),
    r"reading file (\S{1,1000})\. .{0,20000}?Unescaped quote character": (
        "the CSV file {} cannot be read: a quote inside a quoted value is not doubled",
        "fix the file in its place and start again. Spark's writer doubles quotes with .option('escape', '\"'); to "
        "read what it wrote without, set `source.options: {escape: '\\'}`",
    ),
    r"reading file (\S{1,1000})\. .{0,20000}?CSV header": (
        "the CSV file {} has another header than the files before it",
        "write it again in its place, with the same columns in the same order, and start again",
    ),
    r"STREAMING_CHECKPOINT_MISSING_METADATA_FILE": (
        "the checkpoint has lost its metadata file",
        "restore the checkpoint from a copy, or start with an empty one",
    ),
    r"No space left on device": ("there is no space left on the device", "free some, and start the job again"),
    r"Checksum error: (?:file:)?(\S{1,500})": (
        "the file {} is torn or was changed",
        "restore the checkpoint from a copy, or start with an empty one",
    ),
    r"Failed to read log file (?:file:)?(\S{1,500}?)\. ": (
        "the file {} is torn or was changed",
        "restore the checkpoint from a copy, or start with an empty one",
    ),
    r"CANNOT_LOAD_STATE_STORE": (
        "Spark's own state under the checkpoint (`state/`) is damaged",
        "restore the checkpoint from a copy, or start with an empty one",
    ),
    r"ConcurrentModificationException|CONCURRENT_STREAM_LOG_UPDATE|CONCURRENT_QUERY": (
        "another query uses the checkpoint",
        "stop it first: one checkpoint serves one job",
    ),
    r"SaslAuthenticationException|Authentication failed|TopicAuthorizationException": (
        "the brokers refuse the user, the password or the right to read the topic",
        "check the credentials under `source.options`, and the ACLs",
    ),
    r"TimeoutException.{0,300}?(?:topic|node assignment|metadata)|UnknownTopicOrPartition"
    r"|Failed to create new Kafka|No resolvable bootstrap": (
        "the brokers or the topic cannot be reached",
        "check `source.servers` and `source.topic`",
    ),
}
"""What other texts mean, and what to do."""
_SCHEMA = re.compile(r"DELTA_SCHEMA_CHANGED|DELTA_STREAMING_METADATA_EVOLUTION")
"""What Delta says where a restart may be all that is needed: see `restarts`."""
_CLASS = re.compile(r"\b((?:[a-z]\w{0,60}\.){1,12}[A-Z]\w{0,100}?(?:Error|Exception))\b")
"""Bounded, or a message that quotes a long row would take hours."""
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_INTERRUPTED = re.compile(r"\bjava\.(?:lang\.Interrupted|nio\.channels\.ClosedByInterrupt)Exception\b")
_INTERRUPTED_IO = re.compile(r"\bjava\.io\.InterruptedIOException\b")
"""Of a stop, or of a store that does not answer: clients of S3 and HDFS throw it for their timeouts too."""
_TIMEOUT = re.compile(r"^(?![ \t]*at ).*?time[ds]?[ -]?out", re.IGNORECASE | re.MULTILINE)
"""Not in the lines of a trace, which name methods."""
_STOPPED = "py4j.protocol.Py4JJavaError: An error occurred while calling Spark: java.lang.InterruptedException"
"""How Spark recognizes that a batch failed only because the query was stopped (`StreamExecution.PROXY_ERROR`)."""


def told(texts: Iterable[str]) -> WeeverError:
    """The error to show, from the texts of an exception and its causes, the outermost first."""
    known = list(texts)
    failure = explained(known) or lost(known)
    if failure is not None:
        return failure
    whole = "\n".join(known)
    conditions = [name for name in _CONDITION.findall(whole) if name != "STREAM_FAILED"]
    classes = _CLASS.findall(whole)
    name = conditions[-1] if conditions else classes[-1] if classes else "Spark does not say why"
    log = jvm.log_file()
    return EngineError(
        f"the query failed: {name}", hint=f"Spark's messages are in {log}" if log else "WEEVER_DEBUG=1 shows all of it"
    )


def lost(texts: Iterable[str]) -> WeeverError | None:
    """The error to show, if it is about what the source no longer has."""
    return _meant(texts, _LOST)


def explained(texts: Iterable[str]) -> WeeverError | None:
    """The error to show, if it has nothing to do with what the source still has: ours, the machine's, a broker's."""
    known = list(texts)
    for text in known:
        if found := _OURS.search(text):
            kind = getattr(errors, found[1], WeeverError)
            made: WeeverError = (kind if issubclass(kind, WeeverError) else WeeverError)(found[2], hint=found[3])
            return made
        if raised := _RAISED.search(text):
            return errors.StateError(raised[1], hint=raised[2])
    for text in known:
        if (memory := out_of_memory(text)) is not None:
            return memory
    if (failure := _meant(known, _KNOWN)) is not None:
        return failure
    java = jvm.running()
    return java.ended() if java is not None and not java.alive else None


def _meant(texts: Iterable[str], meanings: Mapping[str, tuple[str, str]]) -> EngineError | None:
    for text in texts:
        for pattern, (message, hint) in meanings.items():
            if found := re.search(pattern, text, re.DOTALL):
                return EngineError(message.format(*found.groups()), hint=hint)
    return None


_SHORT = 1000
"""Characters of what an exception and its causes say. A trace of Java has more."""


@contextmanager
def shorten_failures() -> Iterator[None]:
    """Within a batch: whatever fails is raised in our words alone, without Java's traces; those go to the log.

    Spark takes the traceback of a failed batch as one text and searches it with a regular expression that recurses for
    every character of it: pages of Java traces overflow the stack of the query's thread, which prints a thousand lines.
    """
    try:
        yield
    except Exception as error:
        texts = texts_of(error)
        if os.environ.get("WEEVER_DEBUG") == "1" or schema_changed(texts):
            raise
        jvm.log_trace(error)
        if _stopped(texts):
            raise EngineError(f"the batch was stopped ({_STOPPED})") from None
        if isinstance(error, WeeverError):
            raise error from None
        if sum(map(len, texts)) <= _SHORT:  # not of Java: an error of ours, whose traceback is needed
            raise
        raise told(texts) from None


def _stopped(texts: Iterable[str]) -> bool:
    """Whether a batch failed because its query was stopped."""
    known = "\n".join(texts)
    if _INTERRUPTED.search(known):
        return True
    return _INTERRUPTED_IO.search(known) is not None and not _TIMEOUT.search(known)


def texts_of(failure: BaseException | None) -> list[str]:
    """What an exception says, and its causes, the outermost first."""
    texts: list[str] = []
    while failure is not None and len(texts) < 10:
        texts.append(str(failure))
        failure = failure.__cause__ or failure.__context__
    return texts


def schema_changed(texts: Iterable[str]) -> bool:
    """Whether a query ended only because its source has a new schema: it can be started again."""
    return any(_SCHEMA.search(text) for text in texts)
