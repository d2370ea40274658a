"""The driver of the harness: `weever` itself in a process of its own, with a crash point put in.

python -m tests.crash.driver run job.yaml --every "50 ms" --format json
"""

from __future__ import annotations

import sys

from tests.crash.points import install
from weever_stream.cli import run

if __name__ == "__main__":
    install()
    sys.exit(run(sys.argv[1:]))
