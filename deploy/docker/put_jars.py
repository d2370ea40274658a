"""Puts the connector jars into Spark's own folder, for an image: found there by drivers and executors alike.

Delta's and Kafka's are those that weever_stream itself asks for; `--s3` adds Hadoop's S3A, in the version of the Hadoop
that Spark brings. Both through Maven, which obeys its settings.xml. Run once, when the image is built.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from weever_stream.stream.jars import KINDS, connectors

HERE = Path(__file__).parent
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def hadoop_version(jars: Path) -> str:
    """The version of the Hadoop client in Spark's folder."""
    found = [re.fullmatch(r"hadoop-client-api-(.+)\.jar", path.name) for path in jars.iterdir()]
    [version] = [match[1] for match in found if match]
    return version


def put_connectors(jars: Path) -> list[str]:
    """Copies the jars of Delta and Kafka; returns their names."""
    found = connectors(*KINDS)
    if found.origin == "packages":
        sys.exit("the jars cannot be fetched: Maven is not installed")
    for path in found.paths:
        shutil.copy(path, jars)
    return [path.name for path in found.paths]


def put_s3a(jars: Path) -> list[str]:
    """Copies the jars of S3A; returns their names."""
    before = {path.name for path in jars.iterdir()}
    command = ["mvn", "-q", "-B", "-f", str(HERE / "s3a-pom.xml"), f"-Dhadoop.version={hadoop_version(jars)}"]
    subprocess.run([*command, PLUGIN, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"], check=True)
    return sorted({path.name for path in jars.iterdir()} - before)


def main() -> None:
    """Copies what is asked for and tells what it was."""
    jars = Path(pyspark.__file__).parent / "jars"
    put = put_connectors(jars)
    if "--s3" in sys.argv[1:]:
        put += put_s3a(jars)
    print("\n".join(put))


if __name__ == "__main__":
    main()
