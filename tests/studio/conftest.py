from __future__ import annotations

import pytest
from browsing import PROGRAM
from chromium import Chromium


@pytest.fixture(scope="module")
def browser():
    with Chromium(PROGRAM) as running:
        yield running
