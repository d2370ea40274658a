"""Where a job is in its source, in words: `watching the table /lake/packages at version 12`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weever_stream.job.job import Job

__all__ = ["Standing"]


class Standing:
    """The position of a job: as its last start left it, then as of its last batch."""

    def __init__(self, job: Job, position: str | None) -> None:
        self._source, self._position, self.moved = job.source, position, False

    def move(self, position: str) -> None:
        """A batch is done."""
        self._position, self.moved = position, True

    def __str__(self) -> str:
        at: dict[str, Any] | None = json.loads(self._position or "null")
        if self._source.kind == "kafka":
            offsets = (at or {}).get(self._source.topic, {})
            said = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(offsets.items()))
            return f"the topic {self._source.topic}" + (f" from offsets {said}" if said else "")
        if self._source.kind == "files":
            return f"the folder {self._source.path}"
        version = f" at version {at['version']}" if at else ""
        return f"the table {self._source.table or self._source.path}{version}"
