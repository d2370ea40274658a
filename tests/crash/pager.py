"""Someone to be paged: a server of the harness that outlives all drivers, and knows which alerts it was told are open.

What it was told must be a proper story: an alert that is opened twice was opened by two drivers, of which the first died
before it could note it. At the end the alerts that are open are the rules that are violated.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.crash.world import World
from tests.crash.wrong import Wrong
from weever_stream.job.job import read_job

__all__ = ["Pager"]


class Pager:
    """A context manager; `url` is where it listens."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.open: set[str] = set()
        self.repeated = 0
        self.heard: Callable[[], None] | None = None
        """Called when a notice has come, before it is answered."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/alerts"

    def __enter__(self) -> Pager:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def options(self) -> dict[str, Any]:
        """As a target of a job file."""
        often = {"quiet": "0 seconds", "update_every": "0 seconds", "min_severity": "info"}
        return {"kind": "webhook", "url": self.url, "allow_hosts": ["127.0.0.1"], **often}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pager = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                pager.hear(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if (heard := pager.heard) is not None:
                    pager.heard = None
                    heard()
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def hear(self, notice: dict[str, Any]) -> None:
        """Takes one notice in."""
        key, what = notice["dedup_key"], notice["event"]
        self.told.append(notice)
        if what == "open" and key in self.open:
            self.repeated += 1
        if what == "resolve":
            self.repeated += key not in self.open
            self.open.discard(key)
        else:
            self.open.add(key)

    def check(self, world: World, kills: int) -> None:
        """Raises `Wrong` where what is open here is not what is violated at the end of the feed."""
        counts = Counter(rule for rule, _, _ in world.truth(world.last))
        job = read_job(world.job, {}).name
        keys = {rule: f"weever/{job}/rows/{rule}" for rule in counts}
        wanted = set(keys.values())
        if self.open != wanted:
            kind = "lost" if wanted - self.open else "wrong"
            raise Wrong(kind, f"alerts that are open: {sorted(self.open)}, should be: {sorted(wanted)}")
        newest = {notice["dedup_key"]: notice["open"] for notice in self.told}
        for rule, n in counts.items():
            if newest[keys[rule]] != n:
                raise Wrong("wrong", f"the alert of {rule} says {newest[keys[rule]]}, there are {n}")
        if self.repeated > kills:
            raise Wrong("duplicated", f"{self.repeated} notices came twice after {kills} kills")
