"""Known vulnerabilities in what an install of this package brings: direct and transitive dependencies, as installed.

Asks the JSON API of the package index that pip is set up with. Many mirrors do not have it, and some answer without the
field; so first it asks about a release that is known to be vulnerable. Where that is not told as such, nothing can be
known, and it says so loudly and does not fail. Ends with 1 if there are vulnerabilities or broken requirements, else 0.
`AUDIT_IGNORE` names advisories that were looked into, separated by spaces. Takes seconds: at most one minute.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

PACKAGE = "weever-stream"
CONTROL = ("requests", "2.19.0")
"""Vulnerable since 2018 (CVE-2018-18074): a service that does not know this knows nothing."""
SECONDS = 60
ONE_ANSWER = 10


def index() -> str:
    """The folder above pip's index, which has the JSON API where the index has one."""
    named = os.environ.get("PIP_INDEX_URL")
    if not named:
        asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
        named = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if not named:
        from pip._internal.models.index import PyPI  # what pip takes if nobody says anything

        named = PyPI.simple_url
    return named.rstrip("/").removesuffix("/simple")


def direct() -> list[str]:
    """What the package asks for: as it is installed, else as its project file says."""
    try:
        return list(distribution(PACKAGE).requires or ())
    except PackageNotFoundError:
        import tomllib

        return list(tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"])


def installed(asked: list[str]) -> dict[str, str]:
    """Name and version of what these requirements brought, and of what that asks for; extras are left out."""
    found: dict[str, str] = {}
    while asked:
        requirement = asked.pop()
        name = re.split(r"[ ;<>=!~\[(]", requirement, maxsplit=1)[0]
        if "extra ==" in requirement or name.lower() in found:
            continue
        try:
            one = distribution(name)
        except PackageNotFoundError:  # for another platform
            continue
        found[name.lower()] = one.version
        asked += one.requires or ()
    return found


def known(base: str, name: str, version: str) -> list[dict[str, Any]] | None:
    """The vulnerabilities of a release that the service knows, or None where it gives no answer."""
    try:
        with urlopen(f"{base}/pypi/{name}/{version}/json", timeout=ONE_ANSWER) as answer:
            found = json.load(answer).get("vulnerabilities")
    except (URLError, OSError, ValueError, AttributeError):
        return None
    return [one for one in found if not one.get("withdrawn")] if isinstance(found, list) else None


def audit() -> int:
    """Asks about every package. Returns the exit code."""
    base, packages = index(), installed(direct())
    if not packages:
        print(f"audit: nothing that {PACKAGE} needs is installed here", file=sys.stderr)
        return 1
    if not known(base, *CONTROL):
        return _not_audited(f"the index that pip uses tells no vulnerabilities ({len(packages)} packages)")
    end, told = time.monotonic() + SECONDS, {}
    with ThreadPoolExecutor(8) as pool:
        answers = {name: pool.submit(known, base, name, version) for name, version in packages.items()}
        for name, answer in answers.items():
            try:
                told[name] = answer.result(max(0.0, end - time.monotonic()))
            except TimeoutError:
                told[name] = None
        pool.shutdown(wait=False, cancel_futures=True)
    accepted = set(os.environ.get("AUDIT_IGNORE", "").split())
    bad = 0
    for name, found in sorted(told.items()):
        for one in found or ():
            if not accepted & {one.get("id"), *one.get("aliases", ())}:
                bad += 1
                fixed = ", ".join(one.get("fixed_in") or ()) or "none yet"
                print(f"audit: {name} {packages[name]}: {one.get('id')}; fixed in {fixed}", file=sys.stderr)
    if silent := sorted(name for name, found in told.items() if found is None):
        _not_audited(f"no answer about {', '.join(silent)}")
    print(f"audit: {len(told) - len(silent)} of {len(packages)} packages asked about, {bad} known vulnerabilities")
    return 1 if bad else 0


def _not_audited(why: str) -> int:
    line = "!" * 78
    print(f"{line}\n!! NOT AUDITED: {why}\n{line}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(audit())
