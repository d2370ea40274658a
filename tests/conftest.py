"""Hypothesis: no deadline on a noisy machine, failing examples printed so that they can be run again.

Properties in the quick suite take as many examples as a few seconds allow; those marked `slow` go deeper. Seeds differ
from run to run: a failure prints a `@reproduce_failure` blob and is kept in `.hypothesis/`. It is shown as it was found;
`HYPOTHESIS_PROFILE=shrink` takes minutes to make it small.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "shrink",
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("quick", settings.get_profile("shrink"), phases=[Phase.explicit, Phase.reuse, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
