"""The lease of a checkpoint: one driver at a time. A second one is refused at once, with the name of the holder.

On a local disk it is a lock (`flock`) on `weever/lease` in the checkpoint. The system releases it when the process
ends, however it ends, so a crash never blocks a restart. On an object store, HDFS, or a disk without locks it is a note
with the holder's name (`leasenote`), renewed every 10 seconds; one that was not renewed for a minute is stale, is
watched for one renewal more (clocks may differ), and taken over. Where the store has a conditional put, exactly one
process can take it, and a holder that was suspended cannot overwrite the note of its successor.

A holder that finds another's name, or could not renew for most of a minute, has lost it: `check` raises, and batches
call it before everything they write. The time is that of two clocks, because a machine may have been suspended in
between: the one that runs on while the machine sleeps, and the wall clock, which a paused virtual machine corrects when
it wakes up. A driver that died on the same machine is succeeded at once there too: a lock in the folder for temporary
files says that it is dead.

A process may take a lease that it holds already; it is released when the last taker does. Cost: one small file, and for
the remote kind one write every 10 seconds.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import stat
import threading
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from weever_stream.errors import OutputError, StateError
from weever_stream.state.leasenote import open_note
from weever_stream.state.store import opened

if TYPE_CHECKING:
    from types import TracebackType

    from weever_stream.state.leasenote import LeaseNote
    from weever_stream.state.store import StoreOptions

try:
    import fcntl
except ImportError:  # Windows: the note alone must do
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lease"]

LEASE = "lease"
RENEWED_EVERY, STALE_AFTER, SETTLES_IN = 10.0, 60.0, 1.0
"""Seconds: between renewals; without one until it is stale; until two that take it in one moment see who was last."""
OVERDUE = STALE_AFTER - RENEWED_EVERY
"""Seconds without a renewal until a holder no longer takes it for its own."""
_ONE = "one checkpoint serves one job: stop that one first, or give this one another `state.checkpoint`"
_SLEEPLESS = getattr(time, "CLOCK_BOOTTIME", None)
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


def _clocks() -> tuple[float, float]:
    """Seconds by a clock that runs on while the machine sleeps, where there is one, and by the wall clock."""
    return time.monotonic() if _SLEEPLESS is None else time.clock_gettime(_SLEEPLESS), time.time()


@dataclass
class _Held:
    """A lease that this process holds."""

    file: int | None = None
    """The locked file."""
    token: str = ""
    takers: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    """Ends the renewals."""
    renewing: threading.Thread | None = None
    note: LeaseNote | None = None
    renewed: tuple[float, float] = field(default_factory=_clocks)
    """When the last renewal that succeeded was begun, by this machine's own clocks."""
    lost: str | None = None
    """Why it is held no more."""
    with_it: list[Any] = field(default_factory=list)
    """What else is let go of together with it, by calling its `release`."""


_HELD: dict[str, _Held] = {}
_GUARD = threading.RLock()


class Lease:
    """The right to change a checkpoint. `options`: where its notes are; `what`: who asks, for others to read."""

    def __init__(self, options: StoreOptions, what: str = "weever run") -> None:
        self._options, self._what = options, what
        self._local, _, self._root = opened(options)
        self._taken: _Held | None = None

    def beside(self, suffix: str) -> Path:
        """A local file that belongs to this lease, for a further lock."""
        return Path(self._root, f"{LEASE}{suffix}") if self._local else self._here(suffix)

    def _here(self, suffix: str) -> Path:
        """A file on this machine, whatever the checkpoint is on. Nobody else may have put a link there."""
        folder = Path(gettempdir(), f"weever-leases-{_user()}")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != _user() or found.st_mode & 0o022:
            raise StateError(f"the folder {folder} can be written by others", hint="remove it, or set TMPDIR")
        return folder / f"{zlib.crc32(self._root.encode()):08x}{suffix}"

    @property
    def with_it(self) -> list[Any]:
        """What is let go of together with it, by calling `release` of each."""
        return self._taken.with_it if self._taken is not None else []

    def take(self) -> Lease:
        """Takes it, or raises `StateError` with the name of its holder. Returns itself."""
        with _GUARD:
            if self._taken is None:
                held = _HELD.get(self._root)
                if held is None or held.lost is not None:
                    held = _HELD[self._root] = self._locked() if self._local else self._noted()
                held.takers += 1
                self._taken = held
        return self

    @property
    def lost(self) -> str | None:
        """Why it is held no more, if it was lost to another."""
        return self._taken.lost if self._taken is not None else None

    def check(self) -> None:
        """Raises `StateError` if it was lost to another, or if that cannot be known: a renewal may hang."""
        held = self._taken
        if held is not None and held.lost is None and held.renewing is not None and _overdue(held):
            held.lost = _NOT_RENEWED
        if self.lost is not None:
            raise StateError(f"the lease of the checkpoint of {self._root} is lost: {self.lost}", hint=_ONE)

    @property
    def ours(self) -> bool:
        """Whether it is held, as far as can be known."""
        try:
            self.check()
        except StateError:
            return False
        return self._taken is not None

    def release(self) -> None:
        """Lets go of it. Does nothing if it is not held."""
        with _GUARD:
            held, self._taken = self._taken, None
            if held is None:
                return
            held.takers -= 1
            if held.takers:
                return
            if _HELD.get(self._root) is held:
                del _HELD[self._root]
            held.ended.set()
            if held.renewing is not None:
                held.renewing.join(RENEWED_EVERY)
            for other in held.with_it:
                other.release()
            if held.note is not None and held.lost is None:
                with suppress(OutputError):  # it becomes stale by itself
                    held.note.replace({**self._holder(held.token), "renewed": 0})
            if held.file is not None:
                os.close(held.file)

    def __enter__(self) -> Lease:
        return self.take()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _holder(self, token: str = "") -> dict[str, Any]:
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        told = {"what": self._what, "host": socket.gethostname(), "pid": os.getpid(), "since": since}
        return {**told, "token": token} if token else told

    # On a local disk

    def _locked(self) -> _Held:
        file = _lock(Path(self._root, LEASE))
        if file == _UNSUPPORTED:
            return self._noted()
        if file is None:
            raise _refusal(self._root, _read(Path(self._root, LEASE)))
        _overwrite(file, json.dumps(self._holder()).encode())
        return _Held(file)

    # Elsewhere

    def _noted(self) -> _Held:
        """By a note. A lock on this machine says whether a holder of this machine is alive."""
        here = self._here(".lock")
        file = _lock(here)
        if file is None:
            raise _refusal(self._root, _read(here))
        before = _read(here) if file != _UNSUPPORTED else {}
        held = _Held(None if file == _UNSUPPORTED else file, uuid4().hex)
        try:
            held.note = open_note(self._options)
            held.renewed = _clocks()
            self._take_note(held.note, held.token, before.get("token"))
            if held.file is not None:
                _overwrite(held.file, json.dumps(self._holder(held.token)).encode())
        except BaseException:
            if held.file is not None:
                os.close(held.file)
            raise
        held.renewing = threading.Thread(target=self._renew, args=(held, held.note), name="weever lease", daemon=True)
        held.renewing.start()
        return held

    def _take_note(self, note: LeaseNote, token: str, dead: str | None) -> None:
        """Writes our name where there is none, or that of the dead, or one that is stale."""
        there = note.read()
        if there is not None and there.get("token") != dead:
            age = time.time() - float(there.get("renewed", 0))
            if -RENEWED_EVERY <= age < STALE_AFTER:  # one from the future has a clock that differs: it is watched
                raise _refusal(self._root, there)
            if there.get("renewed", 0):  # not given back: is it stale, or do our clocks differ?
                time.sleep(RENEWED_EVERY * 1.2)
                if note.read() != there:
                    raise _refusal(self._root, there)
        if not note.replace(self._signed(token)):
            raise _refusal(self._root, note.read() or {})
        if not note.conditional:
            time.sleep(SETTLES_IN)
            there = note.read() or {}
            if there.get("token") != token:
                raise _refusal(self._root, there)

    def _signed(self, token: str) -> dict[str, Any]:
        return {**self._holder(token), "renewed": time.time()}

    def _renew(self, held: _Held, note: LeaseNote) -> None:
        while not held.ended.wait(RENEWED_EVERY):
            try:
                self._renew_once(held, note)
            except Exception:
                if _overdue(held):
                    held.lost = _NOT_RENEWED
            if held.lost is not None:
                return

    def _renew_once(self, held: _Held, note: LeaseNote) -> None:
        began = _clocks()
        replaced = note.conditional and note.replace(self._signed(held.token))
        if not replaced:
            there = note.read() or {}
            if there.get("token") != held.token:
                held.lost = f"it is held by {_name(there)}"
                return
            # A write of ours whose answer was lost, or a store without conditions.
            if held.ended.is_set() or not note.replace(self._signed(held.token)):
                return
            if not note.conditional and _overdue(held):  # it took so long that another may have taken it meanwhile
                held.lost = _NOT_RENEWED
                return
        held.renewed = began


_UNSUPPORTED = -1
_NOT_RENEWED = "it could not be renewed in time"


def _overdue(held: _Held) -> bool:
    """Whether it was not renewed for so long that others may soon take it for stale."""
    return max(now - then for now, then in zip(_clocks(), held.renewed, strict=True)) > OVERDUE


def _lock(path: Path) -> int | None:
    """The file, locked; None if another process has it; `_UNSUPPORTED` where nothing can be locked."""
    if fcntl is None:
        return _UNSUPPORTED
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            # Children do not inherit it: a file that Python opens is closed when another program is started.
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(file, path):
                    return file
                os.close(file)  # somebody deleted the folder in between: this is a lock on nothing
            except BaseException:
                os.close(file)
                raise
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return _UNSUPPORTED
        reason = error.strerror or type(error).__name__
        raise OutputError(f"{path} could not be written: {reason}", hint="check its folder and rights") from None


def _is_at(file: int, path: Path) -> bool:
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), there)


def _overwrite(file: int, content: bytes) -> None:
    """In place, because the lock is on the file and not on its name. Who reads it torn sees no name, no more."""
    with suppress(OSError):  # a full disk must not keep the job from telling so itself
        os.ftruncate(file, 0)
        os.pwrite(file, content, 0)


def _read(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _name(holder: dict[str, Any]) -> str:
    told = f"{holder.get('what', 'another process')} on {holder.get('host', 'an unknown host')}"
    return f"{told}, process {holder.get('pid', '?')}, since {holder.get('since', '?')}"


def _refusal(root: str, holder: dict[str, Any]) -> StateError:
    told = {"weever": {"holder": _name(holder)}, "weever_told": True}  # see `observe.logs`
    logging.getLogger("weever_stream.state").error("lease_refused", extra=told)
    return StateError(f"the checkpoint of {root} is in use by {_name(holder)}", hint=_ONE)


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0
