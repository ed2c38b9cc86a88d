import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from originals import compressed, element, mat, matrix, numbers, random_pixels, table, text

from epass.data.read.formats.matlab import Variable, list_variables


def whole(variable: Variable, block: int = 7) -> np.ndarray:
    return np.concatenate(list(variable.blocks(block))).reshape(variable.shape, order="F")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16", "int32", "uint32", "float32", "float64"])
def test_numbers_of_every_kind(tmp_path: Path, order: str, packed: bool, kind: str) -> None:
    first, second = np.arange(60).reshape(3, 4, 5).astype(kind), np.array([[7]], dtype=kind)
    written = [numbers("first", first, order), numbers("second", second, order)]
    path = mat(tmp_path / "a.mat", *([compressed(one, order) for one in written] if packed else written), order=order)
    found = list_variables(path)
    assert list(found) == ["first", "second"]
    assert found["first"].shape == (3, 4, 5)
    assert np.array_equal(whole(found["first"]), first)
    assert np.array_equal(whole(found["first"], 60), first)
    assert np.array_equal(whole(found["second"]), second)


@pytest.mark.parametrize("order", ["<", ">"])
def test_tables(tmp_path: Path, order: str) -> None:
    nothing = struct.pack(f"{order}II", 14, 0)
    sizes = [numbers("", np.array([values], "uint16"), order) for values in ([300], [1, 2])]
    rows = [
        {"name": text("fox", order), "size": sizes[0], "parts": nothing},
        {"name": text("wörd", order), "size": sizes[1], "parts": text("x", order)},
    ]
    path = mat(tmp_path / "a.mat", compressed(table("all", rows, order), order), order=order)
    read = list_variables(path)["all"].table()
    assert [row["name"] for row in read] == ["fox", "wörd"]
    assert [row["size"].tolist() for row in read] == [[300], [1, 2]]
    assert [row["parts"] for row in read] == [None, "x"]


@pytest.mark.parametrize("packed", [False, True])
def test_scipy_writes_what_is_read_here(tmp_path: Path, packed: bool) -> None:
    from scipy.io import savemat

    images = random_pixels(6, 5, 3, 4)
    synsets = np.array([(1, "n01"), (2, "n02")], dtype=[("ID", object), ("WNID", object)])[:, None]
    savemat(tmp_path / "a.mat", {"X": images, "synsets": synsets}, do_compression=packed)
    found = list_variables(tmp_path / "a.mat")
    assert np.array_equal(whole(found["X"]), images)
    rows = found["synsets"].table()
    assert [(row["ID"].tolist(), row["WNID"]) for row in rows] == [([1], "n01"), ([2], "n02")]


def test_what_has_no_name_is_passed_over(tmp_path: Path) -> None:
    made = [numbers(name, random_pixels(2, 2)) for name in ("", "\x1b[2J", "X")]
    assert list(list_variables(mat(tmp_path / "a.mat", *made))) == ["X"]


def test_damage_is_named(tmp_path: Path, refused) -> None:
    x = numbers("X", random_pixels(4, 4))
    good = mat(tmp_path / "x.mat", x).read_bytes()
    path = tmp_path / "bad.mat"
    for data, parts in {
        b"": ("does not begin like a MATLAB 5 file",),
        good[:127]: ("does not begin like",),
        good[:130]: ("8 bytes are expected where 2 are left",),
        good[:-5]: (f"{len(x) - 8} bytes are expected after byte 136, where {len(x) - 13} are left",),
    }.items():
        path.write_bytes(data)
        with refused(str(path), *parts):
            list_variables(path)
    mat(path, version=0x0200)
    with refused("version is not 5", "'-v7'"):
        list_variables(path)
    with refused("No such file", "gone.mat"):
        list_variables(tmp_path / "gone.mat")
    with refused("shape (-1, 2)"):
        list_variables(mat(path, matrix("X", (-1, 2), 9)))
    with refused("at most 65,536"):
        list_variables(mat(path, matrix("n" * 2**17, (1, 2), 9)))


def test_content_that_does_not_fit(tmp_path: Path, refused) -> None:
    path = tmp_path / "bad.mat"

    def opened(*content: bytes, number: int = 9, packed: bool = False) -> Variable:
        made = matrix("X", (2, 6), number, *content)
        mat(path, compressed(made) if packed else made)
        return list_variables(path)["X"]

    with refused("'X' has 11 bytes where the shape (2, 6) needs 12"):
        list(opened(element(2, b"x" * 11)).blocks(5))
    with refused("unknown kind 66"):  # one wrong bit, on which SciPy 1.17 ends the process
        list(opened(element(66, b"x" * 12)).blocks(5))
    with refused("'X' holds no numbers"):
        list(opened(element(2, b"x" * 12), number=1).blocks(5))
    with refused("'X' is not a table"):
        opened(element(2, b"x" * 12)).table()
    with refused("have no names"):
        opened(element(5, b"\0" * 4), element(1, b""), number=2).table()
    with refused("of kind 2 instead of 14"):
        opened(element(5, b"\x20\0\0\0"), element(1, b"a" * 32), element(2, b"x" * 12), number=2).table()
    with refused("where numbers or a text should be"):
        cell = matrix("", (1, 1), 6, element(99, b"12345678"))
        opened(element(5, b"\x20\0\0\0"), element(1, b"a" * 32), cell, number=2).table()


def test_a_wrong_bit_in_compressed_data_is_found(tmp_path: Path, refused) -> None:
    # 1,010 bytes are padded with 6 more, so the checksum is not read along with the last number.
    path = mat(tmp_path / "a.mat", compressed(numbers("X", random_pixels(10, 101))))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1  # of the checksum, which comes last
    path.write_bytes(data)
    with refused("cannot be read", "incorrect data check"):
        list(list_variables(path)["X"].blocks(1000))


def test_compressed_data_without_an_end_is_found(tmp_path: Path, refused) -> None:
    packed = zlib.compress(numbers("X", random_pixels(10, 101)))[:-4]
    path = mat(tmp_path / "a.mat", struct.pack("<II", 15, len(packed)) + packed)
    with refused("does not end where it should"):
        list(list_variables(path)["X"].blocks(1000))


def test_a_text_that_is_none(tmp_path: Path, refused) -> None:
    cell = matrix("", (1, 5), 4, element(16, b"\xff" * 5))
    path = mat(tmp_path / "a.mat", table("all", [{"name": cell}]))
    with refused("cannot be read", "utf-8"):
        list_variables(path)["all"].table()
