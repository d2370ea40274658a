"""The position that a batch completes, and when it was planned, from Spark's own log of offsets.

Spark writes `offsets/<batch>` before it runs a batch and reads it again when the batch is repeated, so what is taken
from there is the same on every run of the batch. One small file is read a batch.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from weever_stream.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Planned", "exists", "files_read", "inside_a_commit", "last_batches", "offset_of", "planned", "read_text",
]  # fmt: skip


@dataclass(frozen=True)
class Planned:
    """What Spark decided of a batch before it ran it."""

    position: str
    """Where the source stands when the batch is done, as JSON."""
    at: datetime
    """In UTC."""


def planned(spark: SparkSession, checkpoint: str, batch: int) -> Planned:
    """What the log says of a batch."""
    text = read_text(spark, f"{checkpoint}/offsets/{batch}")
    try:
        _, about, *_ = text.splitlines()
        at = datetime.fromtimestamp(json.loads(about)["batchTimestampMs"] / 1000, timezone.utc)
        offset = offset_of(text)
        # A batch that came from the lane before the source had anything to say stands nowhere.
        position = None if offset is None else told(offset)
        if position is not None and "entry" in position:
            position = {**_last_file(spark, checkpoint, position["entry"]), **position}
    except (ValueError, KeyError, TypeError, IndexError):
        raise StateError(
            f"the log of offsets of batch {batch} under {checkpoint} cannot be read",
            hint="it is torn or was written by another Spark; restore the checkpoint from a copy",
        ) from None
    return Planned(json.dumps(position, separators=(",", ":")), at)


def offset_of(text: str) -> dict[str, Any] | None:
    """The end of a batch in the source of changes, as the log of offsets has it; None before the first change."""
    _, _, feed, *_ = text.splitlines()  # the source of changes, then the lane
    offset: dict[str, Any] | None = None if feed == "-" else json.loads(feed)
    return offset


def inside_a_commit(offset: dict[str, Any] | None) -> bool:
    """Whether a Delta source stopped between the files of a commit. Not in the snapshot: that only inserts."""
    if offset is None or offset.get("isStartingVersion"):
        return False
    return int(offset.get("index", -1)) >= 0


def last_batches(spark: SparkSession, checkpoint: str) -> tuple[int, int]:
    """The last batch that was planned, and the last that was finished; -1 where there is none."""
    planned_last, finished = (
        max((int(name) for name in _names(spark, f"{checkpoint}/{log}") if name.isdecimal()), default=-1)
        for log in ("offsets", "commits")
    )
    return planned_last, finished


def files_read(spark: SparkSession, checkpoint: str, last: int) -> list[str]:
    """The files that the first source has read, up to an entry of its log; for a source of files."""
    log = f"{checkpoint}/sources/0"
    numbers = {int(name.removesuffix(".compact")): name for name in _names(spark, log) if name[0].isdecimal()}
    # A compact entry repeats all before it, and Spark deletes those: the newest may be the only one that is left.
    compact = max((number for number, name in numbers.items() if name.endswith(".compact")), default=0)
    paths: dict[str, None] = {}
    for number in sorted(number for number in numbers if number == compact or compact < number <= last):
        _, *lines = read_text(spark, f"{log}/{numbers[number]}").splitlines()
        files = [file for file in map(json.loads, lines) if file["batchId"] <= last]
        paths |= {unquote(file["path"]): None for file in files}  # Spark logs paths URI-encoded
    if not paths:
        raise StateError(
            f"the log of files {log} has no entry up to {last}",
            hint="it was deleted or is of another query; restore the checkpoint from a copy",
        )
    return list(paths)


def _names(spark: SparkSession, folder: str) -> list[str]:
    """The names in a folder; none if it is not there."""
    if not exists(spark, folder):
        return []
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    listed = path.getFileSystem(spark._jsc.hadoopConfiguration()).listStatus(path)
    return [str(one.getPath().getName()) for one in listed]


def told(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset in the words of its source.

    A Delta offset names a version and the last file read of it; with a negative index it is the version that is read
    next. Delta reads a commit whole, unless it has no change files and is larger than a batch may be. Files go by the
    entries of the log in which Spark writes the files of each batch.
    """
    if "reservoirVersion" in offset:
        version, index = int(offset["reservoirVersion"]), int(offset.get("index", -1))
        return {"version": version - 1 if index < 0 else version}
    if "logOffset" in offset:
        return {"entry": int(offset["logOffset"])}
    return offset


def _last_file(spark: SparkSession, checkpoint: str, entry: int) -> dict[str, str]:
    """The name of the last file in an entry of the log of files; nothing if Spark has deleted the entry."""
    for name in (f"{entry}", f"{entry}.compact"):
        path = f"{checkpoint}/sources/0/{name}"
        if exists(spark, path):
            _, *lines = read_text(spark, path).splitlines()
            files = [file for file in map(json.loads, lines) if file["batchId"] == entry]
            return {"file": unquote(str(files[-1]["path"])).rpartition("/")[2]} if files else {}
    return {}


def exists(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or folder, on any file system that Spark reads."""
    jvm: Any = spark._jvm
    java_path = jvm.org.apache.hadoop.fs.Path(path)
    return bool(java_path.getFileSystem(spark._jsc.hadoopConfiguration()).exists(java_path))


def read_text(spark: SparkSession, path: str) -> str:
    """The text of a small file on any file system that Spark reads."""
    jvm: Any = spark._jvm
    java_path = jvm.org.apache.hadoop.fs.Path(path)
    stream = java_path.getFileSystem(spark._jsc.hadoopConfiguration()).open(java_path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()
