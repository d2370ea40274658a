"""Opens data by path or URI: local disks, S3, GCS, Azure and HDFS through `pyarrow.fs`, and Delta tables on them.

Credentials come from the environment, as for every other client of the store (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …),
or from the URI as `pyarrow.fs` takes it. Nothing shown to a user carries them: `Location.shown` has neither the user
part nor the query of a URI, and `reason_of` keeps no more than an error's first sentence.

A Delta table is scanned through a native file system of Arrow, never through the Python one that `deltalake` offers by
default. Arrow's threads may drop their last reference to a file system after the scan has returned. For a Python one
that takes the GIL, and in an interpreter that is shutting down it aborts the process with exit code 134.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from weever_stream.errors import DataError

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

__all__ = ["Location", "is_uri", "locate", "map_file", "open_delta", "reason_of", "scan_delta"]

SCHEMES = ("file", "s3", "s3a", "gs", "abfs", "abfss", "hdfs", "viewfs")
"""Those that are named to the user; `pyarrow.fs` knows more spellings."""
_ALIASES = {"s3a": "s3", "s3n": "s3"}
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://|(file|dbfs):/", re.IGNORECASE)
_AWS = re.compile(r"AWS Error (\w+) during (\w+) operation")
_GOOGLE = re.compile(r"google::cloud::Status\((\w+)")
_GCS_PATIENCE = 20
"""Seconds for which a request to Google's store is tried again."""
_USER = re.compile(r"//[^/@\s]*@")


@dataclass(frozen=True)
class Location:
    """A file or folder: its file system, its path there, and how to show it."""

    system: Any
    path: str
    shown: str
    uri: str | None = None
    """What was given, if it was a URI; may hold secrets."""

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Location({self.shown!r})"

    @property
    def local(self) -> bool:
        """Whether it is on a disk of this machine, or mounted as one."""
        return isinstance(self.system, fs.LocalFileSystem)

    def info(self) -> Any:
        """Type and size of what is there. Raises `DataError` if the store does not answer or refuses."""
        try:
            return self.system.get_file_info(self.path)
        except (OSError, pa.ArrowException) as error:
            raise _refused(self.shown, error) from None

    def inside(self, relative: str) -> Location:
        """A file or folder below it."""
        uri = None
        if self.uri is not None:
            parts = _split(self.uri)
            uri = parts._replace(path=f"{parts.path.rstrip('/')}/{relative}").geturl()
        below = (f"{one.rstrip('/')}/{relative}" for one in (self.path, self.shown))
        return replace(self, path=next(below), shown=next(below), uri=uri)

    def cut(self, parts: int) -> Location:
        """The folder that many parts above it."""
        uri = None
        if self.uri is not None:
            split = _split(self.uri)
            uri = split._replace(path=split.path.rsplit("/", parts)[0]).geturl()
        return replace(self, path=self.path.rsplit("/", parts)[0], shown=self.shown.rsplit("/", parts)[0], uri=uri)

    def listed(self) -> list[str]:
        """The paths of all files below it, relative to it; none if it is missing. Raises `DataError` if refused."""
        try:
            if self.local:  # Arrow follows links to folders, in circles too
                return _below(self.path)
            found = self.system.get_file_info(fs.FileSelector(self.path, allow_not_found=True, recursive=True))
        except (OSError, pa.ArrowException) as error:
            raise _refused(self.shown, error) from None
        return [info.path[len(self.path.rstrip("/")) + 1 :] for info in found if info.type == fs.FileType.File]

    def open_file(self) -> Any:
        """For reading at any place; a local file is mapped."""
        return map_file(self.path) if self.local else self.system.open_input_file(self.path)

    def open_stream(self) -> Any:
        """For reading from start to end, decompressed if its name says that it is compressed."""
        return self.system.open_input_stream(self.path, compression="detect")


def is_uri(given: str | Path) -> bool:
    """Whether it is a URI and not a path."""
    return isinstance(given, str) and _URI.match(given) is not None


def locate(given: str | Path) -> Location:
    """Where a path or URI leads. Raises `DataError` for a URI that `pyarrow.fs` cannot open."""
    if not is_uri(given):
        shown = str(Path(given).expanduser())
        return Location(fs.LocalFileSystem(), os.path.abspath(shown), shown)
    uri = str(given)
    parts = _split(uri)
    scheme = _ALIASES.get(parts.scheme.lower(), parts.scheme.lower())
    if scheme == "file":
        return Location(fs.LocalFileSystem(), unquote(parts.path), unquote(parts.path))
    host = parts.netloc.rpartition("@")[2] if scheme == "s3" else parts.netloc
    shown = f"{parts.scheme}://{_without_password(host)}{parts.path}"
    try:
        # Stores take keys as they are: a % in one is no escape, and a space needs none.
        system, path = fs.FileSystem.from_uri(f"{scheme}://{parts.netloc}{quote(parts.path)}{_query(scheme, parts)}")
    except (OSError, ValueError) as error:
        if "Unrecognized filesystem type" in str(error):
            raise DataError(
                f"{shown}: the URI scheme {parts.scheme} is not supported",
                hint=f"supported are {', '.join(SCHEMES)} and local paths; or copy the data to one of them",
            ) from None
        raise _refused(shown, error, opening=True) from None
    return Location(system, path.rstrip("/"), shown, uri)


def map_file(path: str) -> pa.MemoryMappedFile:
    """A local file in memory. Raises `MemoryError` where there is no room for it, which Arrow reports as an OSError."""
    try:
        return pa.memory_map(path)
    except OSError as error:
        if "Cannot allocate memory" in str(error):
            raise MemoryError from None
        raise


def open_delta(location: Location, version: int | None = None) -> DeltaTable:
    """The Delta table there, at a version or the newest. Raises what `deltalake` raises, which has no common root."""
    from deltalake import DeltaTable

    if location.uri is None:
        return DeltaTable(location.path, version)
    parts = _split(location.uri)
    if parts.scheme.lower() not in ("s3", "s3a", "s3n"):
        return DeltaTable(location.uri, version)
    return DeltaTable(f"s3://{location.path}", version, storage_options=_s3_options(location.uri))


def scan_delta(table: DeltaTable, location: Location) -> ds.Dataset:
    """The rows of a Delta table at its loaded version, as a dataset that no Python code has a part in."""
    return table.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(location.path, location.system))


def reason_of(error: Exception) -> str:
    """The first sentence of an error of Arrow, `deltalake` or a store; what follows may quote rows or credentials."""
    text = str(getattr(error, "strerror", None) or error)
    if found := _AWS.search(text):
        return f"{found[1]} from {found[2]}"
    if found := _GOOGLE.search(text):
        return f"{found[1]} from the store"
    return _USER.sub("//", re.split(r"[:.;] |\n| -> ", text.strip())[0])[:120]


def _below(folder: str) -> list[str]:
    def stop(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    paths = [os.path.join(where, name) for where, _, names in os.walk(folder, onerror=stop) for name in names]
    return [os.path.relpath(path, folder) for path in paths if os.path.isfile(path)]


def _split(uri: str) -> SplitResult:
    try:
        return urlsplit(uri, allow_fragments=False)  # keys may hold a #
    except ValueError:
        raise DataError("the URI of the data cannot be parsed", hint="scheme://bucket/path") from None


def _refused(shown: str, error: Exception, *, opening: bool = False) -> DataError:
    hint = "check the path, the credentials in the environment, and the network"
    if shown.startswith(("hdfs:", "viewfs:")):
        hint = "HDFS needs Hadoop's native client: set JAVA_HOME, HADOOP_HOME and CLASSPATH"
    return DataError(f"{shown} cannot be {'opened' if opening else 'read'}: {reason_of(error)}", hint=hint)


def _query(scheme: str, parts: SplitResult) -> str:
    """The options of a URI. Google's client would try for a quarter of an hour by itself."""
    options = [parts.query] if parts.query else []
    if scheme in ("gs", "gcs") and "retry_limit_seconds" not in parse_qs(parts.query):
        options.append(f"retry_limit_seconds={_GCS_PATIENCE}")
    return f"?{'&'.join(options)}" if options else ""


def _without_password(authority: str) -> str:
    """An authority without a password; `container@account` of Azure keeps both."""
    user, _, host = authority.rpartition("@")
    name = user.partition(":")[0]
    return f"{name}@{host}" if name else host


def _s3_options(uri: str) -> dict[str, str]:
    """What `pyarrow.fs` reads from an S3 URI, in the words of `deltalake`."""
    parts = _split(uri)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    endpoint = query.get("endpoint_override") or ""
    if endpoint and "://" not in endpoint:
        endpoint = f"{query.get('scheme', 'https')}://{endpoint}"
    options = {
        "aws_access_key_id": unquote(parts.username or ""),
        "aws_secret_access_key": unquote(parts.password or ""),
        "aws_region": query.get("region", ""),
        "aws_endpoint_url": endpoint,
    }
    named = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if named.startswith("http://"):  # who names such an endpoint wants it
        options["allow_http"] = "true"
    return {name: value for name, value in options.items() if value}
