"""`python predicting.py predict RUN IMAGES`: the command with a few images in a chunk, and a part for each chunk.

What the model is asked is written to `asked.txt`, a line for each chunk. From the environment: after HANGS_AFTER chunks
it does not answer, after FAILS_AFTER it fails, and SLOW seconds pass before every answer. With GPU=works or GPU=broken
the CPU is taken for a device that decodes.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

ROWS = 4


def prepare() -> None:
    from epass.app import parts
    from epass.data.read import found
    from epass.data.stream import decoder
    from epass.engine.answer_torch import TorchAnswerer
    from epass.errors import InputError

    parts.SECONDS, parts.PATIENCE, found.ROWS = -1.0, float(os.environ.get("PATIENCE", "60")), ROWS
    answer, often = TorchAnswerer.answer, 0

    def watched(self: TorchAnswerer, images: Any) -> Any:
        nonlocal often
        if often == int(os.environ.get("FAILS_AFTER", "-1")):
            raise InputError("It fails.")
        with Path("asked.txt").open("a") as log:
            log.write(f"{len(images)}\n")
        time.sleep(600 if often == int(os.environ.get("HANGS_AFTER", "-1")) else float(os.environ.get("SLOW", "0")))
        often += 1
        return answer(self, images)

    TorchAnswerer.answer = watched  # type: ignore[method-assign]
    if "GPU" in os.environ:
        sys.path.append(str(Path(__file__).parents[1]))
        from device_decoding import stand_in

        decoder.DECODES = "cpu"
        decoder.find_decoder = stand_in if os.environ["GPU"] == "works" else lambda _: "it is broken"


if __name__ == "__main__":
    import torch

    from epass.cli import main

    torch.set_num_threads(1)
    prepare()
    main()
