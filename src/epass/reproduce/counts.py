"""The parameters of the paper's networks, counted here. Nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ..networks import NETWORKS, MultiHead, count_parameters, make_network
from ..parts.projector import ProjectorEnsemble
from .sheet import Cell, Sheet, paper_table

MILLION = 1_000_000


def parameters() -> Sheet:
    """Every network of the paper, counted here."""
    table = paper_table("parameters")
    cells = [counted(row) for row in table["rows"]]
    heads = ("network", "classes", "method", "projectors", "paper", "published code", "ours", "to paper", "to code")
    rows = [counted_row(cell, row.get("paper")) for cell, row in zip(cells, table["rows"], strict=True)]
    return Sheet(table["title"], [table["note"].strip()], heads, rows, cells)


def counted(row: Mapping[str, Any]) -> Cell:
    """A row of the paper with our count and its differences; None is what the paper, or this package, does not have."""
    ours = count(row) if row["network"] in NETWORKS else None
    paper = float(row["paper"]) if "paper" in row else None
    return {
        "network": row["network"],
        "classes": row["classes"],
        "method": row["method"],
        "projectors": row.get("projectors"),
        "out_dim": row.get("out_dim"),
        "paper_millions": paper,
        "code": row["code"],
        "ours": ours,
        "against_paper_millions": None if ours is None or paper is None else round(ours / MILLION - paper, 6),
        "against_code": None if ours is None else ours - row["code"],
    }


def count(row: Mapping[str, Any]) -> int:
    """The parameters of a row's network, its heads and its projectors."""
    with torch.device("meta"):  # shapes without memory or initialization
        net = make_network(row["network"], in_channels=3, num_classes=row["classes"], **row.get("net", {}))
        total = count_parameters(MultiHead(net, row["heads"]) if "heads" in row else net)
        if "projectors" in row:
            total += count_parameters(ProjectorEnsemble(net.num_features, row["out_dim"], size=row["projectors"]))
    return total


def counted_row(cell: Cell, printed: str | None) -> list[str]:
    """A count for people; the paper's in the digits that it prints."""
    ours, to_paper = cell["ours"], cell["against_paper_millions"]
    return [
        cell["network"],
        str(cell["classes"]),
        cell["method"],
        f"{cell['projectors']} × {cell['out_dim']}" if cell["projectors"] else "–",
        f"{printed} M" if printed else "–",
        f"{cell['code']:,}",
        "no such network here" if ours is None else f"{ours:,}",
        "–" if to_paper is None else f"{round(to_paper, 2) + 0.0:+.2f} M",
        "–" if ours is None else f"{cell['against_code']:+,}" if cell["against_code"] else "0",
    ]
