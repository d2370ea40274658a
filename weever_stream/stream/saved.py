"""The state of a job as its checkpoint has it: manifests through Spark's state reader, the setup through our notes."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weever_stream.errors import StateError
from weever_stream.rules.types import ColumnType, schema_of
from weever_stream.state.manifest import Manifest
from weever_stream.state.notes import Notes
from weever_stream.stream.setup import Setup

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.job.job import Job
    from weever_stream.state.store import StoreOptions

__all__ = ["ABOUT", "about", "manifests", "saved_setup"]

ABOUT = "job.json"
_NOTHING = "run the job first: weever run"


def about(setup: Setup, job: Job) -> dict[str, Any]:
    """What a checkpoint is made for."""
    return {
        "format": 1,
        "table": job.file.table,
        "source": job.source.kind,
        "key": list(setup.key_names),
        "shards": setup.shards,
        "rules": {bound.rule.name: bound.rule.fingerprint for bound in setup.rules},
        "state": setup.identity,
        "columns": base64.b64encode(setup.columns.serialize().to_pybytes()).decode(),
    }


def saved_setup(job: Job, notes: StoreOptions, runs: StoreOptions) -> Setup:
    """The setup that a checkpoint was made with, without asking the source."""
    noted = Notes(notes).read(ABOUT)
    if noted is None:
        raise StateError(f"there is no state under {job.state.checkpoint}", hint=_NOTHING)
    columns = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted["columns"])))
    found = schema_of(columns)
    types = tuple((name, kind) for name in noted["key"] if isinstance(kind := found[name], ColumnType))
    setup = Setup(
        rules=job.file.bind({**job.file.columns, **found}),  # columns may be declared that no rule reads
        key=types,
        columns=columns,
        shards=int(noted["shards"]),
        store=runs,
        spread={rule.name: rule.spread for rule in job.file.rules if rule.spread > 1},
        remember_drops=job.remember_drops,
    )
    if setup.identity != noted["state"]:
        raise StateError(
            f"the checkpoint {job.state.checkpoint} was made for other rules or column types",
            hint="use the job file that it was made with",
        )
    return setup


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
