import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from epass.errors import InputError


@pytest.fixture
def refused() -> Callable[..., AbstractContextManager[None]]:
    """`with refused("cause", "choice"):` expects an InputError of one sentence that contains these parts."""

    @contextmanager
    def check(*parts: str) -> Iterator[None]:
        with pytest.raises(InputError) as caught:
            yield
        text = str(caught.value)
        for part in parts:
            assert part in text
        assert text[-1] in ".?"
        assert not re.search(r"[.?!]\s", text), f"more than one sentence: {text}"

    return check
