"""Settings for every test."""

from __future__ import annotations

import os
import signal

import pytest
import torch

from epass import extensions

# The tensors of the tests are tiny: a second thread costs more than it saves, and one gives the same sums everywhere.
torch.set_num_threads(1)
# Where there is no GPU, Triton's interpreter runs our kernels. It has to be told before anything imports Triton.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
# A shell that starts the tests in the background has them ignore Ctrl-C, and so would the processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another one decoded, and none leaves anything in the home folder."""
    monkeypatch.setenv("EPASS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _nothing_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that one test trusts is foreign to the next."""
    monkeypatch.setattr(extensions, "_trusted", set())


@pytest.fixture
def full_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU: convolutions that round as float32 does, whichever cuDNN finds fastest, and sum up in one order."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
