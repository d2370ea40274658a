"""Certificates that servers of the tests present."""

from __future__ import annotations

import ssl
from typing import Any

import trustme


def presenting(ca: trustme.CA, *names: str, **options: Any) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names, **options).configure_cert(context)
    return context
