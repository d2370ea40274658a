"""An object store for the tests: moto's S3 server, which answers the real protocol from memory.

It runs as the program `moto_server`: the one that MOTO_SERVER names, else beside this Python, else in PATH. What it
depends on need not be installed with the tests: `pip install "moto[s3]>=5.2.5" flask flask-cors`, in an environment of
its own if you like. Arrow refuses the answers of moto 5.2.1 to an upload in parts (getmoto/moto issue 10055).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.stream.servers.processes import Server, free_port, listens, running, until

INSTALL = 'pip install "moto[s3]>=5.2.5" flask flask-cors'


class ObjectStore(Server):
    """A context manager; inside it `options` are those of `pyarrow.fs.S3FileSystem`, and `bucket` is there."""

    access_key, secret_key, region, bucket = "weever", "weever-secret", "us-east-1", "weever"
    endpoint: str

    def _start(self) -> None:
        scratch = TemporaryDirectory(prefix="weever-s3-", ignore_cleanup_errors=True)
        folder = Path(self._stack.enter_context(scratch))
        port = free_port()
        log = folder / "log.txt"
        command = [_program(), "-H", "127.0.0.1", "-p", str(port)]
        process = self._stack.enter_context(running(command, log, cwd=folder))
        until(lambda: listens(port), process, log)
        self.endpoint = f"http://127.0.0.1:{port}"
        self._prepare()

    def _prepare(self) -> None:
        files = self.filesystem(allow_bucket_creation=True)
        files.create_dir(self.bucket)
        try:
            with files.open_output_stream(f"{self.bucket}/probe") as out:
                out.write(b"probe")
        except OSError as error:
            raise AssertionError(f"{_program()} takes no upload in parts; {INSTALL}") from error
        files.delete_file(f"{self.bucket}/probe")

    @property
    def options(self) -> dict[str, Any]:
        return {
            "endpoint_override": self.endpoint,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "region": self.region,
        }

    def filesystem(self, **more: Any) -> Any:
        """Arrow's file system of this store."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(**self.options, **more)


def _program() -> str:
    beside = shutil.which("moto_server", path=str(Path(sys.executable).parent))
    found = os.environ.get("MOTO_SERVER") or beside or shutil.which("moto_server")
    if found is None:
        pytest.skip(f"an S3 server is needed, and there is no moto_server; {INSTALL}")
    return found
