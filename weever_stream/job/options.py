"""What a job file may say under `source`, `sinks`, `state`, `metrics` and `trigger`: pydantic models, one a kind.

Only shapes and ranges are checked here; whether a table or a topic is there is the feed's or the sink's business.
Unknown fields are refused. A text that held `${env:…}` or `${file:…}` arrives as a `Secret` and stays one.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, TypeAdapter

from weever_stream.rules.model import Severity
from weever_stream.rules.references import Secret

__all__ = [
    "ConsoleSink",
    "DeltaSink",
    "DeltaSource",
    "FilesSink",
    "FilesSource",
    "KafkaSink",
    "KafkaSource",
    "Metrics",
    "QuarantineSink",
    "Rejects",
    "Sink",
    "Source",
    "State",
    "duration",
    "revealed",
    "sink_options",
    "source_options",
]


_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def _plain(value: object) -> object:
    """A name or path that was filled in from the environment: no secret, so it may be shown."""
    return value.reveal() if isinstance(value, Secret) else value


def _absolute(path: str) -> str:
    """Local paths start at the current folder; Spark and Delta would each take their own view of that."""
    return path if _SCHEME.match(path) else os.path.abspath(os.path.expanduser(path))


Text = Annotated[str, BeforeValidator(_plain), Field(min_length=1)]
Place = Annotated[Text, AfterValidator(_absolute)]
"""A folder or table, as a path or URI."""
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(milliseconds?|ms|seconds?|s|minutes?|min|hours?|h|days?|d)\s*")
_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "s": 1.0}
_LONGEST = 100 * 366 * 86400.0


def duration(text: str) -> float:
    """The seconds that a text such as `10 seconds`, `500 ms` or `1 minute` means."""
    found = _DURATION.fullmatch(text.lower())
    if not found:
        raise ValueError(f"{text[:60]!r} is no duration; write it with its unit: 10 seconds, 500 ms, 1 minute")
    unit = found[2]
    seconds = float(found[1]) * (0.001 if unit.startswith(("ms", "milli")) else _SECONDS[unit[0]])
    if seconds > _LONGEST:
        raise ValueError("a duration is a hundred years at most")
    return seconds


def _is_duration(text: str) -> str:
    duration(text)
    return text


def _texts(value: object) -> object:
    """Connector options are texts to Spark; numbers and switches are written as people write them."""
    if not isinstance(value, dict):
        return value
    return {
        str(name): ("true" if item else "false")
        if isinstance(item, bool)
        else str(item)
        if isinstance(item, int | float)
        else item
        for name, item in value.items()
    }


Duration = Annotated[str, AfterValidator(_is_duration)]
Options = Annotated[dict[str, str | Secret], BeforeValidator(_texts)]
"""Passed on to the connector as they are, `kafka.security.protocol` for example."""


def revealed(options: dict[str, str | Secret]) -> dict[str, str]:
    """Connector options with secrets in the clear: only for the call that hands them over."""
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options.items()}


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class DeltaSink(_Options):
    """Delta tables under one path: `log` (every addition and removal) and `open` (what is violated now)."""

    kind: Literal["delta"]
    path: Place
    tables: list[Literal["log", "open"]] = ["log", "open"]


class KafkaSink(_Options):
    """A topic whose key is the violation id, with a tombstone when it is over."""

    kind: Literal["kafka"]
    servers: Annotated[str | Secret, Field(union_mode="left_to_right")]
    topic: Text
    options: Options = {}


class FilesSink(_Options):
    """A folder of files, one sub-folder for each batch."""

    kind: Literal["files"]
    path: Place
    format: Literal["json", "parquet"] = "json"


class QuarantineSink(_Options):
    """Delta tables under one path: which rows are in an open violation, and the table split by that."""

    kind: Literal["quarantine"]
    path: Place
    min_severity: Severity = "error"
    """Violations of this severity and above put their rows in quarantine."""
    tables: Literal["keys", "split"] = "keys"
    """keys: `keys` alone. split: `clean` and `quarantined` too, whole rows; for a Delta source."""


class ConsoleSink(_Options):
    """A table on the terminal."""

    kind: Literal["console"]
    rows: Annotated[int, Field(ge=1, le=1000)] = 10
    """Violations shown of a batch; the others are counted."""


_KINDS = ("delta", "kafka", "files", "quarantine", "console")


def _kind(value: Any) -> str | None:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return kind if isinstance(kind, str) else None


Sink = Annotated[
    Annotated[DeltaSink, Tag("delta")]
    | Annotated[KafkaSink, Tag("kafka")]
    | Annotated[FilesSink, Tag("files")]
    | Annotated[QuarantineSink, Tag("quarantine")]
    | Annotated[ConsoleSink, Tag("console")],
    Discriminator(_kind),
]
DeadLetters = Annotated[
    Annotated[DeltaSink, Tag("delta")] | Annotated[KafkaSink, Tag("kafka")] | Annotated[FilesSink, Tag("files")],
    Discriminator(_kind),
]


class Rejects(_Options):
    """What becomes of records that cannot be read."""

    max_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The job stops when a larger share of a batch is rejected."""
    judged_from: Annotated[int, Field(ge=1)] = 100
    """Batches of fewer records are not judged: one bad record in a quiet hour is no reason to stop."""
    sink: DeadLetters | None = None
    """Where they go; JSON files beside the checkpoint if nothing is said."""


class _Source(_Options):
    options: Options = {}
    rejects: Rejects = Rejects()
    remember_drops: Annotated[int, Field(ge=0, le=10_000_000)] | None = None
    """How many dropped keys a shard remembers, to know a late change for what it is. Default: 0, for files 100,000.

    0 says that the changes of a key come in their order, and old rows before new ones: then a change is sent only to
    the shards that it concerns.
    """


class DeltaSource(_Source):
    """The change data feed of a Delta table: its snapshot first, then every change."""

    kind: Literal["delta"]
    path: Place | None = None
    table: Text | None = None
    starting_version: Annotated[int, Field(ge=0)] | Literal["latest"] | None = None
    """Changes from this version on, without a snapshot."""


class KafkaSource(_Source):
    """A topic of changes."""

    kind: Literal["kafka"]
    servers: Annotated[str | Secret, Field(union_mode="left_to_right")]
    topic: Text
    format: Literal["json", "debezium"] = "json"
    """json: a message is the whole row under its key, a tombstone removes it. debezium: change events."""
    starting: Literal["earliest", "latest"] = "earliest"
    before: Literal["key", "full"] = "key"
    """Debezium: whether `before` can be trusted to hold the whole old row (PostgreSQL: REPLICA IDENTITY FULL)."""
    truncate: Literal["reject", "clear"] = "reject"
    """Debezium: what TRUNCATE does. `clear` is right only on a topic with one partition."""


class FilesSource(_Source):
    """A folder to which files of changes are added, with `_change_type` and `_commit_version`."""

    kind: Literal["files"]
    path: Place
    format: Literal["json", "parquet", "csv"] = "json"


Source = Annotated[
    Annotated[DeltaSource, Tag("delta")] | Annotated[KafkaSource, Tag("kafka")] | Annotated[FilesSource, Tag("files")],
    Discriminator(_kind),
]


class State(_Options):
    """Where the job keeps what it knows, and how it is cut."""

    checkpoint: Place
    shards: Annotated[int, Field(ge=1, le=4096)] = 8
    inline_bytes: Annotated[int, Field(ge=0, le=16 << 20)] = 256 << 10
    """A shard's runs up to this size together lie in Spark's state; larger ones are files."""
    retain_batches: Annotated[int, Field(ge=2, le=10_000)] = 10
    """Files that no manifest of the last N batches needs are deleted. Spark goes back one batch; a batch that changes
    every row retires every file, so each further one may cost as much space as the state itself."""
    max_pairs: Annotated[int, Field(ge=0, le=1_000_000)] = 10_000
    """A row that has more partners under a rule when it comes lists a sample of its pairs; the others are counted.
    0: every pair is listed, however many there are."""
    rule_changes: Literal["ask", "allow", "reject"] = "ask"
    """Whether rules may change under a checkpoint that has seen batches; `ask` asks a person at a terminal."""
    cache: Place | None = None
    """A local folder for copies of remote files."""
    filesystem: dict[str, Any] = {}
    """Options of `pyarrow.fs` for the run store on S3, GCS or Azure: `endpoint_override`, `region`, …"""


class Metrics(_Options):
    """Where metrics can be read."""

    port: Annotated[int, Field(ge=0, le=65535), BeforeValidator(_plain)] | None = None
    """Served there over HTTP while the job runs; 0 takes any port that is free. None: they are not served."""
    host: Text = "127.0.0.1"
    """Who may reach it: the address to listen at. There is no password."""
    file: Place | None = None
    """A file that is replaced after every batch, for node_exporter's textfile collector: for jobs that soon end."""


source_options: TypeAdapter[Any] = TypeAdapter(Source)
sink_options: TypeAdapter[Any] = TypeAdapter(Sink)
