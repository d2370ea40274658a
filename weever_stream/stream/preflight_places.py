"""The local folders of a job, checked before Spark starts: a source that is missing, and sinks of another run.

`source_refusal` and `sink_refusals` raise nothing; they return the errors that the start would raise. Remote places are
left to the start, and so are paths that Spark may resolve to another file system (`is_elsewhere`). Cost: a look
at each folder, and at the log of each Delta table.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs

from weever_stream.errors import DataError, OutputError, WeeverError
from weever_stream.job.options import DeltaSink, FilesSink, FilesSource, QuarantineSink, revealed
from weever_stream.state.owners import FILE, PROPERTY, not_ours
from weever_stream.state.store import opened
from weever_stream.storage import is_uri
from weever_stream.stream.places import checkpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.job.job import Job

__all__ = ["is_elsewhere", "sink_refusals", "source_refusal"]

_HADOOP, _DEFAULT = "spark.hadoop.fs.", "spark.hadoop.fs.defaultFS"
"""Spark's settings of file systems, and of the one that paths without a scheme belong to."""
_NOT_LOCAL = ("HADOOP_CONF_DIR", "DATABRICKS_RUNTIME_VERSION")
"""Where one of these is set, paths without a scheme need not be local."""


def is_elsewhere(job: Job, path: str) -> bool:
    """Whether Spark's settings may resolve a path to a file system that is not known here."""
    settings = {name: value for name, value in job.settings.items() if name.startswith(_HADOOP)}
    settings |= {f"{_HADOOP}{name[3:]}": value for name, value in job.source.options.items() if name.startswith("fs.")}
    if is_uri(path):
        return bool(settings) and not path.lower().startswith("file:")
    if default := revealed(settings).get(_DEFAULT):
        return not default.lower().startswith("file:")
    return any(os.environ.get(name) for name in _NOT_LOCAL)


def source_refusal(job: Job) -> WeeverError | None:
    """The error about a source of files whose folder is missing or unreadable."""
    source = job.source
    if not isinstance(source, FilesSource) or not _is_local(job, source.path):
        return None
    if any(character in source.path for character in "*?{}[]"):
        return None
    try:
        os.stat(source.path)
    except (FileNotFoundError, NotADirectoryError):
        return DataError(f"there is no folder {source.path}", hint="make it before the start")
    except OSError as error:
        return DataError(f"the folder {source.path} cannot be read: {error.strerror}", hint="check its permissions")
    return None


def sink_refusals(job: Job) -> Iterator[tuple[WeeverError, bool]]:
    """Why sinks would refuse the job, each with whether `--take-over` would help."""
    for sink in job.sinks:
        if not isinstance(sink, DeltaSink | FilesSink | QuarantineSink) or not _is_local(job, sink.path):
            continue
        places = [*_places(sink)]
        error = next((found for found in map(_not_writable, places) if found is not None), None)
        if error is not None:
            yield error, False
        elif _is_foreign(job, {owner for place in places for owner in _owners(place)}):
            yield not_ours(sink.path), True


def _is_local(job: Job, path: str) -> bool:
    return not is_uri(path) and not is_elsewhere(job, path)


def _places(sink: DeltaSink | FilesSink | QuarantineSink) -> Iterator[Path]:
    """What a sink writes: folders, and Delta tables. Those of another job may lie beside them."""
    path = Path(sink.path)
    if isinstance(sink, DeltaSink):
        yield from (path / name for name in sink.tables)
    elif isinstance(sink, QuarantineSink):
        yield path / "keys"  # the split tables follow it
    else:
        yield path


def _is_foreign(job: Job, owners: set[str]) -> bool:
    """Whether another query owns what a sink writes. False where the checkpoint does not say which query is ours."""
    if not owners or is_elsewhere(job, job.state.checkpoint):
        return False
    try:
        _, system, folder = opened(checkpoint_of(job))
        metadata = f"{folder}/metadata"
        if system.get_file_info(metadata).type == fs.FileType.NotFound:
            return True  # the query has not begun, so it owns nothing
        with system.open_input_stream(metadata) as stream:
            return owners != {str(json.loads(stream.read())["id"])}
    except (WeeverError, OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return False


def _owners(place: Path) -> Iterator[str]:
    """The query that owns a folder or a Delta table, if there is one."""
    from deltalake import DeltaTable

    with suppress(OSError, ValueError, KeyError, TypeError):
        yield str(json.loads((place / FILE).read_text(encoding="utf-8"))["query_id"])
    if os.path.isdir(place / "_delta_log"):
        # deltalake raises what it likes: the start says what is wrong with the table
        with suppress(Exception):
            if owner := DeltaTable(str(place)).metadata().configuration.get(PROPERTY):
                yield owner


def _not_writable(place: Path) -> OutputError | None:
    # os.path, because Path.exists raises for a folder that may not be read
    nearest = next(one for one in (place, *place.absolute().parents) if os.path.exists(one))
    if os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK):
        return None
    why = "is not writable" if os.path.isdir(nearest) else "is not a folder"
    return OutputError(
        f"the sink {place} cannot be written: {nearest} {why}", hint="check the path and its permissions"
    )
