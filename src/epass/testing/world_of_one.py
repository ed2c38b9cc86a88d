"""A process that talks to itself: it sends every message that one of several processes would, and receives it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch.distributed as dist

from ..machine.distributed import alone
from ..machine.launch import join_processes


@contextmanager
def world_of_one(device: str) -> Iterator[str]:
    """The only one of several processes, for a while, on the device that is yielded."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
    facts = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    named = {name: str(value) for name, value in facts.items()} | {"MASTER_ADDR": "127.0.0.1"}
    with patch.dict(os.environ, named):
        try:
            yield join_processes(device)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


@contextmanager
def talking() -> Iterator[None]:
    """Within `world_of_one`, send the messages that would otherwise be left out."""
    rooms = [module for name, module in sys.modules.items() if name.startswith("epass.")]
    with ExitStack() as changes:
        for room in rooms:
            if getattr(room, "alone", None) is alone:
                changes.enter_context(patch.object(room, "alone", lambda: False))
        yield
