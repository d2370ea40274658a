"""The journal of something that lives in memory and changes by batches: a dump now and then, and the changes since.

A batch writes its changes as one small file, so what a batch costs follows what it changes. When the changes since the
last dump have grown to a quarter of it, the whole is dumped again. To come back to the state before a batch, the last
dump before it is loaded and the changes between are applied again; whoever does the batch then applies it once, whether
it was done before or not. Files are whole or absent, and checked when they are read: a dump that is torn is passed over
where an older one still leads there, changes that are torn are those of the batch that is to be done anyway. What is
needed to come back to the state before the last batch is kept, all older files are deleted.

Names: `dump-<batch>` and `changes-<batch>`. Cost of coming back: a dump is read and at most a quarter of it applied.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from pyarrow import fs

from weever_stream.detect.sections import Format, ipc, pieces, read_ipc, unpacked
from weever_stream.errors import OutputError, StateError
from weever_stream.state.store import force, opened, shows_halves, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from weever_stream.detect.sections import Section
    from weever_stream.state.store import StoreOptions

__all__ = ["Journal"]

_T = TypeVar("_T")
_NAME = re.compile(r"(dump|changes)-(\d{1,19})")
_FORMAT = Format(
    b"WEEVERCH", 1, "a file of changes", "delete the folder of the journal: what was known is then found again"
)
SHARE = 4
"""The changes since a dump may take a quarter of its size."""
SMALL = 1 << 20
"""Bytes of changes that are no reason for a dump."""


@dataclass
class Journal:
    """The files of one journal. One process writes."""

    options: StoreOptions
    _dumps: dict[int, int] = field(default_factory=dict, init=False)
    """By batch, their sizes."""
    _changes: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._local, self._fs, self._root = opened(self.options)
        for kind, batch, size in self._listed():
            (self._dumps if kind == "dump" else self._changes)[batch] = size

    def restore(self, batch: int, load: Callable[[Path], _T], apply: Callable[[_T, pa.Table], object]) -> _T | None:
        """What was there before a batch; None if nothing was. Raises `StateError` where that cannot be known."""
        torn: StateError | None = None
        for dump in sorted((one for one in self._dumps if one < batch), reverse=True):
            try:
                held = self._loaded(f"dump-{dump}", load)
                for between in range(dump + 1, batch):
                    apply(held, self.changes(between))
                return held
            except StateError as error:
                torn = torn or error
        if torn is not None:
            raise torn
        if not any(one < batch for one in (*self._dumps, *self._changes)):
            return None
        raise StateError(
            f"no dump in {self._root} leads to batch {batch}",
            hint="the files there and the checkpoint are not of one time: restore both from a copy, or begin anew",
        )

    def changes(self, batch: int) -> pa.Table:
        """The changes of a batch as they were noted. Raises `StateError` where they are missing or torn."""
        name = f"changes-{batch}"
        try:
            with self._fs.open_input_stream(f"{self._root}/{name}") as file:
                content = file.read()
        except FileNotFoundError:
            raise StateError(f"{self._root}/{name} is missing", hint=_FORMAT.hint) from None
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StateError(f"{self._root}/{name} cannot be read: {reason}", hint=_FORMAT.hint) from None
        contents, (section,) = unpacked(_FORMAT, f"{self._root}/{name}", content)
        if contents.get("batch") != batch:
            raise StateError(f"{self._root}/{name} is of another batch", hint=_FORMAT.hint)
        return read_ipc(section)

    def note(self, batch: int, changes: pa.Table) -> None:
        """Notes the changes of a batch, in the place of what may be there of it."""
        parts = list(pieces(_FORMAT, {"batch": batch}, [("changes", ipc(changes))]))
        with _writing(f"{self._root}/changes-{batch}"):
            self._write(f"changes-{batch}", parts)
        self._changes[batch] = sum(map(len, parts))

    def due(self, batch: int) -> bool:
        """Whether so much has changed since the last dump up to a batch that it is time for another."""
        last = max((one for one in self._dumps if one <= batch), default=None)
        if last is None:
            return True
        since = sum(size for one, size in self._changes.items() if last < one <= batch)
        return since > max(SMALL, self._dumps[last] // SHARE)

    def dump(self, batch: int, write: Callable[[Path], object]) -> None:
        """Keeps the whole as it is after a batch. `write` writes it to a local file."""
        name = f"dump-{batch}"
        with _writing(f"{self._root}/{name}"), self._beside() as folder:
            path = Path(folder, name)
            write(path)
            size = path.stat().st_size
            if self._local:
                force(path)
                path.replace(Path(self._root, name))
                force(Path(self._root))
            else:
                self._upload(path, name)
        self._dumps[batch] = size

    def tidy(self, batch: int) -> None:
        """Deletes what is not needed to come back to the state before a batch, which is the last that was done."""
        needed = max((one for one in self._dumps if one < batch), default=-1)
        for files, kind, old in ((self._dumps, "dump", needed - 1), (self._changes, "changes", needed)):
            for one in [one for one in files if one <= old]:
                with suppress(OSError):  # tried again after the next batch
                    self._fs.delete_file(f"{self._root}/{kind}-{one}")
                    del files[one]

    def forget(self, batch: int) -> None:
        """Deletes what is noted of a batch and of later ones: they are about to be done, by another plan perhaps."""
        for files, kind in ((self._dumps, "dump"), (self._changes, "changes")):
            for one in [one for one in files if one >= batch]:
                with suppress(FileNotFoundError):
                    self._fs.delete_file(f"{self._root}/{kind}-{one}")
                del files[one]

    def _listed(self) -> Iterator[tuple[str, int, int]]:
        for info in self._fs.get_file_info(fs.FileSelector(self._root, allow_not_found=True)):
            if info.type == fs.FileType.File and (found := _NAME.fullmatch(info.base_name)):
                yield found[1], int(found[2]), info.size

    def _loaded(self, name: str, load: Callable[[Path], _T]) -> _T:
        if self._local:
            return load(Path(self._root, name))
        with TemporaryDirectory(prefix="weever-dump-") as folder:
            path = Path(folder, name)
            with self._fs.open_input_stream(f"{self._root}/{name}") as source, path.open("wb") as out:
                while block := source.read(8 << 20):
                    out.write(block)
            return load(path)

    def _beside(self) -> TemporaryDirectory[str]:
        """A folder for a file that is being written: one that is left over by a crash is no file of the journal."""
        if self._local:
            Path(self._root).mkdir(parents=True, exist_ok=True)
        return TemporaryDirectory(prefix=".weever-dump-", dir=self._root if self._local else None)

    def _write(self, name: str, parts: list[Section]) -> None:
        if self._local:
            write_whole(Path(self._root, name), parts)
            return
        with TemporaryDirectory(prefix="weever-changes-") as folder:
            path = Path(folder, name)
            with path.open("wb") as out:
                out.writelines(parts)
            self._upload(path, name)

    def _upload(self, path: Path, name: str) -> None:
        target, halves = f"{self._root}/{name}", shows_halves(self._fs)
        if halves:
            self._fs.create_dir(self._root, recursive=True)
        with path.open("rb") as source, self._fs.open_output_stream(f"{target}.new" if halves else target) as out:
            while block := source.read(8 << 20):
                out.write(block)
        if halves:  # which renames to free names only
            with suppress(FileNotFoundError):
                self._fs.delete_file(target)
            self._fs.move(f"{target}.new", target)


@contextmanager
def _writing(path: str) -> Iterator[None]:
    """Tells what could not be written, and why."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{path} could not be written: {reason}", hint="check its space and rights") from None
