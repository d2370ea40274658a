"""A real Alertmanager for the tests: the installed one, else Debian's package, unpacked and not installed.

`ALERTMANAGER` may name the program. What is fetched is kept under `~/.cache/weever/servers`, beside the other servers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.stream.servers.processes import Server, free_port, running, until

_PACKAGE = "prometheus-alertmanager"
_TEMPLATES = "/usr/share/prometheus/alertmanager"


class Alertmanager(Server):
    """A context manager; inside it `url` says where it is. It tells one receiver at once, also when it is over."""

    def __init__(self, receiver: str) -> None:
        super().__init__()
        self._receiver = receiver
        self.url = ""

    def _start(self) -> None:
        program = _command()
        folder = Path(tempfile.mkdtemp(prefix="weever-alertmanager-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        config = folder / "alertmanager.json"  # which is YAML too
        config.write_text(json.dumps(self._config()))
        self.url = f"http://127.0.0.1:{free_port()}"
        address = self.url.removeprefix("http://")
        command = [
            *program,
            f"--config.file={config}",
            f"--storage.path={folder / 'data'}",
            "--cluster.listen-address=",
        ]
        log = folder / "log.txt"
        process = self._stack.enter_context(running([*command, f"--web.listen-address={address}"], log, cwd=folder))
        until(self._ready, process, log, 30)

    def alerts(self) -> list[dict[str, Any]]:
        """What it holds for open."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5) as answer:
            found = json.load(answer)
        assert isinstance(found, list)
        return found

    def _config(self) -> dict[str, Any]:
        route = {"receiver": "us", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
        hook = {"url": self._receiver, "send_resolved": True}
        return {
            "route": {**route, "repeat_interval": "1h"},
            "receivers": [{"name": "us", "webhook_configs": [hook]}],
        }

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _command() -> list[str]:
    named = os.environ.get("ALERTMANAGER")
    for name in filter(None, (named, "prometheus-alertmanager", "alertmanager")):
        if found := shutil.which(name):
            return [found]
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "weever", "servers", "alertmanager")
    program = folder / "usr" / "bin" / _PACKAGE
    if not program.exists():
        _fetch(folder)
    # Debian's program reads its templates from /usr/share. They are put there for its own eyes only.
    templates = folder / "usr" / "share" / "prometheus" / "alertmanager"
    script = f'mount -t tmpfs tmpfs /usr/share && mkdir -p {_TEMPLATES} && cp "$0"/*.tmpl {_TEMPLATES}/ && exec "$@"'
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(templates)]
    if Path(_TEMPLATES, "default.tmpl").exists():
        return [str(program)]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("Alertmanager is needed: it was fetched, but cannot run without being installed (no unshare here)")
    return [*alone, str(program)]


def _fetch(folder: Path) -> None:
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg")
    if apt is None or dpkg is None:
        pytest.skip("Alertmanager is needed: it is not installed, and there is no apt-get to fetch it with")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".alertmanager-") as scratch:
        fetched = subprocess.run(
            [apt, "download", _PACKAGE], cwd=scratch, capture_output=True, text=True, timeout=300, check=False
        )
        packages = list(Path(scratch).glob("*.deb"))
        if not packages:
            pytest.skip(f"Alertmanager is needed, and apt-get could not fetch it: {fetched.stderr.strip()[-300:]}")
        subprocess.run([dpkg, "-x", str(packages[0]), str(Path(scratch, "unpacked"))], check=True, timeout=300)
        try:
            os.rename(Path(scratch, "unpacked"), folder)
        except OSError:  # another process was faster
            assert folder.is_dir()
