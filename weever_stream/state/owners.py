"""Who owns a place that a sink writes: where the owner is named, and the errors about a place of another query."""

from __future__ import annotations

from weever_stream.errors import OutputError

__all__ = ["FILE", "PROPERTY", "UNKNOWN", "ahead", "not_ours"]

PROPERTY = "weever.owner"
"""The property of a Delta table that has the id of the query which owns it."""
FILE = "_owner"
"""The file of a folder that has it."""
UNKNOWN = "unknown"
"""The owner of rows that nobody has claimed: a copy of a table, for example."""


def ahead(path: str, holds: int, next_batch: int) -> OutputError:
    """The error about a place that holds later batches than the checkpoint knows."""
    return OutputError(
        f"{path} is ahead of the checkpoint: it holds batch {holds}, this would be {next_batch}",
        hint="the checkpoint is older: restore both from the same time; or name an empty checkpoint and start with "
        "--take-over, which finds everything again",
    )


def not_ours(path: str, what: str = "violations") -> OutputError:
    """The error about a place that another query owns."""
    return OutputError(
        f"{path} holds the {what} of another run, whose checkpoint is not this one",
        hint="continue with that checkpoint, or name another path for the sink; --take-over closes what the other run "
        "left open and continues with this checkpoint",
    )
