"""How a set is divided into parts: by shares, class by class, with equal images on one side."""

from collections import defaultdict
from collections.abc import Sequence


def part_rows(
    marks: Sequence[bytes], labels: Sequence[int] | None, shares: Sequence[float], order: Sequence[int]
) -> list[list[int]]:
    """The rows of each part, ascending.

    `marks` are equal where images are, and `order` is a permutation. Images are dealt out in this order, class by
    class, and each goes to the part that lacks most to its share of its class and of all that was dealt. The latter
    spreads what is left over where classes are so small that not every part can have an image of each.
    """
    groups: dict[bytes, list[int]] = defaultdict(list)
    for row in order:
        groups[marks[row]].append(row)
    classes: dict[int, list[list[int]]] = defaultdict(list)
    for group in groups.values():
        classes[0 if labels is None else labels[group[0]]].append(group)
    parts: list[list[int]] = [[] for _ in shares]
    lacking = [0.0] * len(shares)
    for label in sorted(classes):
        own = [0.0] * len(shares)
        for group in classes[label]:
            for part, share in enumerate(shares):
                own[part] += share * len(group)
                lacking[part] += share * len(group)
            most = max(range(len(shares)), key=lambda part: own[part] + lacking[part])
            parts[most] += group
            own[most] -= len(group)
            lacking[most] -= len(group)
    return [sorted(part) for part in parts]
