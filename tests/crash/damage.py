"""What disks, copies and people do to the files of a checkpoint: torn, cut off, empty, some bytes changed, gone.

Each kind names the files that it may befall and what becomes of one of them. Hadoop keeps a checksum beside each file
on a local disk (`.7.crc`): `bare` kinds lose that too, as a copy without hidden files does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KINDS", "Damage"]


@dataclass(frozen=True)
class Damage:
    """Something that happens to one file of a checkpoint."""

    find: Callable[[Path], Path]
    harm: Callable[[Path], None]
    bare: bool = False

    def __call__(self, checkpoint: Path) -> Path:
        """Does it. The file that was harmed."""
        path = self.find(checkpoint)
        if self.bare:
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        self.harm(path)
        return path


def _newest(folder: str) -> Callable[[Path], Path]:
    def find(checkpoint: Path) -> Path:
        return max((path for path in (checkpoint / folder).iterdir() if path.name.isdigit()), key=lambda p: int(p.name))

    return find


def _state(suffix: str, *, needed: bool = True) -> Callable[[Path], Path]:
    """Of the fullest partition of the state the newest file, or the newest that the next batch begins with."""

    def find(checkpoint: Path) -> Path:
        begins_with = int(_newest("commits")(checkpoint).name) + 1
        folder = max(
            (path for path in (checkpoint / "state" / "0").iterdir() if path.name.isdigit()),
            key=lambda path: sum(file.stat().st_size for file in path.iterdir() if file.is_file()),
        )
        files = {int(path.name.partition(".")[0]): path for path in folder.glob(f"[0-9]*{suffix}")}
        return files[max(version for version in files if not needed or version <= begins_with)]

    return find


def _run_file(checkpoint: Path) -> Path:
    """The run file that was written last: the manifests of now name it, not only those of before."""
    return max((checkpoint / "weever" / "runs").rglob("*.run"), key=lambda path: (path.name, path.stat().st_size))


def _named(name: str) -> Callable[[Path], Path]:
    return lambda checkpoint: checkpoint / name


def torn(path: Path) -> None:
    """The second half never reached the disk."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def emptied(path: Path) -> None:
    """The name did, and nothing of the content."""
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    """One bit, in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def garbled(path: Path) -> None:
    """Sixteen bytes, in the middle: in a compressed file one bit may change nothing, as where zeros are copied from."""
    content = bytearray(path.read_bytes())
    middle = slice(len(content) // 2, len(content) // 2 + 16)
    content[middle] = bytes(byte ^ 0xFF for byte in content[middle])
    path.write_bytes(content)


def ahead(path: Path) -> None:
    """The offset is another one, and all is still well formed."""
    lines = path.read_text().split("\n")  # a version, settings, and then a line for each source
    lines[2] = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), lines[2], count=1)
    path.write_text("\n".join(lines))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def gone(path: Path) -> None:
    """As if it had never been."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


KINDS = {
    "offsets torn": Damage(_newest("offsets"), torn),
    "offsets empty": Damage(_newest("offsets"), emptied),
    "offsets flipped": Damage(_newest("offsets"), flipped),
    "offset changed": Damage(_newest("offsets"), ahead),
    "offsets gone": Damage(_newest("offsets"), gone),
    "commits torn": Damage(_newest("commits"), torn),
    "commits empty": Damage(_newest("commits"), emptied),
    "commits gone": Damage(_newest("commits"), gone),
    "state torn": Damage(_state(".changelog"), torn, bare=True),
    "state garbled": Damage(_state(".changelog"), garbled, bare=True),
    "state empty": Damage(_state(".changelog"), emptied, bare=True),
    "state gone": Damage(_state(".changelog"), gone),
    "unfinished state torn": Damage(_state(".changelog", needed=False), torn, bare=True),
    "snapshot torn": Damage(_state(".zip"), torn, bare=True),
    "snapshot garbled": Damage(_state(".zip"), garbled, bare=True),
    "run file torn": Damage(_run_file, torn),
    "run file flipped": Damage(_run_file, flipped),
    "run file gone": Damage(_run_file, gone),
    "metadata empty": Damage(_named("metadata"), emptied, bare=True),
    "metadata gone": Damage(_named("metadata"), gone),
    "job note torn": Damage(_named("weever/job.json"), torn),
    "job note gone": Damage(_named("weever/job.json"), gone),
    "progress gone": Damage(_named("weever/progress.json"), gone),
}
