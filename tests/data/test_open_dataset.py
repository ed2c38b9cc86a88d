from pathlib import Path

import pytest

from epass.data import open_dataset


def test_unknown_names_say_what_was_looked_for(refused) -> None:
    with refused("Unknown data set, folder or file 'digit'", "did you mean 'digits'?"):
        open_dataset("digit")
    with refused("There is no file or folder 'zzz': the nearest folder that exists is"):
        open_dataset("zzz")
    with refused("There is no file or folder ''"):
        open_dataset("")


def test_missing_paths_name_the_nearest_folder(refused, tmp_path: Path) -> None:
    with refused(f"no file or folder '{tmp_path}/a/b.npz'", f"nearest folder that exists is '{tmp_path}'"):
        open_dataset(str(tmp_path / "a/b.npz"))


def test_the_home_folder_is_found(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "birds").mkdir()
    with refused(f"'{tmp_path}/birds' holds no class"):
        open_dataset("~/birds")


def test_a_name_may_begin_like_a_home_folder(refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~old photos").mkdir()
    with refused("'~old photos' holds no class"):
        open_dataset("~old photos")
    with refused("There is no file or folder '~older photos'"):
        open_dataset("~older photos")


def test_other_files_are_refused(refused, tmp_path: Path) -> None:
    (tmp_path / "images.txt").write_text("1,2")
    with refused("images.txt' is not a data set", ".zip", ".csv", ".npz"):
        open_dataset(str(tmp_path / "images.txt"))


def test_a_built_in_name_wins_over_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused) -> None:
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    assert open_dataset("digits").name == "digits"
    with refused("holds no class"):
        open_dataset("./digits")
