"""The state of a job as its checkpoint has it: manifests through Spark's state reader, the setup through our notes.

The setup is always made from the note, never from the job file alone: what is stored was planned from what was noted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weever_stream.errors import StateError
from weever_stream.rules.bind import bind_all
from weever_stream.rules.types import ColumnType, schema_of
from weever_stream.state.manifest import Manifest
from weever_stream.state.noted import ABOUT, Noted
from weever_stream.state.notes import Notes
from weever_stream.stream.places import offsets_of
from weever_stream.stream.setup import Setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.job.job import Job
    from weever_stream.state.store import StoreOptions

__all__ = ["manifests", "read_noted", "saved_setup", "setup_of", "write_noted"]

_NOTHING = "run the job first: weever run"


def read_noted(notes: Notes, where: str) -> Noted | None:
    """What a checkpoint was made for, or None if it was made for nothing yet."""
    noted = notes.read(ABOUT)
    return None if noted is None else Noted.of_json(noted, where)


def write_noted(notes: Notes, noted: Noted) -> None:
    """Notes it, whole or not at all."""
    notes.write(ABOUT, noted.to_json())


def setup_of(noted: Noted, job: Job, store: StoreOptions) -> Setup:
    """The setup of a checkpoint. What rules deny comes from the note, what else is said of them from the job file."""
    types = schema_of(noted.columns)
    key = tuple((name, kind) for name in noted.key if isinstance(kind := types[name], ColumnType))
    now = {rule.name: rule for rule in job.file.rules}
    setup = Setup(
        rules=bind_all([rule.rule(now) for rule in noted.rules], types),
        key=key,
        columns=noted.columns,
        shards=noted.shards,
        store=store,
        inline_bytes=job.state.inline_bytes,
        max_pairs=job.state.max_pairs,
        retain_batches=job.state.retain_batches,
        remember_drops=job.remember_drops,
        generations={one.number: len(one.rules) for one in noted.generations},
        ended={number: rule.ended for number, rule in enumerate(noted.rules) if rule.ended is not None},
        fills={one.number: one.fills for one in noted.generations if one.fills},
        # Where drops are remembered every shard gets every change anyway.
        offsets=offsets_of(job) if job.source.kind == "delta" and not job.remember_drops else None,
        replaces={number: rule.replaces for number, rule in enumerate(noted.rules) if rule.replaces is not None},
    )
    planned = tuple(family.identity for family in setup.families)
    if noted.families and noted.families != planned[: len(noted.families)]:
        raise StateError(
            f"the state under {job.state.checkpoint} was laid out by a release that plans rules in another way",
            hint="run the release that made it, or name an empty checkpoint and start with --take-over",
        )
    return setup


def saved_setup(job: Job, notes: StoreOptions, runs: StoreOptions) -> Setup:
    """The setup that a checkpoint was made with, without asking the source."""
    noted = read_noted(Notes(notes), job.state.checkpoint)
    if noted is None:
        raise StateError(f"there is no state under {job.state.checkpoint}", hint=_NOTHING)
    return setup_of(noted, job, runs)


def manifests(spark: SparkSession, checkpoint: str) -> dict[int, Manifest]:
    """The manifest of every shard, as of the last batch that was committed."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    _ = spark.streams.active  # starts what Spark's state reader asks for, and what else only a stream would start
    try:
        rows = (
            spark.read.format("statestore")
            .load(checkpoint)
            .selectExpr("key.shard as shard", "value.groupState.manifest as manifest")
            .collect()
        )
    except (PySparkException, Py4JError) as error:
        condition = error.getCondition() if isinstance(error, PySparkException) else None
        raise StateError(
            f"the state under {checkpoint} cannot be read: {condition or type(error).__name__}",
            hint=_NOTHING,
        ) from None
    return {
        int(row.shard): Manifest.load(bytes(row.manifest), f"the state of shard {row.shard}")
        for row in rows
        if row.manifest is not None
    }
