"""Two diagrams: the way of an image through the joint model and its proof, and the rooms of the package."""

from drawing import arrow, box, drawing

WIDE, HIGH = 106, 42
ROOMS: dict[str, tuple[float, float, str]] = {
    "data": (14, 96, "image sets by name"),
    "training": (142, 96, "objectives, recipes"),
    "models": (270, 96, "f, g, and both"),
    "attacks": (398, 20, "climb a score"),
    "bounds": (398, 96, "prove a maximum"),
    "detector": (398, 172, "threshold, verdict"),
    "evaluation": (526, 58, "AUC, AAUC, GAUC"),
    "certification": (526, 134, "files, and their check"),
    "serve": (526, 196, "HTTP and a page"),
    "export": (526, 248, "ONNX with the bound"),
    "studies": (654, 20, "models as a graph"),
    "report": (654, 96, "tables and pages"),
}
ARROWS = (
    ("data", "training"),
    ("training", "models"),
    ("models", "attacks"),
    ("models", "bounds"),
    ("models", "detector"),
    ("attacks", "evaluation"),
    ("bounds", "evaluation"),
    ("bounds", "certification"),
    ("detector", "serve"),
    ("detector", "export"),
    ("evaluation", "studies"),
    ("evaluation", "report"),
)
"""Which room hands what it makes to which; a test holds that one of the two may import the other."""


def rooms() -> str:
    marks = [_way(start, end) for start, end in ARROWS]
    boxes = [
        box(x, y, WIDE, HIGH, (name, about), "proof" if name == "bounds" else "")
        for name, (x, y, about) in ROOMS.items()
    ]
    return drawing("The rooms of Prood, and what is handed from one to the next", 774, 304, *marks, *boxes)


def _way(start: str, end: str) -> str:
    """From the right side of a box to the left side of another, with a bend half way."""
    (x0, y0, _), (x1, y1, _) = ROOMS[start], ROOMS[end]
    begin, stop = (x0 + WIDE, y0 + HIGH / 2), (x1, y1 + HIGH / 2)
    if begin[1] == stop[1]:
        return arrow(begin, stop)
    middle = (begin[0] + stop[0]) / 2 - 3
    return arrow(begin, (middle, begin[1]), (middle, stop[1]), stop)


def certificate() -> str:
    boxes = [
        box(16, 66, 96, 60, ("x", "an image", "in [0, 1]^d")),
        box(160, 24, 150, 48, ("classifier f", "anything that gives logits")),
        box(160, 118, 150, 48, ("discriminator g", "a small certified network")),
        box(368, 24, 92, 48, ("p_f(y|x)",)),
        box(368, 118, 92, 48, ("σ(g(x) + Δ)", "p(in | x)")),
        box(516, 62, 204, 66, ("p(y|x)", "p_f·σ(g + Δ) + (1 − σ(g + Δ))/K", "Eq. 3")),
        box(16, 220, 96, 60, ("all u", "with ‖u − x‖ ≤ ε", "in [0, 1]^d"), "proof"),
        box(160, 226, 150, 48, ("bounds of g", "intervals, planes, rounding"), "proof"),
        box(368, 226, 92, 48, ("ḡ(x)", "g(u) ≤ ḡ(x)"), "proof"),
        box(
            516,
            217,
            204,
            66,
            ("max p(y|u) is at most", "(K−1)/K·σ(ḡ(x) + Δ) + 1/K", "Eq. 4: f does not occur"),
            "proof",
        ),
    ]
    ways = [
        arrow((112, 90), (136, 90), (136, 48), (160, 48)),
        arrow((112, 102), (136, 102), (136, 142), (160, 142)),
        arrow((310, 48), (368, 48)),
        arrow((310, 142), (368, 142)),
        arrow((460, 48), (488, 48), (488, 84), (516, 84)),
        arrow((460, 142), (488, 142), (488, 106), (516, 106)),
        arrow((64, 126), (64, 220)),
        arrow((112, 250), (160, 250)),
        arrow((235, 166), (235, 226)),
        arrow((310, 250), (368, 250)),
        arrow((460, 250), (516, 250)),
    ]
    return drawing(
        "The way of an image through the joint model, and of its ball through the proof", 736, 300, *ways, *boxes
    )


def drawn() -> dict[str, str]:
    return {"rooms": rooms(), "certificate": certificate()}
