"""What damaged files do: spoil run folders, images and archives at random, and let the commands loose on them.

    python benchmarks/fuzz.py [--runs 500] [--images 200] [--archives 100] [--seed 0] [--out fuzz.json]

Every command runs in a fork of this process, which has imported everything, and is measured: its time and the memory it
takes beside the imports. It may succeed, or refuse in one sentence. A traceback, more than five seconds of computing or
more than a gigabyte is a finding, and the exit code is then 1. The case is a function of the seed and its number:
`--only runs:17` repeats one and keeps its files.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"  # a forked process must find no threads missing

import numpy as np
import PIL.Image
import torch
from PIL import Image
from safetensors.numpy import load_file, save_file

import epass.checking
import epass.report
from epass.cli import main as epass
from epass.runs import environment

SECONDS, MEMORY, PATIENCE = 5.0, 2**30, 600.0  # of computing, bytes, and on the clock: a busy machine takes longer
SMALL = ("net.width=4", "plan.labeled_batch=10", "plan.evaluate_every=3")
TINY = ("--labels", "40", "--steps", "6", *(word for setting in SMALL for word in ("--set", setting)))
LABELS_ONLY, METHOD = "supervised-0", "simmatch+3-0"
COMPARISON = ("compare", "digits", "--methods", "simmatch+3", "--seeds", "1", *TINY)
WRONG = [None, True, -1, 0, 7, 0.5, 1e300, 10**200, "", "x", "\x1b[2J", "x" * 5000, [], {}, [1, "a"], [[1], [2, 3]]]
RAW = ["NaN", "1e999", "9" * 5000, "[" * 50_000, "{", "\x00", '"\\ud800"']
TOML = ['""', '"x"', "-1", "0", "7", "1.5", "inf", "nan", "[]", "{}", "[[1], 2]", "true", "2020-01-01", "9" * 25, "[1"]


class Outcome(NamedTuple):
    """How a command ended."""

    code: int | None  # None: it had to be killed
    said: str
    seconds: float
    memory: int  # bytes beside what the imports have


class Case(NamedTuple):
    """Something damaged, what was done to it, and commands that read it."""

    damage: str
    commands: Sequence[Sequence[str]]


def spoil_value(value: Any, rng: random.Random) -> Any:
    """JSON with one entry somewhere changed, missing or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {name: entry for name, entry in value.items() if name != key}
        return {**value, key: spoil_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        place = rng.randrange(len(value))
        if rng.random() < 0.4:
            return value[:place] + value[place + 1 :]
        return [*value[:place], spoil_value(value[place], rng), *value[place + 1 :]]
    return rng.choice(WRONG)


def spoil_json(data: bytes, rng: random.Random) -> bytes:
    text = json.dumps(spoil_value(json.loads(data), rng))
    if rng.random() < 0.15:
        text = text.replace(json.dumps(rng.choice(["name", "error", "step", "seed"])) + ": ", f"{rng.choice(RAW)}, ", 1)
    return text.encode(errors="surrogatepass")


def spoil_lines(data: bytes, rng: random.Random) -> bytes:
    lines = data.splitlines()
    place = rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        lines.insert(place, rng.choice(lines))
    elif how == 1:
        rng.shuffle(lines)
    elif how == 2:
        del lines[place]
    else:
        lines[place] = spoil_json(lines[place], rng)
    return b"".join(line + b"\n" for line in lines)


def spoil_toml(data: bytes, rng: random.Random) -> bytes:
    lines = data.decode().splitlines()
    place = rng.choice([number for number, line in enumerate(lines) if line])
    key, sign, _ = lines[place].partition(" = ")
    how = rng.randrange(4)
    if how == 0:
        del lines[place]
    elif how == 1:
        lines[place] = lines[place].replace(key, rng.choice(["x", "name", "[data]", "[[net]]"]), 1)
    else:
        lines[place] = f"{key} = {rng.choice(TOML)}" if sign else "x = 1"
    return "\n".join(lines).encode() + b"\n"


def spoil_array(array: Any, rng: random.Random) -> Any:
    changed = array.copy()
    how = rng.randrange(7)
    if how == 0 and changed.dtype.kind == "f" and changed.size:
        changed.flat[rng.randrange(changed.size)] = rng.choice([np.nan, np.inf, -np.inf, 6e4])
    elif how == 1:
        changed = changed[: rng.randrange(len(changed) + 1)] if changed.ndim else changed[None]
    elif how == 2:
        changed = changed.reshape(-1)
    elif how == 3:
        changed = changed.astype(rng.choice(["f8", "f2", "i4", "u1", "?"]))
    elif how == 4:
        changed = changed[..., None]
    elif how == 5 and changed.dtype.kind == "i":
        changed = changed + rng.choice([-1, 1000, 2**62])
    else:
        changed = np.zeros((0, 0), array.dtype)
    return changed


def spoil_arrays(arrays: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    name = rng.choice(sorted(arrays))
    if rng.random() < 0.2:
        return {key: value for key, value in arrays.items() if key != name}
    if rng.random() < 0.15:
        return {**arrays, "x": arrays[name]}
    return {**arrays, name: spoil_array(arrays[name], rng)}


def spoil_npz(data: bytes, rng: random.Random) -> bytes:
    arrays, buffer = spoil_arrays(dict(np.load(io.BytesIO(data))), rng), io.BytesIO()
    if rng.random() < 0.2:
        arrays = {name: array.astype(array.dtype.newbyteorder()) for name, array in arrays.items()}
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def spoil_tensors(path: Path, rng: random.Random) -> bytes:
    arrays = spoil_arrays(load_file(path), rng)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
    return path.read_bytes()


def spoil_bytes(data: bytes, rng: random.Random) -> bytes:
    """Any file: cut, emptied, flipped, repeated, with numbers of its header changed."""
    how = rng.randrange(7)
    if how == 0:
        return data[: rng.randrange(len(data) + 1)]
    if how == 1:
        return b""
    changed = bytearray(data)
    if how == 2:
        for _ in range(rng.randrange(1, 30)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    elif how == 3:
        start = rng.randrange(len(changed))
        changed[start:start] = changed[start : start + rng.randrange(1, 4096)] * rng.choice([1, 3, 400])
    elif how == 4:
        start = rng.randrange(len(changed))
        del changed[start : start + rng.randrange(1, 200)]
    elif how == 5:
        start = rng.randrange(min(len(changed), 200))
        wide = rng.choice(["<H", ">H", "<I", ">I"])
        number = rng.choice([0, 1, 255, 16_383, 30_000, 65_535])
        changed[start : start + struct.calcsize(wide)] = struct.pack(wide, number)
    else:
        changed[rng.randrange(len(changed)) :] = b"\xff\xfe\x80"
    return bytes(changed)


def damage_run(folder: Path, rng: random.Random) -> str:
    """Spoil one file of a run folder, and say which and how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "report.html")
    path = rng.choice(files)
    ways: dict[str, Callable[[bytes, random.Random], bytes]] = {
        ".json": spoil_json,
        ".jsonl": spoil_lines,
        ".toml": spoil_toml,
        ".npz": spoil_npz,
        ".safetensors": lambda _, rng: spoil_tensors(path, rng),
    }
    how = rng.random()
    if how < 0.06:
        path.unlink()
        path.mkdir()
        word = "a folder"
    elif how < 0.1:
        path.unlink()
        word = "missing"
    elif how < 0.35:
        path.write_bytes(spoil_bytes(path.read_bytes(), rng))
        word = "bytes"
    else:
        path.write_bytes(ways[path.suffix](path.read_bytes(), rng))
        word = "content"
    return f"{path.relative_to(folder)}: {word}"


def run_case(home: Path, rng: random.Random) -> Case:
    """A damaged run of a comparison, and one or two of the commands that read it: drawing a page takes a second."""
    shutil.copytree(home.parent / "good", home / "out")
    run = home / "out" / METHOD
    unfinished = rng.random() < 0.2
    if unfinished:
        for name in ("results.json", "model.json", "predictions.npz"):
            (run / name).unlink()
    damage = damage_run(run, rng)
    shutil.copytree(run, home / "table" / METHOD)
    page = ("--out", str(home / "page.html"))
    quick: list[Sequence[str]] = [
        ("evaluate", str(run)),
        ("predict", str(run), str(home.parent / "photos"), "--out", str(home / "answers.csv")),
        ("train", "--resume", "--device", "cpu", "--out", str(run)),
        ("train", "digits", "--from", str(run), "--steps", "1", "--out", str(home / "new")),
        ("reproduce", "strategies", "--only", "simmatch+3", "--out", str(home / "table"), "--dry-run"),
    ]
    drawing: list[Sequence[str]] = [
        ("report", str(run), "--no-maps", "--card", str(home / "card.md"), *page),
        ("report", str(run), str(home / "out" / LABELS_ONLY), "--no-maps", *page),
        (*COMPARISON, "--device", "cpu", "--out", str(home / "out")),
    ]
    if "embeddings" in damage:  # which only maps show
        return Case(damage, [("report", str(run), *page)])
    commands = [rng.choice(quick), *([rng.choice(drawing)] if rng.random() < 0.5 else [])]
    return Case(damage, commands)


IMAGES: list[tuple[str, str, dict[str, Any]]] = [
    ("PNG", "RGB", {}),
    ("PNG", "RGBA", {}),
    ("PNG", "I;16", {}),
    ("PNG", "P", {}),
    ("PNG", "1", {}),
    ("JPEG", "RGB", {}),
    ("JPEG", "RGB", {"progressive": True}),
    ("JPEG", "CMYK", {}),
    ("GIF", "P", {}),
    ("BMP", "RGB", {}),
    ("PPM", "RGB", {}),
    ("PPM", "I;16", {}),
    ("WEBP", "RGB", {}),
    ("WEBP", "RGBA", {"lossless": True}),
    ("TIFF", "RGB", {"compression": "tiff_lzw"}),
    ("TIFF", "RGB", {"compression": "tiff_adobe_deflate"}),
    ("TIFF", "I;16", {}),
    ("TIFF", "CMYK", {"compression": "packbits"}),
    ("TIFF", "L", {}),
]


def good_image(number: int, kind: tuple[str, str, dict[str, Any]]) -> bytes:
    """A picture of its own for every number."""
    generator, (form, mode, options) = np.random.default_rng(number), kind
    levels = generator.integers(0, 255, (40 + number % 9, 48, 3), np.uint8)
    if mode == "I;16":
        image = Image.fromarray(levels[..., 0].astype(np.uint16) * 257)
    else:
        image = Image.fromarray(levels).convert(mode)
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def good_photos() -> dict[str, bytes]:
    """A data set of two classes."""
    names = [f"{name}/{number}.png" for name in ("cat", "dog") for number in range(4)]
    return {name: good_image(number, IMAGES[0]) for number, name in enumerate(names)}


def image_case(home: Path, rng: random.Random) -> Case:
    """A folder with two damaged images."""
    kinds = [rng.choice(IMAGES) for _ in range(2)]
    for name, data in good_photos().items():
        (home / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "photos" / name).write_bytes(data)
    for number, kind in enumerate(kinds):
        data = spoil_bytes(good_image(100 + number, kind), rng)
        (home / "photos" / "cat" / f"bad{number}.{kind[0].lower()}").write_bytes(data)
    return Case(" and ".join(f"{form} {mode}" for form, mode, _ in kinds), [("check", str(home / "photos"))])


def archive_case(home: Path, rng: random.Random) -> Case:
    """A damaged archive."""
    kind, photos, buffer = rng.choice(["zip", "tar", "tar.gz"]), good_photos(), io.BytesIO()
    if rng.random() < 0.3:
        name = rng.choice(list(photos))
        photos[name] = spoil_bytes(photos[name], rng)
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as packed:
            for name, data in photos.items():
                packed.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz" if kind == "tar.gz" else "w") as tarred:
            for name, data in photos.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tarred.addfile(info, io.BytesIO(data))
    path = home / f"photos.{kind}"
    path.write_bytes(spoil_bytes(buffer.getvalue(), rng))
    table = str(home / "answers.csv")
    commands = [("check", str(path)), ("predict", str(home.parent / "good" / METHOD), str(path), "--out", table)]
    return Case(kind, [rng.choice(commands)])


CASES = {"runs": run_case, "images": image_case, "archives": archive_case}


def call(*arguments: str) -> int:
    """A command in this process; returns its exit code."""
    sys.argv = ["epass", *arguments]
    try:
        epass()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def measured(arguments: Sequence[str], said: Path) -> Outcome:
    """A command in a fork of this process."""
    child = os.fork()
    if child == 0:
        code = 99
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
        try:
            code = call(*arguments)
        except BaseException:
            traceback.print_exc()
        used = resource.getrusage(resource.RUSAGE_SELF)
        sys.stderr.flush()
        said.with_suffix(".used").write_text(f"{used.ru_utime + used.ru_stime} {used.ru_maxrss - before}")
        os._exit(code)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.002)
    else:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    words = said.read_text("utf-8", "replace")
    if os.WIFSIGNALED(status):
        return Outcome(None, words, PATIENCE, 0)
    seconds, memory = said.with_suffix(".used").read_text().split()
    return Outcome(os.waitstatus_to_exitcode(status), words, float(seconds), 1024 * int(memory))


def judge(outcome: Outcome) -> str | None:
    """What is wrong with the way a command ended."""
    if outcome.code is None:
        return "it did not end, or was killed"
    if "Traceback" in outcome.said or outcome.code not in (0, 1, 2):
        return f"it ended with code {outcome.code}: {outcome.said[-400:]}"
    if outcome.code == 2 and outcome.said.count("Error: ") < 1:
        return f"it refused without a sentence: {outcome.said[-500:]}"
    if outcome.seconds > SECONDS:
        return f"it took {outcome.seconds:.1f} s"
    if outcome.memory > MEMORY:
        return f"it took {outcome.memory:,} bytes"
    return None


def prepare(home: Path) -> None:
    """A comparison of two finished runs, and photos to ask a model about; imports what commands need."""
    os.environ["EPASS_CACHE"] = str(home / "cache")
    PIL.Image.init()
    for name, data in good_photos().items():
        (home / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "photos" / name).write_bytes(data)
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        codes = [call(*COMPARISON, "--device", "cpu", "--out", str(home / "good"))]
        run = str(home / "good" / METHOD)
        codes += [call("predict", run, str(home / "photos"), "--out", str(home / "answers.csv"))]
        codes += [call("check", str(home / "photos"))]
    if any(codes):
        raise SystemExit(f"The undamaged files failed: {said.getvalue()}")


def fuzz(counts: dict[str, int], seed: int, home: Path, only: str = "") -> dict[str, Any]:
    began = time.perf_counter()
    prepare(home)
    figures: dict[str, Any] = {}
    findings: list[str] = []
    for kind, count in counts.items():
        outcomes: list[Outcome] = []
        for number in range(count):
            if not only and number % 50 == 0:
                print(f"{kind}: {number} of {count}, {len(findings)} findings", flush=True)
            if only and only != f"{kind}:{number}":
                continue
            place = home / f"{kind}-{number}"
            place.mkdir()
            case = CASES[kind](place, random.Random(f"{seed} {kind} {number}"))
            for arguments in case.commands:
                outcome = measured(arguments, place / "said")
                outcomes.append(outcome)
                if only:
                    print(" ".join(arguments), outcome, sep="\n", flush=True)
                if problem := judge(outcome):
                    findings.append(f"{kind}:{number} {case.damage}, {' '.join(arguments[:2])}: {problem}")
                    print(findings[-1], flush=True)
            if not only:
                shutil.rmtree(place)
        figures[kind] = {
            "cases": count,
            "commands": len(outcomes),
            "refused": sum(outcome.code == 2 for outcome in outcomes),
            "longest_seconds": round(max((outcome.seconds for outcome in outcomes), default=0), 2),
            "most_memory": max((outcome.memory for outcome in outcomes), default=0),
        }
    facts = environment(seed, "", "cpu")
    figures |= {"seed": seed, "seconds": round(time.perf_counter() - began, 1), "findings": findings}
    return figures | {key: facts[key] for key in ("commit", "platform", "cpu_count", "python", "torch")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind, count in (("runs", 500), ("images", 200), ("archives", 100)):
        parser.add_argument(f"--{kind}", type=int, default=count, help="cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="KIND:NUMBER", help="one case, shown, its files kept")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    given = parser.parse_args()
    torch.set_num_threads(1)
    home = Path(tempfile.mkdtemp(prefix="fuzz-"))
    figures = fuzz({kind: getattr(given, kind) for kind in CASES}, given.seed, home, given.only)
    if given.only:
        print(home)
    else:
        shutil.rmtree(home)
    text = json.dumps(figures, indent=2)
    print(text)
    if given.out:
        given.out.write_text(text + "\n")
    sys.exit(bool(figures["findings"]))


if __name__ == "__main__":
    main()
