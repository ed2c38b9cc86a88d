"""What tests in a real browser need."""

from __future__ import annotations

import pytest
from chromium import find_chromium

PROGRAM = find_chromium()
NEEDED = [
    pytest.mark.browser,
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium on this machine"),
]
