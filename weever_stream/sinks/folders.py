"""A folder with one subfolder for each batch, and the query that owns it: `path/batch_id=<n>/` and `path/_owner`.

Batches are numbered from 0 by every query, so a second query would overwrite some folders of the first and leave the
others. The file `_owner` has the id of the query whose folders these are; readers skip names that begin with `_`.
Another query is refused; with `take_over` the folders of the earlier one are moved to `_earlier/<its id>/`, and the
folder begins from scratch. Costs one listing a start, and a look at the owner before every write.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from weever_stream.errors import OutputError
from weever_stream.sinks.failures import writing
from weever_stream.sinks.ownership import refuse_middle
from weever_stream.state.owners import FILE, UNKNOWN, ahead, not_ours

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.sinks.batch import Batch

__all__ = ["BatchFolders"]

_EARLIER = "_earlier"
_FOLDER = re.compile(r"/batch_id=(\d+)(?=[,)])")


class BatchFolders:
    """The folders of one sink. `what` they hold: for messages."""

    def __init__(self, path: str, what: str, *, sums: bool, take_over: bool = False) -> None:
        """`sums`: the folders add up to what is open, so one query must write them from its beginning."""
        self._path, self._what, self._sums, self._take_over = path.rstrip("/"), what, sums, take_over
        self._checked = self._claimed = False
        self._last = -1
        """The last batch that had a folder when this started."""

    def check(self, spark: SparkSession, batch: Batch) -> None:
        """Refuses a folder of another query, or one that is ahead of the checkpoint. Does so at the first batch."""
        if self._checked:
            return
        store = _Store(spark, self._path)
        owner, numbers = store.owner(), store.batches()
        if owner == UNKNOWN and not numbers:  # torn: the first batch was cut off before it wrote anything
            owner = None
        self._claimed = owner == batch.query_id
        if self._claimed:
            self._last = max(numbers, default=-1)
            if self._last > batch.id:
                raise ahead(self._path, self._last, batch.id)
        elif owner is not None or numbers:
            if not self._take_over:
                raise not_ours(self._path, self._what)
            if self._sums:
                refuse_middle(self._path, batch)
            store.move(numbers, f"{_EARLIER}/{owner or UNKNOWN}")
            store.claim(batch.query_id)  # at once: the earlier query must not find an empty folder that is its own
            self._claimed = True
        self._checked = True

    def refuse_other(self, batch: Batch) -> None:
        """Refuses the folder of a batch that has nothing to write: it is that of another batch of this number."""
        if self._last == batch.id:
            raise ahead(self._path, self._last, batch.id)

    def folder(self, spark: SparkSession, batch: Batch) -> str:
        """The folder of a batch, once this query owns them all."""
        self.check(spark, batch)
        store = _Store(spark, self._path)
        if not self._claimed:
            store.claim(batch.query_id)
            self._claimed = True
        elif store.owner() != batch.query_id:  # another query has taken the place over since
            raise not_ours(self._path, self._what)
        return f"{self._path}/batch_id={batch.id}"


class _Store:
    """The file system of a folder, as Spark opens it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm, self._name = jvm, path
        self._root: Any = jvm.org.apache.hadoop.fs.Path(path)
        with writing(f"the folder {path}"):
            self._files = self._root.getFileSystem(spark._jsc.hadoopConfiguration())

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def owner(self) -> str | None:
        with writing(f"the folder {self._name}"):
            if not self._files.exists(self._child(FILE)):
                return None
            self._files.setVerifyChecksum(False)  # a file that was cut off is torn in its text
            stream = self._files.open(self._child(FILE))
            try:
                text = bytes(stream.readAllBytes())
            finally:
                stream.close()
        try:
            return str(json.loads(text)["query_id"])
        except (ValueError, KeyError, TypeError):
            return UNKNOWN

    def batches(self) -> list[int]:
        """The numbers of the batches that have a folder. One answer for all of them: there may be very many."""
        with writing(f"the folder {self._name}"):
            if not self._files.exists(self._root):
                return []
            listed = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(self._files.listStatus(self._root))
            text = self._jvm.scala.runtime.ScalaRunTime.stringOf(listed)
            return sorted(int(number) for number in _FOLDER.findall(text))

    def move(self, numbers: list[int], target: str) -> None:
        """Moves folders of batches into another folder. What was moved before a crash is there already."""
        with writing(f"the folder {self._name}"):
            self._files.mkdirs(self._child(target))
            for number in numbers:
                name = f"batch_id={number}"
                if not self._files.rename(self._child(name), self._child(f"{target}/{name}")):
                    raise OutputError(
                        f"{self._name}/{name} could not be moved to {self._name}/{target}",
                        hint="check the store's rights, or move it away by hand",
                    )

    def claim(self, query_id: str) -> None:
        with writing(f"the folder {self._name}"):
            stream = self._files.create(self._child(FILE), True)
            try:
                stream.write(bytearray(json.dumps({"query_id": query_id}).encode()))
            finally:
                stream.close()
