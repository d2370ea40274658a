"""One driver at a time: a second is refused with the name of the first, and a dead one is in nobody's way.

Catches: two processes that both believe to hold a checkpoint; a crash that blocks the next start; a lock that a child
process keeps alive; a holder that goes on although another has taken over; a refusal that does not say by whom.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from weever_stream.errors import StateError
from weever_stream.state import lease as module
from weever_stream.state import leasenote as leasenote_module
from weever_stream.state import notes as notes_module
from weever_stream.state import store as store_module
from weever_stream.state.lease import Lease
from weever_stream.state.notes import Notes
from weever_stream.state.store import StoreOptions

HOLDER = """
import sys, subprocess, time
from weever_stream.state.lease import Lease
from weever_stream.state.store import StoreOptions
Lease(StoreOptions(sys.argv[1]), what="weever backfill").take()
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
time.sleep(60)
"""


def holder(folder: Path) -> tuple[subprocess.Popen[str], int]:
    """A process that holds the lease, and a child of it that knows nothing of that."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as out:
        return process, int(out.readline())


def test_a_second_process_is_refused_by_name_until_the_first_is_dead(tmp_path: Path):
    process, child = holder(tmp_path)
    try:
        with pytest.raises(StateError) as refused:
            Lease(StoreOptions(str(tmp_path))).take()
        told = refused.value.message
        assert f"in use by weever backfill on {socket.gethostname()}, process {process.pid}, since 20" in told
        assert "stop that one first" in (refused.value.hint or "")
        process.kill()
        process.wait()
        os.kill(child, 0)  # is alive, and does not keep the lock
        with Lease(StoreOptions(str(tmp_path))) as lease:
            lease.check()
    finally:
        process.kill()
        process.wait()
        os.kill(child, 9)


def test_a_process_takes_what_it_holds_again_and_lets_go_with_the_last(tmp_path: Path):
    options = StoreOptions(str(tmp_path))
    first, second = Lease(options).take(), Lease(options)
    with second:
        first.release()
        assert _free(tmp_path) is False
        first.release()  # once more changes nothing
        assert _free(tmp_path) is False
    assert _free(tmp_path) is True
    with first:
        assert _free(tmp_path) is False
    assert _free(tmp_path) is True


def _free(folder: Path) -> bool:
    code = (
        "import sys; from weever_stream.errors import StateError; from weever_stream.state.lease import Lease;"
        "from weever_stream.state.store import StoreOptions\n"
        "try: Lease(StoreOptions(sys.argv[1])).take()\nexcept StateError: sys.exit(9)"
    )
    return subprocess.run([sys.executable, "-c", code, str(folder)]).returncode == 0


def test_a_checkpoint_that_is_deleted_under_a_lock_is_locked_anew(tmp_path: Path):
    folder = tmp_path / "weever"
    process, child = holder(folder)
    try:
        (folder / "lease").unlink()
        with Lease(StoreOptions(str(folder))):
            assert json.loads((folder / "lease").read_bytes())["pid"] == os.getpid()
    finally:
        process.kill()
        process.wait()
        os.kill(child, 9)


# By a note: a real file system, but one that is not taken for a local disk.


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreOptions:
    """A store on what behaves as a remote file system, with leases that live quickly."""

    def opened(options: StoreOptions) -> tuple[bool, Any, str]:
        return False, fs.LocalFileSystem(), options.uri

    (tmp_path / "store").mkdir()
    for one in (module, notes_module, leasenote_module):
        monkeypatch.setattr(one, "opened", opened)
    monkeypatch.setattr(module, "gettempdir", lambda: str(tmp_path / "host"))
    monkeypatch.setattr(module, "RENEWED_EVERY", 0.05)
    monkeypatch.setattr(module, "SETTLES_IN", 0.01)
    return StoreOptions(str(tmp_path / "store"))


def other(monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
    """From here on we are another process, on another host."""
    monkeypatch.setattr(module, "_HELD", {})
    monkeypatch.setattr(module, "gettempdir", lambda: str(host))


def test_a_note_is_renewed_and_refuses_others(elsewhere: StoreOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Lease(elsewhere) as lease:
        first = Notes(elsewhere).read("lease.json") or {}
        _until(lambda: (Notes(elsewhere).read("lease.json") or {}).get("renewed") != first["renewed"])
        with monkeypatch.context() as elsewhere_too:
            other(elsewhere_too, tmp_path / "host2")
            with pytest.raises(StateError, match=rf"in use by weever run on .*, process {os.getpid()}, since 20"):
                Lease(elsewhere).take()
        lease.check()
    other(monkeypatch, tmp_path / "host2")
    with Lease(elsewhere):  # it was given back: nobody waits
        pass


def test_a_stale_note_is_taken_over_and_its_holder_stops(
    elsewhere: StoreOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lease = Lease(elsewhere).take()
    monkeypatch.setattr(module, "STALE_AFTER", -1.0)  # the other's clock is far ahead
    with monkeypatch.context() as elsewhere_too:
        other(elsewhere_too, tmp_path / "host2")
        with pytest.raises(StateError, match="in use by"):  # but it sees that the note is renewed
            Lease(elsewhere).take()
    lease.check()
    Notes(elsewhere).write("lease.json", {"token": "x", "what": "weever run", "host": "h", "pid": 7, "since": "now"})
    _until(lambda: lease.lost is not None)
    with pytest.raises(StateError, match="it is held by weever run on h, process 7, since now"):
        lease.check()
    lease.release()
    assert (Notes(elsewhere).read("lease.json") or {})["token"] == "x", "what is another's stays"


def test_a_dead_holder_of_this_machine_is_succeeded_at_once(
    elsewhere: StoreOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lease = Lease(elsewhere).take()
    held = module._HELD[elsewhere.uri]
    held.ended.set()
    assert held.renewing is not None
    held.renewing.join()
    assert held.file is not None
    os.close(held.file)  # what its death would do
    with monkeypatch.context() as later:
        other(later, tmp_path / "host2")
        with pytest.raises(StateError, match="in use by"):  # another machine cannot know
            Lease(elsewhere).take()
    monkeypatch.setattr(module, "_HELD", {})
    with Lease(elsewhere):
        pass
    held.file = None
    assert lease.lost is None


def test_a_lease_that_cannot_be_renewed_is_lost(elsewhere: StoreOptions, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "OVERDUE", 0.2)
    with Lease(elsewhere) as lease:
        note = Path(elsewhere.uri, "lease.json")
        note.unlink()
        note.mkdir()
        _until(lambda: lease.lost is not None)
        with pytest.raises(StateError, match="could not be renewed"):
            lease.check()


def test_a_renewal_that_hangs_ends_the_lease_for_who_asks(elsewhere: StoreOptions, monkeypatch: pytest.MonkeyPatch):
    hangs = threading.Event()
    with Lease(elsewhere) as lease:
        lease.check()
        monkeypatch.setattr(Notes, "read", lambda self, name: hangs.wait(30))
        monkeypatch.setattr(module, "OVERDUE", 0.2)
        time.sleep(0.4)
        with pytest.raises(StateError, match="could not be renewed"):
            lease.check()
        hangs.set()


@pytest.mark.parametrize("clock", [0, 1])
def test_a_machine_that_was_suspended_has_lost_its_lease(
    elsewhere: StoreOptions, monkeypatch: pytest.MonkeyPatch, clock: int
):
    """The clocks of a machine that slept, and of a paused virtual machine, jump; nothing else has happened."""
    monkeypatch.setattr(module, "RENEWED_EVERY", 30.0)
    with Lease(elsewhere) as lease:
        lease.check()
        then = module._clocks
        jump = [61.0 if number == clock else 0.0 for number in range(2)]
        monkeypatch.setattr(module, "_clocks", lambda: tuple(a + b for a, b in zip(then(), jump, strict=True)))
        with pytest.raises(StateError, match="could not be renewed in time"):
            lease.check()
        assert not lease.ours
        monkeypatch.setattr(module, "RENEWED_EVERY", 0.05)


def test_a_renewal_counts_from_when_it_was_begun(elsewhere: StoreOptions, monkeypatch: pytest.MonkeyPatch):
    """Others count from the time in the note, which is that of the beginning."""
    with Lease(elsewhere):
        held = module._HELD[elsewhere.uri]
        before, write = held.renewed, Notes.write
        seen: list[tuple[float, float]] = []

        def slow(self: Notes, name: str, noted: dict[str, Any], **more: Any) -> None:
            seen.append(module._clocks())
            write(self, name, noted, **more)

        monkeypatch.setattr(Notes, "write", slow)
        _until(lambda: held.renewed != before)
        assert held.renewed[0] <= seen[-1][0]


def _until(done: Any) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_on_a_file_system_that_shows_halves_a_note_is_never_seen_torn(
    elsewhere: StoreOptions, monkeypatch: pytest.MonkeyPatch
):
    for one in (notes_module, store_module):
        monkeypatch.setattr(one, "shows_halves", lambda system: True)
    notes, path = Notes(elsewhere), Path(elsewhere.uri, "note.json")
    notes.write("note.json", {"n": 1})
    # A crash while the next is written: the old one counts.
    path.with_name("note.json.new").write_text('{"n"')
    assert notes.read("note.json") == {"n": 1}
    # A crash when the old one is gone and the new one has not its name yet.
    path.with_name("note.json.new").write_text('{"n": 2}')
    path.unlink()
    assert notes.read("note.json") == {"n": 2}
    notes.write("note.json", {"n": 3})
    assert notes.read("note.json") == {"n": 3}
    assert [file.name for file in path.parent.iterdir()] == ["note.json"]
