"""Runs `epass` commands, each in a fork of this process: importing torch for every hostile file would take minutes.

A fork has a limit on its memory and one on its time, so that a file which wins is a failed test and not a dead machine.
"""

from __future__ import annotations

import gc
import io
import json
import os
import resource
import sys
import time
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

SECONDS = 600  # on the clock and of computing: guards against hanging, not measurements
CPU_SECONDS = 30


def main() -> None:
    import PIL.Image
    import safetensors.torch  # noqa: F401
    import sklearn.datasets
    import torch
    import torch._dynamo  # a second of importing, which torch puts off until a network is built

    import epass.checking
    import epass.cli.app
    import epass.data
    import epass.engine.build
    import epass.engine.models
    import epass.report

    with redirect_stdout(io.StringIO()):
        epass.cli.app.app(["recipes"], standalone_mode=False)  # loads what reads command lines
    PIL.Image.init()
    sklearn.datasets.load_digits()
    torch.set_num_threads(1)
    gc.freeze()  # a fork copies what it touches
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            carry_out(request)
        print(json.dumps({"code": wait(child)}), flush=True)
    os._exit(0)  # Triton complains where an interpreter ends


def wait(child: int) -> int | None:
    """The exit code; None where the guard had to end it."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def carry_out(request: dict[str, Any]) -> None:
    from epass.cli import main as epass

    code = 1
    os.chdir(request["folder"])
    for number, name in ((0, os.devnull), (1, request["out"]), (2, request["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
    os.environ.update(request["environment"])
    sys.argv = ["epass", *request["arguments"]]
    limit = request["memory"] + 1024 * int(Path("/proc/self/status").read_text().partition("VmSize:")[2].split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    try:
        if request["arguments"][0] == "weights":
            start(request["arguments"][1])
        else:
            epass()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def start(file: str) -> None:
    """What training does with `net.weights`, without the rest of it."""
    from epass.cli.screen import complain
    from epass.errors import InputError
    from epass.networks import make_network

    try:
        make_network("small", in_channels=1, num_classes=10, weights=file, width=4)
    except InputError as problem:
        complain(str(problem))
        sys.exit(2)


if __name__ == "__main__":
    main()
