"""The jars of the Delta and Kafka connectors, which the wheels of pyspark and delta-spark do not bring.

Every version is settled here: Spark's and Delta's follow the installed packages, the others are pinned below. Looked
for in this order: a folder that is given (`WEEVER_JARS`), Spark's own folder, our cache, Maven, and last Spark's own
`spark.jars.packages`. Maven fetches each jar by name and nothing that comes with it: 11 jars, 23 MB, instead of 103 MB
with older versions of what Spark itself brings. That takes some 15 seconds once; from the cache it is milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal
from zipfile import is_zipfile

from weever_stream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "KINDS",
    "MAIN",
    "Jars",
    "Kind",
    "cache_folder",
    "cache_home",
    "connectors",
    "fetched",
    "in_spark",
    "maven_coordinates",
    "wanted",
]

Kind = Literal["delta", "kafka"]
KINDS: tuple[Kind, ...] = ("delta", "kafka")
Coordinates = tuple[str, ...]
"""`group:artifact:version` of each jar."""

_SCALA = "2.13"
_BESIDE_SPARK = {"4.0": ("3.9.1", "2.12.0"), "4.1": ("3.9.1", "2.12.1"), "4.2": ("3.9.2", "2.13.1")}
"""kafka-clients and commons-pool2, as the parent pom of each Spark says."""
_BESIDE_DELTA = {
    "4.2": ("io.unitycatalog:unitycatalog-client:0.4.1",),
    "4.3": ("io.unitycatalog:unitycatalog-client:0.5.0", "io.unitycatalog:unitycatalog-hadoop:0.5.0"),
    "4.4": ("io.unitycatalog:unitycatalog-client:0.6.0", "io.unitycatalog:unitycatalog-hadoop:0.6.0"),
}
"""What delta-storage needs of Unity Catalog, as its pom says."""
_OLDEST_TOKENS = "4.0.0"
"""A token provider for mirrors that lack later ones: it has every method that the connector of Spark 4.2 calls."""
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
MAIN: dict[Kind, str] = {"delta": "delta-spark_", "kafka": "spark-sql-kafka-0-10_"}
"""How the name of each connector's own jar begins."""
_PATIENCE = 900
"""Seconds that Maven may take."""


@dataclass(frozen=True)
class Jars:
    """Jars to hand to Spark: files, or coordinates that Spark fetches itself; neither if Spark has them."""

    paths: tuple[Path, ...] = ()
    packages: tuple[str, ...] = ()
    origin: Literal["nothing", "folder", "spark", "cache", "maven", "packages"] = "nothing"
    """The last place that was asked, in the order of this module."""

    def settings(self) -> dict[str, str]:
        """The Spark settings that load them."""
        found = {"spark.jars": ",".join(map(str, self.paths)), "spark.jars.packages": ",".join(self.packages)}
        return {name: value for name, value in found.items() if value}


def connectors(*kinds: Kind, folder: str | Path | None = None) -> Jars:
    """The jars of these connectors. Raises `EngineError` where they cannot be had.

    `folder`, or else the environment's WEEVER_JARS, names a folder of jars to use as it is.
    """
    if not kinds:
        return Jars()
    if given := folder or os.environ.get("WEEVER_JARS"):
        return _of_folder(Path(given), kinds)
    missing = [kind for kind in dict.fromkeys(kinds) if not in_spark(kind)]
    if not missing:
        return Jars(origin="spark")
    here = {kind: fetched(kind) for kind in missing}
    if not (absent := [kind for kind, paths in here.items() if paths is None]):
        return Jars(_flat(here[kind] for kind in missing), origin="cache")
    maven = shutil.which("mvn")
    if maven is None:
        return Jars(packages=tuple(wanted(kind)[0][0] for kind in missing), origin="packages")
    for kind in absent:
        here[kind] = _fetch(kind, maven)
    return Jars(_flat(here[kind] for kind in missing), origin="maven")


def maven_coordinates(spark_version: str | None = None) -> tuple[str, ...]:
    """What `spark-submit --packages` takes: both connectors for this Spark, else for the installed one."""
    return tuple(wanted(kind, spark_version)[0][0] for kind in KINDS)


def wanted(kind: Kind, spark_version: str | None = None) -> tuple[Coordinates, ...]:
    """The jars of a connector, the main one first, in the versions to try: what fits best, then what mirrors have."""
    spark = spark_version or _spark()
    return _wanted_delta(spark) if kind == "delta" else _wanted_kafka(spark)


def _wanted_delta(spark: str) -> tuple[Coordinates, ...]:
    try:
        delta = version("delta-spark")
    except PackageNotFoundError:
        raise EngineError("delta-spark is not installed", hint="pip install delta-spark") from None
    beside = _BESIDE_DELTA.get(_minor(delta), _BESIDE_DELTA[max(_BESIDE_DELTA)])
    parts = (f"delta-spark_{_minor(spark)}_{_SCALA}", "delta-storage", "delta-kernel-api", "delta-kernel-defaults")
    # The wheel of a patch version can be out before its jars are on every mirror; the first of its line serves as well.
    return tuple(
        (*(f"io.delta:{part}:{one}" for part in (*parts, "delta-kernel-unitycatalog")), *beside)
        for one in dict.fromkeys((delta, f"{_minor(delta)}.0"))
    )


def _wanted_kafka(spark: str) -> tuple[Coordinates, ...]:
    clients, pool = _BESIDE_SPARK.get(_minor(spark), _BESIDE_SPARK[max(_BESIDE_SPARK)])
    return tuple(
        (
            f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{spark}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_{_SCALA}:{tokens}",
            f"org.apache.kafka:kafka-clients:{clients}",
            f"org.apache.commons:commons-pool2:{pool}",
        )
        for tokens in dict.fromkeys((spark, _OLDEST_TOKENS))
    )


def cache_home() -> Path:
    """The folder of all fetched jars; XDG_CACHE_HOME moves it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "weever", "jars")


def cache_folder(kind: Kind) -> Path:
    """Where the fetched jars of a connector lie. Another pin, another folder."""
    choices = wanted(kind)
    digest = hashlib.sha256(repr(choices).encode()).hexdigest()[:8]
    return cache_home() / f"{kind}-{choices[0][0].rpartition(':')[2]}-spark-{_spark()}-{digest}"


def fetched(kind: Kind) -> tuple[Path, ...] | None:
    """The jars of a connector in the cache, or None where they are not there or not whole."""
    folder = cache_folder(kind)
    for choice in wanted(kind):
        paths = tuple(folder / _file(one) for one in choice)
        if all(is_zipfile(path) for path in paths):
            return paths
    return None


def _fetch(kind: Kind, maven: str) -> tuple[Path, ...]:
    folder = cache_folder(kind)
    why = ""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for choice in wanted(kind):
            with TemporaryDirectory(dir=folder.parent, prefix=f".{kind}-", ignore_cleanup_errors=True) as scratch:
                complaint = _run_maven(maven, choice, Path(scratch))
                if complaint is None:
                    _put_in_place(Path(scratch, "jars"), folder)
                    break
            why = why or complaint or ""  # the first choice's is the one to tell: the others are substitutes
    except OSError as error:
        raise EngineError(
            f"the jars for {kind} cannot be kept in {folder.parent}: {error.strerror or error}",
            hint="check its rights and space, or set XDG_CACHE_HOME to another folder",
        ) from None
    if (paths := fetched(kind)) is None:
        raise EngineError(
            f"Maven could not fetch the jars for {kind}: {why or 'some are missing from what it copied'}",
            hint="check the network, or the mirror in Maven's settings.xml; or put the jars in a folder and name it in "
            f"WEEVER_JARS: {', '.join(_file(one) for one in wanted(kind)[0])}",
        )
    return paths


def _run_maven(maven: str, choice: Coordinates, scratch: Path) -> str | None:
    """Copies the jars into `scratch/jars`; returns what Maven complains of, or None if all went well."""
    pom = scratch / "pom.xml"
    pom.write_text(_pom(choice), "utf-8")
    # -U: Maven remembers for a day that a jar was not to be had.
    command = [maven, "-q", "-B", "-U", "-f", str(pom), f"{_PLUGIN}:copy-dependencies"]
    command.append(f"-DoutputDirectory={scratch / 'jars'}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_PATIENCE, cwd=scratch)
    except subprocess.TimeoutExpired:
        return f"it did not end within {_PATIENCE // 60} minutes"
    if done.returncode == 0:
        return None
    errors = [line.removeprefix("[ERROR]").strip() for line in (done.stdout + done.stderr).splitlines()]
    named = re.search(r"Could not (?:find|transfer) artifact \S+|JAVA_HOME[^\n]*", "\n".join(errors))
    return named[0] if named else next((line for line in errors if line), f"it ended with code {done.returncode}")[:200]


def _pom(choice: Coordinates) -> str:
    """A project that depends on exactly these jars. All that they themselves depend on is in Spark already."""
    lone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    jars = (
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>".format(*one.split(":"))
        + f"{lone}</dependency>"
        for one in choice
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>weever</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(jars)}</dependencies></project>\n"
    )


def _put_in_place(new: Path, folder: Path) -> None:
    """Renames a whole folder into the cache; one that another process put there meanwhile is as good."""
    try:
        os.rename(new, folder)
    except OSError:
        if not folder.is_dir():
            raise
        for path in new.iterdir():  # what is there may be damaged: each file is replaced at once
            os.replace(path, folder / path.name)


def _of_folder(folder: Path, kinds: Iterable[Kind]) -> Jars:
    paths = tuple(sorted(folder.glob("*.jar")))
    for kind in kinds:
        if not any(path.name.startswith(MAIN[kind]) for path in paths) and not in_spark(kind):
            raise EngineError(
                f"the folder {folder} holds no {MAIN[kind]}*.jar, which {kind} needs"
                if folder.is_dir()
                else f"the folder of jars {folder} is not there",
                hint=f"put in these jars, or name no folder: {', '.join(_file(one) for one in wanted(kind)[0])}",
            )
    return Jars(paths, origin="folder")


def in_spark(kind: Kind) -> bool:
    """Whether Spark's own folder has the connector, as it does in some container images."""
    home = os.environ.get("SPARK_HOME")
    if home is None:
        import pyspark

        home = str(Path(pyspark.__file__).parent)
    return any(Path(home, "jars").glob(f"{MAIN[kind]}*.jar"))


def _spark() -> str:
    try:
        from pyspark.version import __version__
    except ImportError:
        raise EngineError("pyspark is not installed", hint="pip install pyspark") from None
    return str(__version__)


def _minor(full: str) -> str:
    return ".".join(full.split(".")[:2])


def _file(coordinate: str) -> str:
    _, artifact, number = coordinate.split(":")
    return f"{artifact}-{number}.jar"


def _flat(groups: Iterable[Sequence[Path] | None]) -> tuple[Path, ...]:
    return tuple(path for group in groups for path in group or ())
