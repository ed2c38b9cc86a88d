from __future__ import annotations

from pathlib import Path

import studio_walk


def test_the_model_cannot_see_the_class_of_a_photo(tmp_path: Path) -> None:
    photos, home = tmp_path / "photos", tmp_path / "home"
    home.mkdir()
    for name in ("labeled/forest/a.jpg", "test/street/b.jpg", "unlabeled/c.jpg"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_text(name)
    truth = studio_walk.without_classes(photos, home)
    assert list(truth.values()) == ["forest", "street", ""]
    assert sorted(truth) == sorted(path.name for path in home.iterdir())
    assert not any(name in "".join(truth) for name in ("forest", "street"))
    (photos / "sea").mkdir()
    (photos / "sea" / "d.jpg").write_text("d")
    again = tmp_path / "again"
    again.mkdir()
    assert "sea" in studio_walk.without_classes(photos, again).values()
