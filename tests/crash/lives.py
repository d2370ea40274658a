"""One life of a driver: `weever run` as a session of processes of its own, until it ends or is killed.

Its parts are the driver (Python), the JVM that it starts, and Python's daemon and workers that the JVM starts. `kill`
says which of them die: a crash of the driver alone leaves a JVM behind, a lost machine takes all.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from tests.crash.world import World

__all__ = ["WAYS", "Life"]

ROOT = str(Path(__file__).parents[2])
WAYS = ("group", "driver", "jvm", "machine")
"""Who is killed: the process group (driver and JVM), the driver alone, the JVM alone, the whole session at once."""


class Life:
    """A context manager; whatever is left of the session at its end is killed."""

    def __init__(
        self,
        world: World,
        *arguments: str,
        crash: str = "",
        master: str = "local[2,4]",
        environment: Mapping[str, str] = {},
        wrapped: Sequence[str] = (),
    ) -> None:
        self.world = world
        self.reports: list[dict[str, Any]] = []
        self.errors = ""
        count = world.folder / "passes"
        count.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.crash.driver", "run", str(world.job), "--master", master]
        # The shell gives way to the driver and tells it its process group, which is its own number.
        shell = ["/bin/sh", "-c", 'WEEVER_CRASH_GROUP=$$ exec "$@"', "sh"]
        self.process = subprocess.Popen(
            [*wrapped, *shell, *command, "--format", "json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": ROOT,
                "WEEVER_CRASH": crash,
                "WEEVER_CRASH_COUNT": str(count),
                **environment,
            },
        )
        self._readers = [threading.Thread(target=self._reports), threading.Thread(target=self._errors)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Life:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill("machine")
        for reader in self._readers:
            reader.join(30)

    def _reports(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as out:
            for line in out:
                with suppress(ValueError):
                    self.reports.append(json.loads(line))

    def _errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as out:
            for line in out:
                self.errors += line

    def batches(self, n: int, seconds: float = 240) -> bool:
        """Waits until it has told of so many batches, or has ended. Whether it has told."""
        end = time.monotonic() + seconds
        while len(self.reports) < n and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        return len(self.reports) >= n

    def ended(self, seconds: float = 300) -> int:
        """Waits for its end; the exit code, negative for a signal."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(10)
        return code

    def parts(self) -> list[psutil.Process]:
        """What is alive of its session."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def jvm(self) -> psutil.Process | None:
        """The JVM, if it is there."""
        for process in self.parts():
            with suppress(psutil.Error):
                if process.name() == "java":
                    return process
        return None

    def kill(self, way: str = "group") -> None:
        """Kills some or all of it, with SIGKILL."""
        if way == "group":
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        elif way == "driver":
            self.process.kill()
        elif way == "jvm":
            if (jvm := self.jvm()) is not None:
                jvm.kill()
        else:
            while parts := self.parts():  # a process may start another while we look
                for process in parts:
                    with suppress(psutil.Error):
                        process.kill()
                time.sleep(0.01)
        if way != "jvm":
            self.process.wait(60)
