"""The run store of a worker, with a disk that fails: the product's own, but for the moments at which faults strike.

Files are real ones. A write may fail before or after the rename, or the process may die in the middle of it or just
behind it; a delete may fail, or be the last thing that a process does. Files that are needed may be lost, torn or
changed: `Disk` does that, knows what it did, and puts back what was there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from weever_stream.state.store import RunStore, StoreOptions

if TYPE_CHECKING:
    from weever_stream.detect.sections import Section

__all__ = ["Disk", "FaultyStore", "Killed", "WorkerKilled"]


class Killed(BaseException):
    """The driver is gone, and all workers with it. No product code may catch it."""


class WorkerKilled(BaseException):
    """A worker is gone; the driver goes on."""


Strikes = Callable[[str], bool]


class FaultyStore(RunStore):
    """The store of one worker."""

    def __init__(self, options: StoreOptions, strikes: Strikes) -> None:
        super().__init__(options)
        self._strikes = strikes
        self._fs = _FaultyFiles(self._fs, strikes)

    def _write_local(self, name: str, parts: list[Section]) -> None:
        if self._strikes("a file cannot be written"):
            raise OSError(errno.ENOSPC, "No space left on device")
        for fault in (WorkerKilled, Killed):
            if self._strikes(_FAULT[fault]):
                self._half(name, parts)
                raise fault
        super()._write_local(name, parts)
        if self._strikes("a file is written and told as failed"):
            raise OSError(errno.EIO, "Input/output error")
        _die(self._strikes)

    def _half(self, name: str, parts: list[Section]) -> None:
        """What a process leaves that dies while it writes."""
        beside = Path(self._root, name).with_name(f".{Path(name).name}.half.tmp")
        beside.parent.mkdir(parents=True, exist_ok=True)
        content = b"".join(parts)
        beside.write_bytes(content[: len(content) // 2])


class _FaultyFiles:
    """A file system whose deletes fail."""

    def __init__(self, files: Any, strikes: Strikes) -> None:
        self._files, self._strikes = files, strikes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def delete_file(self, path: str) -> None:
        if self._strikes("a file cannot be deleted"):
            raise PermissionError(errno.EACCES, "Permission denied")
        _die(self._strikes)
        self._files.delete_file(path)
        _die(self._strikes)


_FAULT: dict[type[BaseException], str] = {Killed: "the driver is killed", WorkerKilled: "a worker is killed"}


def _die(strikes: Strikes) -> None:
    for fault, name in _FAULT.items():
        if strikes(name):
            raise fault


class Disk:
    """The folder of run files, as an operator sees it: what is there, what was damaged, and copies to put back."""

    def __init__(self, root: str, random: Random) -> None:
        self._root, self._random = Path(root), random
        self.damaged: dict[str, bytes] = {}
        """By name; what was in the file."""

    def names(self) -> set[str]:
        """All run files."""
        if not self._root.exists():
            return set()
        shards = [entry.name for entry in os.scandir(self._root)]
        names = (f"{shard}/{entry.name}" for shard in shards for entry in os.scandir(self._root / shard))
        return {name for name in names if name.endswith(".run")}

    def damage(self, name: str) -> str:
        """Loses, tears or changes a file. A process that has it mapped keeps what it has."""
        path = self._root / name
        content = path.read_bytes()
        self.damaged[name] = content
        kind = self._random.choice(("lost", "torn", "changed", "lengthened"))
        if kind == "lost":
            path.unlink()
            return kind
        at = self._random.randrange(len(content))
        flipped = bytes([content[at] ^ (1 << self._random.randrange(8))])
        made = {
            "torn": content[:at],
            "changed": content[:at] + flipped + content[at + 1 :],
            "lengthened": content + b"\0",
        }[kind]
        beside = path.with_suffix(".new")
        beside.write_bytes(made)
        beside.replace(path)
        return kind

    def mend(self) -> None:
        """Puts back what was there."""
        for name, content in self.damaged.items():
            path = self._root / name
            beside = path.with_suffix(".new")
            beside.write_bytes(content)
            beside.replace(path)
        self.damaged = {}
