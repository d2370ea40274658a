"""What several tests of alerts need."""

from __future__ import annotations

import pytest
import trustme


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, str]:
    """An authority of our own, and the file with its certificate."""
    ca = trustme.CA()
    file = tmp_path_factory.mktemp("authority") / "ca.pem"
    ca.cert_pem.write_to_path(str(file))
    return ca, str(file)
