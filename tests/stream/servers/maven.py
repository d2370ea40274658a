"""Servers from their Maven jars, for machines without a Docker engine: a folder with all that an artifact needs.

Kept under `~/.cache/weever/servers`, beside the connector jars, so that only the first run fetches anything.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

KAFKA = "4.3.0"
DEBEZIUM = "3.6.1.Final"
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def jars_of(name: str, *coordinates: str) -> Path:
    """A folder with these artifacts and everything they depend on. Skips the test where there is no Maven."""
    digest = hashlib.sha256(repr(coordinates).encode()).hexdigest()[:8]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "weever", "servers", f"{name}-{digest}")
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"{name} needs a Docker engine or Maven: neither is here")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as scratch:
        pom = Path(scratch, "pom.xml")
        pom.write_text(_pom(coordinates))
        jars = Path(scratch, "jars")
        command = [maven, "-q", "-B", "-U", "-f", str(pom), _PLUGIN, f"-DoutputDirectory={jars}"]
        done = subprocess.run([*command, "-DincludeScope=runtime"], capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"Maven could not fetch {name}:\n{done.stdout}{done.stderr}"
        try:
            os.rename(jars, folder)
        except OSError:  # another process was faster
            assert folder.is_dir()
    return folder


def _pom(coordinates: tuple[str, ...]) -> str:
    jars = (
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>".format(
            *coordinate.split(":")
        )
        for coordinate in coordinates
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>weever</groupId><artifactId>server</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(jars)}</dependencies></project>"
    )
