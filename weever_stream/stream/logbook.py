"""Spark's own logs in a checkpoint, read before Spark reads them: a damaged one is refused by name, with what to do.

Spark notes where a batch ends (`offsets/7`) before it runs it, and that it is done (`commits/7`) after. It believes
what it reads there: of a torn file it says something about JSON and not which file it was, and a changed digit in an
offset makes it skip changes or read them twice, without a word. So every batch notes the checksum of its offsets beside
the checkpoint, and a start compares. An entry that was planned and of which nothing is noted must at least not go back.

Cost: one small file is read and one is written for each batch, four are read at a start.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weever_stream.errors import StateError
from weever_stream.stream.position import exists, last_batches, planned, read_text
from weever_stream.stream.progress import PROGRESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.sinks.batch import Identified
    from weever_stream.state.notes import Notes

__all__ = ["LOGBOOK", "Logbook"]

LOGBOOK = "log.json"
_TORN = "is torn or was changed"
_AGAIN = "delete it: its batch is then done again, with the same output; or restore it from a copy"
_ANEW = "delete it: its batch is then planned anew; or restore it from a copy"
_RESTORE = "restore the checkpoint from a copy, or name an empty one and start with new paths for the sinks"


@dataclass(frozen=True)
class Logbook:
    """What this job knows of Spark's logs. Takes batches as a sink does, before all others."""

    spark: SparkSession
    checkpoint: str
    notes: Notes

    def write(self, batch: Identified) -> None:
        """Notes the checksum of a batch's offsets, and keeps that of the one before."""
        before = self.notes.read(LOGBOOK) or {}
        sums = {name: crc for name, crc in before.get("offsets", {}).items() if int(name) == batch.id - 1}
        sums[str(batch.id)] = _crc(self._lines(f"offsets/{batch.id}", _RESTORE))
        self.notes.write(LOGBOOK, {"offsets": sums, "position": batch.position})

    def check(self) -> None:
        """Raises `StateError` where a log cannot be what Spark wrote."""
        last, done = last_batches(self.spark, self.checkpoint)
        if last < 0 and done < 0:
            return
        if done > last:
            raise self._damaged(f"offsets/{done}", "is missing, though its batch is done", _RESTORE)
        if not exists(self.spark, f"{self.checkpoint}/metadata"):
            raise self._damaged("metadata", "is missing", _RESTORE)
        self._json("metadata", self._lines("metadata", _RESTORE), _RESTORE)
        if done >= 0:
            if self.notes.read(PROGRESS) is None:  # written before Spark commits; without it counts would be wrong
                raise self._damaged(f"weever/{PROGRESS}", "is missing", "restore it from a copy of the checkpoint")
            self._check_commit(done)
        self._check_offsets(last, done)

    def _check_commit(self, done: int) -> None:
        name = f"commits/{done}"
        try:
            version, *lines = self._lines(name, _AGAIN) or [""]
            if not version.startswith("v"):
                raise self._damaged(name, _TORN, _AGAIN)
            self._json(name, lines, _AGAIN)
        except StateError as error:
            # What came through the lane is deleted once its batch is done: such a batch cannot be done again.
            lanes = [self._lines(f"offsets/{batch}", _RESTORE)[-1:] for batch in (done - 1, done) if batch >= 0]
            raise error if lanes[0] == lanes[-1] else self._damaged(name, _TORN, _RESTORE) from None

    def _check_offsets(self, last: int, done: int) -> None:
        noted = self.notes.read(LOGBOOK) or {}
        for batch in sorted({last, done} - {-1}):
            name = f"offsets/{batch}"
            known = noted.get("offsets", {}).get(str(batch))
            # Sinks may hold a batch of which something is noted: they would refuse it with another position.
            remedy = _ANEW if batch > done and known is None else _RESTORE
            lines = self._lines(name, remedy)
            try:
                position = json.loads(planned(self.spark, self.checkpoint, batch).position)
            except StateError:
                raise self._damaged(name, _TORN, remedy) from None
            if known is not None and known != _crc(lines):
                raise self._damaged(name, _TORN, _RESTORE)
            later = all(batch > int(one) for one in noted.get("offsets", {}))
            if later and "position" in noted and _goes_back(json.loads(noted["position"]), position):
                raise self._damaged(name, "goes back behind what is done", remedy)

    def _json(self, name: str, lines: list[str], hint: str) -> None:
        try:
            whole = len(lines) == 1 and isinstance(json.loads(lines[0]), dict)
        except ValueError:
            whole = False
        if not whole:
            raise self._damaged(name, _TORN, hint)

    def _lines(self, name: str, hint: str) -> list[str]:
        """The lines of a file. On a local disk Hadoop compares them with a checksum that it keeps beside the file."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        try:
            return read_text(self.spark, f"{self.checkpoint}/{name}").splitlines()
        except (Py4JError, PySparkException):
            raise self._damaged(name, _TORN, hint) from None

    def _damaged(self, name: str, what: str, hint: str) -> StateError:
        return StateError(f"the file {self.checkpoint}/{name} {what}", hint=hint)


def _crc(lines: list[str]) -> int:
    return zlib.crc32("\n".join(lines).encode())


def _goes_back(before: Any, now: Any) -> bool:
    """Whether any number of a position, one of its partitions or the only one, is less than it was."""
    if isinstance(before, dict) and isinstance(now, dict):
        return any(_goes_back(value, now.get(name)) for name, value in before.items())
    if isinstance(before, int):
        return not isinstance(now, int) or now < before
    return False
