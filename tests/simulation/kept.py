"""Seeds that failed, kept in a file until they pass: later runs try them first.

The files are in `.simulation`, in the folder where one stands; Git does not see them. `failing.txt` has a seed a line.
Some failures end the whole process, and nobody is left to keep the seed: so the seed under way is noted, and the next
process finds the note of one that is gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["FOLDER", "forget", "keep", "kept", "under_way"]

FOLDER = Path(".simulation")


def kept(folder: Path = FOLDER) -> list[int]:
    """The seeds that failed last time, and those over which a process has died."""
    for note in sorted(folder.glob("running-*")):
        if not _runs(int(note.name.removeprefix("running-"))):
            keep(int(note.read_text()), folder)
            note.unlink()
    file = folder / "failing.txt"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def keep(seed: int, folder: Path = FOLDER) -> None:
    """Keeps a seed."""
    file = folder / "failing.txt"
    seeds = {int(line) for line in file.read_text().split()} if file.exists() else set()
    _write(file, {*seeds, seed})


def forget(seed: int, folder: Path = FOLDER) -> None:
    """Lets go of a seed that passes again."""
    if seed in (seeds := kept(folder)):
        _write(folder / "failing.txt", {*seeds} - {seed})


@contextmanager
def under_way(folder: Path = FOLDER) -> Iterator[Path]:
    """A file to note the seed under way in. It is left behind only by a process that dies."""
    folder.mkdir(exist_ok=True)
    note = folder / f"running-{os.getpid()}"
    try:
        yield note
    finally:
        note.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()


def _write(file: Path, seeds: set[int]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{seed}\n" for seed in sorted(seeds)))
