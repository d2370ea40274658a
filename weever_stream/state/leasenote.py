"""The note that names the holder of a lease, where there is no lock: on an object store, HDFS, or a disk without locks.

On S3, Google Cloud Storage and Azure it is replaced by a conditional put (`If-None-Match`, `If-Match`): a write
succeeds only if the note is still the one that was read, so of several processes exactly one gets it. That needs the
package `obstore`; Arrow's file systems cannot do it. Elsewhere, and without `obstore`, a write replaces whatever is
there, and who wrote last has to be found out by reading again.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from weever_stream.errors import OutputError, StateError
from weever_stream.state.notes import Notes
from weever_stream.state.store import opened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.state.store import StoreOptions

__all__ = ["NOTE", "LeaseNote", "open_note"]

NOTE = "lease.json"
_S3_NAMES = {
    "access_key": "access_key_id",
    "secret_key": "secret_access_key",
    "session_token": "session_token",
    "region": "region",
    "anonymous": "skip_signature",
}
"""Arguments of `pyarrow.fs.S3FileSystem` by their names in obstore."""
_NO_MATTER = {
    "background_writes",
    "allow_bucket_creation",
    "allow_bucket_deletion",
    "check_directory_existence_before_creation",
}
"""Arguments that a small note does not depend on."""
_REQUEST_SECONDS, _RETRY_SECONDS = 10, 20


class LeaseNote(Protocol):
    """A note of a few lines."""

    conditional: bool
    """Whether `replace` fails if somebody else has written since `read`."""

    def read(self) -> dict[str, Any] | None:
        """The note as it is now; None if there is none."""
        ...

    def replace(self, note: Mapping[str, Any]) -> bool:
        """Writes it in the place of the one that was last read or written here. Whether it is there now."""
        ...


def open_note(options: StoreOptions) -> LeaseNote:
    """The note in the folder of a checkpoint."""
    store = _object_store(options)
    if store is None:
        return _Plain(options)
    note = _Conditional(store)
    try:
        note.read()
    except StateError as error:  # credentials that only Arrow finds, in a profile for example
        _warn(f"obstore cannot use the checkpoint: {error.message}", "name credentials under `state.filesystem`")
        return _Plain(options)
    return note


class _Plain:
    """Replaces whatever is there."""

    conditional = False

    def __init__(self, options: StoreOptions) -> None:
        self._notes = Notes(options)

    def read(self) -> dict[str, Any] | None:
        return self._notes.read(NOTE)

    def replace(self, note: Mapping[str, Any]) -> bool:
        self._notes.write(NOTE, dict(note))
        return True


class _Conditional:
    """Replaces what was read, and nothing else."""

    conditional = True

    def __init__(self, store: Any) -> None:
        self._store = store
        self._version: Any = None
        """That of the note as it was last read or written here; None if there was none."""

    def read(self) -> dict[str, Any] | None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            found = obstore.get(self._store, NOTE)
            content = bytes(found.bytes())
        except FileNotFoundError:
            self._version = None
            return None
        except BaseError as error:
            raise StateError(f"{NOTE} of the checkpoint cannot be read: {type(error).__name__}", hint=_CHECK) from None
        self._version = _version(found.meta)
        try:
            note = json.loads(content)
        except ValueError:
            note = None
        return note if isinstance(note, dict) else {}

    def replace(self, note: Mapping[str, Any]) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        content = json.dumps(note, indent=1).encode()
        try:
            put = obstore.put(self._store, NOTE, content, mode=self._version or "create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            return False
        except BaseError as error:
            reason = type(error).__name__
            raise OutputError(f"{NOTE} of the checkpoint could not be written: {reason}", hint=_CHECK) from None
        self._version = _version(put)
        return True


def _version(found: Mapping[str, Any]) -> dict[str, str]:
    """What a store says to tell one version of an object from the next."""
    version = {name: found[name] for name in ("e_tag", "version") if found.get(name) is not None}
    if not version:
        raise StateError(f"the store tells no version of {NOTE}", hint=_CHECK)
    return version


_CHECK = "check `state.checkpoint`, its rights, and the options under `state.filesystem`"


def _object_store(options: StoreOptions) -> Any:
    """The object store of a folder; None where it is not one, or where it cannot be opened by obstore."""
    local, files, root = opened(options)
    kind = str(files.type_name)
    if local or kind not in ("s3", "gcs", "abfs"):
        return None
    try:
        if kind == "s3":
            return _s3(files, root, options.filesystem)
        if options.filesystem:
            raise NotImplementedError(", ".join(options.filesystem))
        from obstore.store import from_url

        return from_url(options.uri, **_client("https"))
    except ImportError:
        _warn("obstore is not installed", 'pip install "weever-stream[object-store]"')
    except Exception as error:  # an option that it does not know, or credentials that only Arrow finds
        _warn(
            f"obstore cannot open the checkpoint: {type(error).__name__}", "name credentials under `state.filesystem`"
        )
    return None


def _s3(files: Any, root: str, given: Mapping[str, Any]) -> Any:
    from obstore.store import S3Store

    unknown = given.keys() - _S3_NAMES.keys() - _NO_MATTER - {"endpoint_override", "scheme", "force_virtual_addressing"}
    if unknown:
        raise NotImplementedError(", ".join(sorted(unknown)))
    bucket, _, prefix = root.partition("/")
    settings = {_S3_NAMES[name]: value for name, value in given.items() if name in _S3_NAMES and value is not None}
    settings.setdefault("region", files.region)
    scheme = str(given.get("scheme") or "https")
    if endpoint := given.get("endpoint_override"):
        settings["endpoint"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        settings["virtual_hosted_style_request"] = bool(given.get("force_virtual_addressing"))
        scheme = urlsplit(settings["endpoint"]).scheme
    return S3Store(bucket, prefix=prefix or None, **_client(scheme), **settings)


def _client(scheme: str) -> dict[str, Any]:
    """How long to try: a renewal must not hang for longer than it takes others to see that it is late."""
    return {
        "client_options": {"allow_http": scheme == "http", "timeout": f"{_REQUEST_SECONDS}s"},
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)},
    }


def _warn(problem: str, remedy: str) -> None:
    said = f"two jobs may hold the checkpoint for some seconds if they start at the same moment: {problem}; {remedy}"
    logging.getLogger("weever_stream.state").warning("lease_is_weak", extra={"weever": {"message": said}})
