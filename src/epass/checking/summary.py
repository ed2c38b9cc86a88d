"""Findings in words, and as plain values for a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .findings import Findings, Group, Leak, Member, Part

UNEVEN = 1.5  # times as many images in one class as in another: less is hardly worth a word


def verdict(findings: Findings) -> str:
    """What to do, in one sentence."""
    leaks, also = findings.leaks_into("labeled"), findings.leaks_into("unlabeled")
    if findings.unreadable:
        return (
            f"Replace or remove {_count(len(findings.unreadable), 'file')} that cannot be read: training stops there."
        )
    if findings.refusal:
        return f"Training would refuse this. {findings.refusal}"
    if leaks:
        share = len(leaks) / findings.counts["test"]
        return (
            f"{_count(len(leaks), 'test image')} ({share:.1%}) can be answered from memory, because the same image or "
            "a copy is among the labeled ones: remove one of the two."
        )
    if findings.contradictions:
        return f"Look at {_count(len(findings.contradictions), 'group')} of duplicates with different labels."
    if also:
        return (
            f"Among the unlabeled images are copies of {_count(len(also), 'test image')}: no method sees their labels, "
            "but remove them for a strict test."
        )
    return "No test image is among the labeled or unlabeled ones, and no duplicates have different labels."


def facts(findings: Findings) -> dict[str, str]:
    """Every finding in a few words, the gravest first; what was not found is said, too."""
    groups = findings.groups
    return {
        "images": ", ".join(f"{findings.counts[part]:,} {part}" for part in findings.counts)
        + (" (held out from the labeled images)" if findings.held_out and findings.counts["test"] else ""),
        "unreadable": _count(len(findings.unreadable), "file"),
        **({"labels": findings.refusal} if findings.refusal else {}),
        "leaks, labeled": _leaks(findings, "labeled"),
        "leaks, unlabeled": _leaks(findings, "unlabeled"),
        "contradictions": _count(len(findings.contradictions), "group") + " of duplicates with different labels",
        "duplicates": _count(sum(len(group.members) for group in groups), "image")
        + f" in {_count(len(groups), 'group')}"
        + _kinds(["exact" if group.kinds == {"exact"} else "near" for group in groups]),
        "classes": balance(findings),
        "constant": _count(len(findings.constant), "image") + " of one color",
        "odd files": _count(len({odd.name for odd in findings.odd}), "file"),
    }


def balance(findings: Findings) -> str:
    """How the labeled images are spread over the classes, and which classes cannot be tested."""
    counts = findings.class_counts["labeled"]
    small, large = (findings.classes[counts.index(pick(counts))] for pick in (min, max))
    text = f"{len(counts)}, {min(counts):,} to {max(counts):,} labeled images each"
    if min(counts) == max(counts):
        text = f"{len(counts)}, {counts[0]:,} labeled images each"
    elif findings.imbalance >= UNEVEN:
        text += f"; '{large}' has {findings.imbalance:.1f} times as many as '{small}'"
    if not findings.counts["test"]:
        return text
    untested = [name for name, count in zip(findings.classes, findings.class_counts["test"], strict=True) if not count]
    return text + (f"; without test images: {', '.join(untested)}" if untested else "")


def describe(member: Member) -> str:
    """An image in a line of text."""
    return f"{member.name} ({member.part}{'' if member.label is None else f', {member.label}'})"


def as_values(findings: Findings) -> dict[str, Any]:
    """All findings for `--json`."""
    return {
        "data": findings.name,
        "images": {**findings.counts, "held_out": findings.held_out},
        "classes": {
            name: {part: findings.class_counts[part][number] for part in findings.counts}
            for number, name in enumerate(findings.classes)
        },
        "imbalance": findings.imbalance,
        "unreadable": [{"name": name, "reason": reason} for name, reason in findings.unreadable],
        "leaks": {part: [_leak(leak) for leak in findings.leaks_into(part)] for part in ("labeled", "unlabeled")},
        "duplicates": [_group(group) for group in findings.groups],
        "constant": [_member(member) for member in findings.constant],
        "odd": [{"name": odd.name, "reason": odd.reason} for odd in findings.odd],
        "least_likeness": findings.least_likeness,
        "refusal": findings.refusal,
        "serious": findings.serious,
    }


def _leaks(findings: Findings, part: Part) -> str:
    found = findings.leaks_into(part)
    return _count(len(found), "test image") + _kinds([leak.kind for leak in found])


def _kinds(kinds: Sequence[str]) -> str:
    counts = Counter(kinds)
    known = [f"{counts[kind]:,} {kind}" for kind in ("exact", "near", "mirrored") if counts[kind]]
    return f" ({', '.join(known)})" if known else ""


def _count(number: int, noun: str) -> str:
    return f"{f'{number:,}' if number else 'no'} {noun}s" if number != 1 else f"1 {noun}"


def _member(member: Member) -> dict[str, Any]:
    return {"name": member.name, "part": member.part, "label": member.label}


def _leak(leak: Leak) -> dict[str, Any]:
    return {
        "test": _member(leak.test),
        "other": _member(leak.other),
        "kind": leak.kind,
        "likeness": round(leak.likeness, 4),
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "kinds": sorted(group.kinds),
        "contradicts": group.contradicts,
        "images": [_member(member) for member in group.members],
    }
