"""What an install brings: declared with a lower bound, used, and looked up among known vulnerabilities.

Catches: a dependency that nobody uses any more, or whose oldest release is let in; an audit that calls itself clean
because nobody answered, or that lets a vulnerable release pass. The service is a small server here, over real HTTP.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTED_AS = {"delta-spark": "delta", "prometheus-client": "prometheus_client", "pyyaml": "yaml"}
JARS_ONLY = {"delta-spark"}
"""Asked for its version, which says which jars fit: it is found by its metadata and not imported."""


def dependencies() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text()
    asked = []
    for part in ("dependencies", "object-store"):  # what every install brings, and the extra that the package uses
        found = re.search(rf"^{part} = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
        assert found is not None
        asked += re.findall(r'"([^"]+)"', found[1])
    return asked


def imported() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "weever_stream").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names


def test_every_dependency_has_a_lower_bound_and_is_used():
    asked, used = dependencies(), imported()
    assert len(asked) > 10
    for requirement in asked:
        name = re.split(r"[<>=!~]", requirement, maxsplit=1)[0]
        assert re.search(r">=\d", requirement), f"{name} has no lower bound"
        if name not in JARS_ONLY:
            assert IMPORTED_AS.get(name, name) in used, f"{name} is imported nowhere"
        else:
            assert f'version("{name}")' in (ROOT / "weever_stream/stream/jars.py").read_text()


def test_nothing_is_imported_that_is_not_asked_for():
    brought = {"py4j"}  # by pyspark, of the version that fits it
    asked = {IMPORTED_AS.get(name, name) for name in (re.split(r"[<>=!~]", one)[0] for one in dependencies())}
    assert imported() - asked - brought - set(sys.stdlib_module_names) - {"weever_stream"} == set()


class Service(BaseHTTPRequestHandler):
    """The JSON API of an index: which releases it says are vulnerable, and which it knows nothing of."""

    vulnerable: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    def do_GET(self) -> None:
        _, kind, name, *_ = self.path.split("/")
        if kind != "pypi" or name in self.silent:
            self.send_error(404)
            return
        found = [{"id": f"PYSEC-{name}", "aliases": ["CVE-1"], "fixed_in": ["99"], "withdrawn": None}]
        body = json.dumps({"info": {}, "vulnerabilities": found if name in self.vulnerable else []}).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def service(*, vulnerable: tuple[str, ...], silent: tuple[str, ...] = ()) -> Iterator[str]:
    handler = type("Answers", (Service,), {"vulnerable": vulnerable, "silent": silent})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()
            thread.join()


def audit(index: str, **more: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PIP_INDEX_URL": index, "no_proxy": "127.0.0.1", **more}
    return subprocess.run(
        [sys.executable, ".ci/audit.py"], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=120
    )


@pytest.mark.skipif(not (ROOT / ".ci").is_dir(), reason="the audit is part of the repository, not of a release")
def test_the_audit_fails_on_what_is_known_and_says_where_it_knows_nothing():
    with service(vulnerable=("requests",)) as index:
        done = audit(index)
        assert done.returncode == 0, done.stderr
        assert re.search(r"audit: (\d+) of \1 packages asked about, 0 known vulnerabilities", done.stdout)
    with service(vulnerable=("requests", "pydantic-core", "pyyaml"), silent=("numpy",)) as index:
        done = audit(index, AUDIT_IGNORE="PYSEC-pyyaml")
        assert done.returncode == 1
        assert "PYSEC-pydantic-core; fixed in 99" in done.stderr, "those of dependencies of dependencies too"
        assert "PYSEC-pyyaml" not in done.stderr
        assert "NOT AUDITED: no answer about numpy" in done.stderr
        assert audit(index, AUDIT_IGNORE="CVE-1").returncode == 0
    for silent in (("requests",), ()):
        with service(vulnerable=(), silent=silent) as index:
            done = audit(index)
            assert done.returncode == 0
            assert "NOT AUDITED: the index that pip uses tells no vulnerabilities" in done.stderr
            assert "known vulnerabilities" not in done.stdout
    assert "NOT AUDITED" in audit("http://127.0.0.1:9/simple").stderr
