"""The run store: immutable files in a folder, on a local disk or on S3, GCS, Azure or HDFS through `pyarrow.fs`.

A file appears whole or not at all: a local one is written beside its place, forced to the disk and renamed, an object
store shows an object when its upload is done. So a file is there for good before a manifest can name it, whatever
happens to the machine. Reading maps the file into memory; a remote one is copied once into a local cache. A file's
length and CRC-32 are known to whoever asks for it and are compared whenever it is mapped, so a torn or changed file is
refused by name. Names come from manifests, which are data: one that leads outside of the folder, by `..` or by
a link, is refused before anything is read or deleted. Cost: one write or one mapping a file; nothing is ever rewritten.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from weever_stream.errors import OutputError, StateError
from weever_stream.storage import map_file

if TYPE_CHECKING:
    from weever_stream.detect.sections import Section

__all__ = ["RunStore", "StoreOptions", "StoredFile", "opened", "shows_halves", "write_whole"]

_HINT = "restore the file from a copy, or delete the checkpoint and let the job build its state again"
_PART = re.compile(r"[A-Za-z0-9_.=-]+")
"""A part of a file's name."""
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfss": "abfss", "wasbs": "abfss"}


@dataclass(frozen=True)
class StoreOptions:
    """Where run files are. Travels to the workers, so it holds no connection."""

    uri: str
    """A path or URI of a folder."""
    filesystem: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Arguments of the `pyarrow.fs` class, if the URI and the environment do not say all; may hold secrets."""
    cache: str | None = None
    """A local folder for copies of remote files."""


@dataclass(frozen=True)
class StoredFile:
    """A file as a manifest knows it."""

    name: str
    length: int
    crc: int


class RunStore:
    """Files of one folder."""

    def __init__(self, options: StoreOptions) -> None:
        self.options = options
        self._local, self._fs, self._root = opened(options)
        self._cache = Path(options.cache) if options.cache else Path(gettempdir()) / f"weever-runs-{os.getuid()}"
        if not self._local and options.cache is None:
            _make_private(self._cache)

    def write(self, stem: str, pieces: Iterable[Section]) -> StoredFile:
        """Writes a file, named by a stem that is relative to the folder and by its content.

        So a name never stands for two contents, whoever else may be writing.
        """
        parts = list(pieces)
        length = crc = 0
        for part in parts:
            length, crc = length + len(part), zlib.crc32(part, crc)
        name = self._inside(f"{stem}-{crc:08x}.run")
        try:
            self._write_local(name, parts) if self._local else self._write_remote(name, parts)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise OutputError(
                f"the run file {name} could not be written to {self._root}: {reason}", hint="check its space and rights"
            ) from None
        return StoredFile(name, length, crc)

    def _write_local(self, name: str, parts: list[Section]) -> None:
        write_whole(Path(self._root, name), parts)

    def _write_remote(self, name: str, parts: list[Section]) -> None:
        path = f"{self._root}/{name}"
        there = self._fs.get_file_info(path)
        if there.type == fs.FileType.NotFound or there.size != sum(map(len, parts)):
            renamed = shows_halves(self._fs)
            beside = f"{path}.{uuid4().hex}.tmp" if renamed else path
            if renamed:
                self._fs.create_dir(path.rpartition("/")[0], recursive=True)
            with self._fs.open_output_stream(beside) as out:
                for part in parts:
                    out.write(part)
            if renamed:
                self._fs.move(beside, path)
        with suppress(OSError):  # this host is likely to read it next; if there is no room, it is fetched again
            write_whole(self._cached(name), parts, forced=False)

    def _cached(self, name: str) -> Path:
        return self._cache / f"{zlib.crc32(self._root.encode()):08x}" / name

    def evict(self, prefix: str, live: set[str]) -> None:
        """Deletes local copies of remote files under a prefix that are not needed any more."""
        folder = self._cached(prefix)
        for path in folder.glob("*.run") if not self._local else ():
            if f"{prefix.rstrip('/')}/{path.name}" not in live:
                with suppress(OSError):
                    path.unlink()

    def read(self, file: StoredFile) -> memoryview:
        """The content of a file, mapped."""
        self._inside(file.name)
        try:
            path = Path(self._root, file.name) if self._local else self._fetched(file)
            with map_file(str(path)) as mapped:
                content = memoryview(mapped.read_buffer())
        except FileNotFoundError:
            raise StateError(f"the run file {file.name} is missing from {self._root}", hint=_HINT) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StateError(f"the run file {file.name} cannot be read: {reason}", hint=_HINT) from None
        # Also if this process has written it: what is mapped is walked without further looks at its bounds.
        if len(content) != file.length or zlib.crc32(content) != file.crc:
            if not self._local:  # what is fetched next may be whole again
                with suppress(OSError):
                    path.unlink()
            raise StateError(f"the run file {file.name} in {self._root} is torn or was changed", hint=_HINT)
        return content

    def _fetched(self, file: StoredFile) -> Path:
        """The local copy of a remote file, made if it is not there."""
        copy = self._cached(file.name)
        if not (copy.exists() and copy.stat().st_size == file.length):
            copy.parent.mkdir(parents=True, exist_ok=True)
            beside = copy.with_name(f".{copy.name}.{uuid4().hex}.tmp")
            with self._fs.open_input_stream(f"{self._root}/{file.name}") as source, beside.open("wb") as out:
                while block := source.read(8 << 20):
                    out.write(block)
            beside.replace(copy)
        return copy

    def delete(self, names: Iterable[str]) -> list[str]:
        """Deletes files, as far as it can be done now: what could not be deleted may be tried again. Which are gone."""
        gone = []
        for name in names:
            self._inside(name)
            try:
                self._fs.delete_file(f"{self._root}/{name}")
            except FileNotFoundError:
                pass
            except OSError:
                continue
            gone.append(name)
            if not self._local:
                with suppress(OSError):
                    self._cached(name).unlink()
        return gone

    def _inside(self, name: str) -> str:
        """The name, if it is that of a file in this folder."""
        parts = name.split("/")
        plain = all(_PART.fullmatch(part) and part.strip(".") for part in parts)
        if not plain or (self._local and self._linked_away(name)):
            raise StateError(
                f"the state names the file {name[:200]!r}, which is not one of the run store {self._root}",
                hint="somebody or something changed the state: restore the checkpoint, or build it again",
            )
        return name

    def _linked_away(self, name: str) -> bool:
        """Whether a link among the folders of a name leads outside. The file itself is replaced or unlinked as such."""
        folder, root = (os.path.realpath(path) for path in (os.path.dirname(f"{self._root}/{name}"), self._root))
        return folder != root and not folder.startswith(root.rstrip("/") + "/")

    def listed(self) -> Iterator[tuple[str, int, float]]:
        """Name, length and time of change (seconds since 1970) of every file in the folder; not behind links."""
        selector = fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        for info in self._fs.get_file_info(selector):
            if info.type == fs.FileType.File:
                changed = info.mtime.timestamp() if info.mtime else 0.0
                name = info.path[len(self._root) :].lstrip("/")
                if not (self._local and self._linked_away(name)):
                    yield name, info.size, changed


def _make_private(folder: Path) -> None:
    """A folder in a place that all users share, for nobody but us: the copies in it hold rows."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StateError(
            f"the folder for local copies {folder} can be read or written by others",
            hint="remove it, or name another by `state.cache`",
        )


def write_whole(target: Path, parts: Iterable[Section], *, forced: bool = True) -> None:
    """A local file, whole or not at all, also after the machine lost its power if `forced`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        with beside.open("wb") as out:
            out.writelines(parts)
            if forced:
                out.flush()
                os.fsync(out.fileno())
        beside.replace(target)
        if forced:
            force(target.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def force(folder: Path) -> None:
    """Forces a file or a folder to the disk. A name is in its folder for good only when the folder is there too."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders, and needs none of this
        return
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that have no such thing, as many FUSE ones
            raise
    finally:
        os.close(file)


def shows_halves(system: Any) -> bool:
    """Whether others see a file while it is being written, as on HDFS; object stores show it when it is whole."""
    return bool(system.type_name == "hdfs")


def opened(options: StoreOptions) -> tuple[bool, Any, str]:
    """Whether the folder is local, its file system, and its path there."""
    parts = urlsplit(options.uri)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    if scheme in ("", "file"):
        root = os.path.abspath(parts.path if scheme else options.uri)
        return True, fs.LocalFileSystem(), root
    made = {"s3": fs.S3FileSystem, "gs": fs.GcsFileSystem}.get(scheme)
    try:
        if made is not None and options.filesystem:
            return False, made(**options.filesystem), f"{parts.netloc}{parts.path}".rstrip("/")
        opened, path = fs.FileSystem.from_uri(f"{scheme}{options.uri[len(parts.scheme) :]}")
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise StateError(
            f"{scheme}://{parts.hostname} cannot be opened for run files: {type(error).__name__}",
            hint="check `state.checkpoint` and the options under `state.filesystem`",
        ) from None
    return False, opened, path.rstrip("/")
