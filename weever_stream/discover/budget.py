"""What a discovery may spend: seconds and bytes.

Every loop that can last asks `go_on()` between steps of about a tenth of a second, and every set that can grow is
given a size before it starts (`evidences`, `marks`, `comparisons`), so that the work ends with the best it has. Bytes
are what a discovery takes besides the table, its codes and the interpreter; they are reckoned from the sizes of arrays,
not measured. Time also limits sizes: evidence that takes longer to unpack than there is time is of no use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from time import monotonic

from weever_stream.errors import DataError

__all__ = ["Budget", "bytes_of", "default_memory", "machine_memory"]

_SHARE = 4
"""The part of the machine's memory that is taken by default: a quarter."""
_LEAST = 64 << 20
_MARKS = 40_000_000
"""Rules times predicates that are held at most, with whatever memory."""
_FEW_EVIDENCES = 30_000
"""Evidences for which there should be room, however many comparisons there are."""
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_CGROUPS, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_LIMITS = {"": "memory.max", "memory": "memory.limit_in_bytes"}
"""The file that holds a limit, by the controller that a line of /proc/self/cgroup names: none in version 2."""


class Budget:
    """How long the work may take, and how much memory. A part of the time can be given to one phase.

    `stopped` ends the time early: a person may ask for what there is.
    """

    def __init__(
        self,
        seconds: float | None,
        clock: Callable[[], float] = monotonic,
        memory: int | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._clock, self._stopped = clock, stopped
        self.given = float("inf") if seconds is None else seconds
        """The seconds there were at the beginning; infinite without a limit."""
        self._end = None if seconds is None else clock() + seconds
        self.memory = max(_LEAST, default_memory() if memory is None else memory)

    def go_on(self) -> bool:
        """Whether there is time left."""
        return not self._stopped() and (self._end is None or self._clock() < self._end)

    def left(self) -> float:
        """Seconds that are left; infinite without a limit."""
        if self._stopped():
            return 0.0
        return float("inf") if self._end is None else max(0.0, self._end - self._clock())

    def share(self, part: float, memory: float = 1.0) -> Budget:
        """A budget of a part of what time is left, and of a part of the memory."""
        seconds = None if self._end is None else self.left() * part
        return Budget(seconds, self._clock, int(self.memory * memory), self._stopped)

    def at_least(self, seconds: float) -> Budget:
        """A budget of what time is left, and of this much where it is less: for what makes the rest worth its time."""
        left = self.left()
        return self if left >= seconds else Budget(seconds, self._clock, self.memory)

    def comparisons(self) -> int:
        """How many comparisons a space may have, beyond those of each column with itself."""
        room = self.memory // 4 // (_FEW_EVIDENCES * _bytes_each(1, 6))
        return int(min(room, 400 * self.left()))

    def evidences(self, comparisons: int, predicates: int) -> int:
        """How many distinct evidences of unordered pairs may be kept: half the memory, a fifth of the time."""
        room = self.memory // 2 // _bytes_each(comparisons, predicates)
        # Unpacking an evidence takes some nanoseconds for each predicate, and is done in every round.
        return int(max(1000, min(room, 0.2 * self.left() / (2e-8 * max(1, predicates)))))

    def rules(self, predicates: int) -> int:
        """How many rules a search may hold."""
        return max(10_000, min(_MARKS, self.memory // 32) // max(1, predicates))

    def depth(self, evidences: int) -> int:
        """How many predicates deep a search may go: it keeps a set of evidences for each two of them."""
        return max(3, int((self.memory / 4 / max(64, evidences / 8)) ** 0.5) - 1)


def _bytes_each(comparisons: int, predicates: int) -> int:
    """What a distinct evidence of unordered pairs takes at most on its way through table, outcomes and inversion."""
    words = (comparisons + 31) // 32
    table = (8 * words + 8) * 10
    """Up to an eighth full, and the table before it while it grows."""
    unpacked = 2 * (comparisons + 8 * words + 24)
    bits = 2 * 4 * (predicates // 8 + 8)
    return table + unpacked + bits


def default_memory() -> int:
    """A quarter of what this process may take."""
    return machine_memory() // _SHARE


def machine_memory() -> int:
    """The memory of the machine, or of its container."""
    sizes = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for file in _limits():
        with suppress(OSError, ValueError):  # there is none, or it says "max"
            sizes.append(int(file.read_text(encoding="ascii")))
    return min(sizes, default=8 << 30)


def _limits() -> Iterator[Path]:
    """Files that may limit the memory of this process: those of its control groups and of the groups around them.

    A container sees its own group as the root; a systemd unit is somewhere below it.
    """
    try:
        lines = _OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    for line in [*lines, "0::/", "0:memory:/"]:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        name = "memory" if "memory" in controllers.split(",") else controllers
        if name in _LIMITS:
            group = PurePosixPath(path.lstrip("/"))
            for folder in (group, *group.parents):
                yield _CGROUPS / name / folder / _LIMITS[name]


def bytes_of(size: str | int) -> int:
    """A size as people write it: `2GB`, `512 MiB`, or a number of bytes. Raises `DataError`."""
    found = _SIZE.fullmatch(str(size))
    if not found or float(found[1]) <= 0:
        raise DataError(f"{str(size)[:40]!r} is no size of memory", hint="write 2GB, 500MB or a number of bytes")
    unit = found[2].lower()
    step = 1024 if found[3] else 1000
    power = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}[unit]
    return int(float(found[1]) * step**power)
