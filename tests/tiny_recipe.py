"""The smallest run that is one: a few steps on the digits."""

from __future__ import annotations

from typing import Any

from epass.recipe import Recipe

TABLES: dict[str, dict[str, Any]] = {
    "data": {"name": "digits", "labels": 40},
    "net": {"name": "small", "width": 4},
    "method": {"name": "simmatch", "warmup_steps": 2},
    "projector": {"size": 1, "out_dim": 16},
    "plan": {"steps": 6, "labeled_batch": 10, "unlabeled_ratio": 2, "report_every": 1, "evaluate_every": 3},
}


def tiny_recipe(**changes: dict[str, Any]) -> str:
    """Its recipe as text, with other settings where `changes` names a table and its keys."""
    tables = {name: {**table, **changes.get(name, {})} for name, table in TABLES.items()}
    return Recipe(source="made up for tests", **tables).to_toml()
