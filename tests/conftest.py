"""Hypothesis: no deadline on a noisy machine, failing examples printed so that they can be run again.

Properties in the quick suite take as many examples as a few seconds allow; those marked `slow` go deeper. Seeds differ
from run to run: a failure prints a `@reproduce_failure` blob and is kept in `.hypothesis/`. `HYPOTHESIS_PROFILE=glance`
shows a failure as it was found, without minutes spent on making it smaller.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "weever",
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("glance", settings.get_profile("weever"), phases=[Phase.explicit, Phase.reuse, Phase.generate])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "weever"))
