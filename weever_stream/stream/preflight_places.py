"""The local folders of a job, looked at before Spark starts: a source that is not there, and sinks of another run.

Remote places are left to the start. `missing_folder` and `sink_refusals` raise nothing; they return the errors that the
start would raise. Cost: a look at each folder, and at the log of each Delta table.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from weever_stream.errors import DataError, OutputError
from weever_stream.job.options import DeltaSink, FilesSink, FilesSource, QuarantineSink
from weever_stream.state.owners import FILE, PROPERTY, not_ours
from weever_stream.storage import is_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weever_stream.errors import WeeverError
    from weever_stream.job.job import Job

__all__ = ["missing_folder", "sink_refusals"]


def missing_folder(job: Job) -> WeeverError | None:
    """The error about a source of files whose folder is not there."""
    source = job.source
    if not isinstance(source, FilesSource) or is_uri(source.path) or any(c in source.path for c in "*?{}[]"):
        return None
    return (
        None
        if Path(source.path).exists()
        else DataError(f"there is no folder {source.path}", hint="make it before the start")
    )


def sink_refusals(job: Job) -> Iterator[tuple[WeeverError, bool]]:
    """Why sinks would refuse the job, each with whether `--take-over` would help."""
    query = _query_id(job)
    for sink in job.sinks:
        path = sink.path if isinstance(sink, DeltaSink | FilesSink | QuarantineSink) else None
        if path is None or is_uri(path):
            continue
        if (error := _not_writable(Path(path))) is not None:
            yield error, False
        elif any(owner != query for owner in _owners(Path(path))):
            yield not_ours(path), True


def _query_id(job: Job) -> str | None:
    """The id of the query of a local checkpoint, if it has begun."""
    if is_uri(job.state.checkpoint):
        return None
    try:
        return str(json.loads(Path(job.state.checkpoint, "metadata").read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _owners(path: Path) -> Iterator[str]:
    """The queries that own the tables and folders of a sink."""
    from deltalake import DeltaTable

    with suppress(OSError, ValueError, KeyError, TypeError):
        yield str(json.loads((path / FILE).read_text(encoding="utf-8"))["query_id"])
    for table in (path, path / "open", path / "log"):
        if (table / "_delta_log").is_dir():
            try:
                owner = DeltaTable(str(table)).metadata().configuration.get(PROPERTY)
            except Exception:  # deltalake raises what it likes: the start says what is wrong with the table
                continue
            if owner:
                yield owner


def _not_writable(path: Path) -> OutputError | None:
    nearest = next(one for one in (path, *path.absolute().parents) if one.exists())
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return None
    why = "cannot be written" if nearest.is_dir() else "is not a folder"
    return OutputError(f"the sink {path} cannot be written: {nearest} {why}", hint="check the path and its rights")
