"""The change frame: what every feed makes of its source, and all that the rest of the stream knows of sources.

A change frame is a streaming DataFrame with the table's columns that rules and key read, in their own types, and these:

    _weever_change    tinyint, not null: what happens, see `PUT` and its neighbours
    _weever_sequence  bigint, not null, 0 … 2^62-1: the later change of a key has the larger one; at the same sequence a
                      drop comes before a put
    _weever_reason    string: why a record was rejected; null for all that can be read
    _weever_origin    string: JSON, where a rejected record came from: topic, partition, offset; file, row; or version
    _weever_record    string: the rejected record as far as it is text

A record that cannot be read never fails the query and is never lost: it is a row with `REJECT`, a reason and an origin.
"""

from __future__ import annotations

__all__ = [
    "BATCH_BYTES",
    "CHANGE",
    "CLEAR",
    "CONTROL",
    "DROP",
    "DROP_ANYWHERE",
    "ORIGIN",
    "PUT",
    "PUT_ANYWHERE",
    "REASON",
    "RECORD",
    "REJECT",
    "SEQUENCE",
    "WORDS",
]

CHANGE, SEQUENCE = "_weever_change", "_weever_sequence"
REASON, ORIGIN, RECORD = "_weever_reason", "_weever_origin", "_weever_record"
CONTROL = (CHANGE, SEQUENCE, REASON, ORIGIN, RECORD)

DROP = 0
"""The row goes; the columns hold the old row, so it is known which shards hold it."""
PUT = 1
"""The row is as the columns say; if there was an old row of this key, a `DROP` tells its values."""
DROP_ANYWHERE = 2
"""The row of this key goes, wherever it is held: only the key columns are known."""
PUT_ANYWHERE = 3
"""The row is as the columns say, and whatever was held of this key anywhere is replaced."""
CLEAR = 4
"""All rows with a smaller sequence go. Key columns are null."""
REJECT = 5
"""A record that cannot be read; only the control columns count."""

BATCH_BYTES = str(256 << 20)
"""Bytes of files in a batch, one file at least, unless the job says otherwise: compressed Parquet takes many times that
in memory, and a table or folder that was filled for a year must not come in one batch."""

WORDS = {
    "insert": PUT,
    "update_postimage": PUT,
    "update_preimage": DROP,
    "delete": DROP_ANYWHERE,
    "upsert": PUT_ANYWHERE,
}
"""What `_change_type` may say in files and frames of changes. A delete may hold only its key."""
