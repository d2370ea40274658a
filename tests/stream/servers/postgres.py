"""A PostgreSQL server for the tests, with logical decoding: the installed one, else in a container."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.stream.servers.processes import Server, docker_answers, free_port, running, until

SETTINGS = {"wal_level": "logical", "max_wal_senders": "8", "max_replication_slots": "8", "fsync": "off"}


class Postgres(Server):
    """A context manager; inside it `host`, `port`, `user`, `password` and `database` say where it is."""

    host, port, user, password, database = "127.0.0.1", 0, "weever", "weever", "postgres"
    _sql: Callable[[str], str]

    def _start(self) -> None:
        if programs := _programs():
            self._installed(programs)
        elif docker_answers():
            self._in_a_container()
        else:
            pytest.skip("PostgreSQL is needed: neither initdb and postgres nor a Docker engine are here")

    def run(self, sql: str) -> str:
        """Runs statements, each in a transaction of its own; returns the rows of queries, unaligned."""
        return self._sql(sql)

    def _installed(self, programs: Path) -> None:
        # Not pytest's folder: only its owner may enter that, and the server runs as somebody else if we are root.
        folder = Path(tempfile.mkdtemp(prefix="weever-postgres-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        as_server = _somebody(folder)
        data, log = folder / "data", folder / "log.txt"
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", self.user, "--auth=trust", "-E", "UTF8", "--no-sync"]
        subprocess.run([*initdb, "--locale=C"], check=True, capture_output=True, cwd=folder, timeout=120, **as_server)
        self.port = free_port()
        command = [str(programs / "postgres"), "-D", str(data), "-p", str(self.port), "-k", str(folder)]
        command += ["-h", self.host, *(f"--{name}={value}" for name, value in SETTINGS.items())]
        process = self._stack.enter_context(running(command, log, cwd=folder, **as_server))
        psql = str(programs / "psql") if (programs / "psql").exists() else shutil.which("psql")
        assert psql is not None, "psql is missing beside initdb"
        where = ["-h", self.host, "-p", str(self.port), "-U", self.user, "-d", self.database]
        base = [psql, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", *where]

        def sql(text: str) -> str:
            done = subprocess.run(base, input=text, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        def ready() -> bool:
            try:
                return sql("select 1") == "1"
            except AssertionError:
                return False

        until(ready, process, log)
        self._sql = sql

    def _in_a_container(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from testcontainers.postgres import PostgresContainer

            container = PostgresContainer("postgres:15", self.user, self.password, self.database, driver=None)
            container.with_command(" ".join(["postgres", *(f"-c {name}={value}" for name, value in SETTINGS.items())]))
            self._stack.enter_context(container)
        self.host = container.get_container_host_ip()
        self.port = int(container.get_exposed_port(5432))

        def sql(text: str) -> str:
            command = ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", self.user, "-d", self.database]
            for statement in filter(None, map(str.strip, text.split(";"))):
                code, said = container.exec([*command, "-c", statement])
                assert code == 0, said
            return bytes(said).decode().strip()

        self._sql = sql


def _programs() -> Path | None:
    """The folder with initdb and postgres."""
    found = shutil.which("initdb")
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    path = Path(os.path.realpath(found)) if found else (installed[-1] if installed else None)
    return path.parent if path and (path.parent / "postgres").exists() else None


def _somebody(folder: Path) -> dict[str, Any]:
    """The options that start a process as the owner of a folder: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, account.pw_uid, account.pw_gid)
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
