"""A disk that runs full, in a mount namespace of its own: `unshare -rm python -m tests.crash.full_disk <folder>`.

First the checkpoint is on a small disk, then the sinks are. The disk is filled to its last bytes by another file, the
job must stop and say why, nothing that it published may be wrong, and when the file is deleted the job goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.crash.lives import Life
from tests.crash.rounds import Broken, drained
from tests.crash.world import World

_ROOM = 12 << 10


def fill(world: World, name: str, code: int) -> None:
    """Lets the disk run full under one folder of a job that has worked so far."""
    small = world.folder / name
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(small)], check=True)
    world.grow(1)
    drained(world)
    ballast = small / "ballast"
    free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
    ballast.write_bytes(b"x" * (free - _ROOM))
    world.grow(6)
    with Life(world, "--once") as life:
        if life.ended() != code or "no space left" not in life.errors.lower() or "hint:" not in life.errors:
            raise Broken(f"a full disk under {name} should be told", life)
        print(life.errors.strip().splitlines()[-2:], flush=True)
    ballast.unlink()
    world.check()
    drained(world)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    fill(World(where / "1", 3), "checkpoint", 3)
    fill(World(where / "2", 4), "out", 4)
    print("ok")
