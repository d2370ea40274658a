"""Server processes of the tests: on free loopback ports, with a log to show, ended by their own id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pytest

_Same = TypeVar("_Same", bound="Server")


class Server:
    """Something that runs while a block lasts. What `_start` puts on the stack is ended with it, also if it fails."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self: _Same) -> _Same:
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        raise NotImplementedError


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def java_program() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if found is None:
        pytest.skip("this server needs Java, and there is none")
    return found


def docker_answers() -> bool:
    """Whether a Docker engine can be talked to."""
    if not (os.environ.get("DOCKER_HOST") or Path("/var/run/docker.sock").exists()):
        return False
    import docker

    try:
        client = docker.from_env(timeout=5)
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:
        return False


@contextmanager
def running(command: Sequence[str], log: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a server while the block lasts. Asked politely to end, then not."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **options)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(done: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 120) -> None:
    """Waits for a server to be ready. Fails with the end of its log if it ends or takes too long."""
    end = time.monotonic() + seconds
    while not done():
        late = time.monotonic() > end
        if late or process.poll() is not None:
            what = f"was not ready after {seconds:.0f} seconds" if late else f"ended with code {process.returncode}"
            raise AssertionError(f"{process.args[0]} {what}:\n{log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.1)
