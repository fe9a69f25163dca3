"""What every test lives under: no network but this machine's own, and examples that are the same on every run."""

from __future__ import annotations

import os

import pytest
import pytest_socket
from hypothesis import HealthCheck, settings

# `ci` is the default, so that scripts/test says the same everywhere; HYPOTHESIS_PROFILE=explore searches for more.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup() -> None:
    pytest_socket.socket_allow_hosts(["127.0.0.1", "::1", "localhost"], allow_unix_socket=True)
