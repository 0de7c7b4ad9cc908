"""Draws the pictures that come with the shipped models, measures them, and writes those that were picked.

    python benchmarks/pictures.py cifar10 --inside cifar10:train

All are drawn by this program from a kind and a seed: nobody else's picture is in them. For each kind of drawing that
shows nothing the model knows, it counts how many of the seeds 0, 1, 2 are provably rejected at the model's own radius.
What was picked, and why, stands in PICKED. With `--inside` it also measures the threshold of the classifier alone, on
the 1,000 images that training held back.
"""

import argparse
import json
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

import prood
from prood import data
from prood.models import read_metadata
from prood.models.confidence import confidence_of, threshold_at
from prood.serve.work import Bare

SIZE, SEEDS = 256, 3
FOLDER = Path(__file__).parents[1] / "src" / "prood" / "pretrained"
Draw = Callable[[random.Random], Image.Image]


def shade(random: random.Random, low: int = 0, high: int = 255) -> tuple[int, int, int]:
    return random.randint(low, high), random.randint(low, high), random.randint(low, high)


def two(random: random.Random) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    while True:
        first, second = shade(random), shade(random)
        if abs(sum(first) - sum(second)) > 200:
            return first, second


def sheet(colour: tuple[int, int, int]) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    image = Image.new("RGB", (SIZE, SIZE), colour)
    return image, ImageDraw.Draw(image)


def where(mask: np.ndarray, colours: tuple[tuple[int, int, int], tuple[int, int, int]]) -> Image.Image:
    return Image.fromarray(np.where(mask[..., None], *colours).astype(np.uint8))


def cells(count: int) -> list[tuple[float, float, float]]:
    half = SIZE / count / 2
    return [((2 * i + 1) * half, (2 * j + 1) * half, half) for i in range(count) for j in range(count)]


def checkers(random: random.Random) -> Image.Image:
    side = random.choice([32, 42, 64])
    y, x = np.mgrid[:SIZE, :SIZE] // side
    return where((x + y) % 2 == 0, two(random))


def stripes(random: random.Random) -> Image.Image:
    angle, width = random.uniform(0, math.pi), random.choice([24, 32, 48])
    y, x = np.mgrid[:SIZE, :SIZE]
    return where((x * math.cos(angle) + y * math.sin(angle)) // width % 2 == 0, two(random))


def rings(random: random.Random) -> Image.Image:
    middle, width = (random.uniform(90, 166), random.uniform(90, 166)), random.choice([20, 28, 36])
    y, x = np.mgrid[:SIZE, :SIZE]
    return where(np.hypot(x - middle[0], y - middle[1]) // width % 2 == 0, two(random))


def dots(random: random.Random) -> Image.Image:
    ground, ink = two(random)
    image, draw = sheet(ground)
    for x, y, half in cells(random.choice([4, 5, 6])):
        draw.circle((x, y), 0.6 * half, fill=ink)
    return image


def crosses(random: random.Random) -> Image.Image:
    ground, ink = two(random)
    image, draw = sheet(ground)
    for x, y, half in cells(4):
        draw.line([x - 0.6 * half, y, x + 0.6 * half, y], fill=ink, width=11)
        draw.line([x, y - 0.6 * half, x, y + 0.6 * half], fill=ink, width=11)
    return image


def bricks(random: random.Random) -> Image.Image:
    base, (image, draw) = (random.randint(140, 190), random.randint(60, 90), 55), sheet((205, 200, 190))
    for row in range(8):
        for column in range(-1, 5):
            colour = tuple(value + random.randint(-25, 25) for value in base)
            left, top = 64 * column + 32 * (row % 2), 32 * row
            draw.rectangle([left + 3, top + 3, left + 61, top + 29], fill=colour)
    return image


def code(random: random.Random) -> Image.Image:
    squares = np.array([[random.choice([20, 240]) for _ in range(16)] for _ in range(16)], np.uint8)
    return Image.fromarray(squares.repeat(16, 0).repeat(16, 1)).convert("RGB")


def maze(random: random.Random) -> Image.Image:
    image, draw = sheet((240, 236, 225))
    for x, y, half in cells(8):
        down = random.choice([half, -half])
        draw.line([x - half, y - down, x + half, y + down], fill=(30, 60, 110), width=9)
    return image


def spiral(random: random.Random) -> Image.Image:
    ground, ink = two(random)
    image, draw = sheet(ground)
    points = [(128 + 5.2 * t * math.cos(t), 128 + 5.2 * t * math.sin(t)) for t in np.arange(0, 24, 0.05)]
    draw.line(points, fill=ink, width=12)
    return image


def confetti(random: random.Random) -> Image.Image:
    image, draw = sheet((250, 250, 250))
    for _ in range(70):
        draw.circle((random.uniform(0, SIZE), random.uniform(0, SIZE)), random.uniform(6, 18), fill=shade(random))
    return image


def letter(random: random.Random) -> Image.Image:
    ground, ink = two(random)
    image, draw = sheet(ground)
    draw.text((128, 128), random.choice("AEFHKMNTXZ"), ink, ImageFont.load_default(size=220), anchor="mm")
    return image


def smiley(random: random.Random) -> Image.Image:
    image, draw = sheet(shade(random, 40, 235))
    draw.ellipse([28, 28, 228, 228], fill=(250, 210, 40), outline=(40, 30, 0), width=6)
    for x in (92, 164):
        draw.ellipse([x - 13, 88, x + 13, 124], fill=(30, 20, 0))
    draw.arc([78, 90, 178, 190], 20, 160, fill=(30, 20, 0), width=10)
    return image


def star(random: random.Random) -> Image.Image:
    ground, ink = two(random)
    image, draw = sheet(ground)
    turn, count = random.uniform(0, 2 * math.pi), random.choice([5, 6, 8])
    angles = [(turn + math.pi * k / count, 48 if k % 2 else 110) for k in range(2 * count)]
    draw.polygon([(128 + far * math.cos(at), 128 + far * math.sin(at)) for at, far in angles], fill=ink)
    return image


def clock(random: random.Random) -> Image.Image:
    image, draw = sheet(shade(random, 40, 235))
    draw.ellipse([24, 24, 232, 232], fill=(245, 245, 240), outline=(20, 20, 20), width=10)
    marks = [(math.pi * k / 6, 84, 96, 6) for k in range(12)]
    for at, begin, end, width in [
        *marks,
        *((random.uniform(0, 2 * math.pi), 0, *hand) for hand in ((50, 12), (80, 7))),
    ]:
        x, y = math.cos(at), math.sin(at)
        draw.line([128 + begin * x, 128 + begin * y, 128 + end * x, 128 + end * y], fill=(20, 20, 20), width=width)
    return image


def flower(random: random.Random) -> Image.Image:
    image, draw = sheet((70, 130, 60))
    colour, count = shade(random, 120, 255), random.choice([6, 8])
    for k in range(count):
        at = 2 * math.pi * k / count
        draw.circle((128 + 62 * math.cos(at), 128 + 62 * math.sin(at)), 40, fill=colour)
    draw.circle((128, 128), 34, fill=(245, 210, 60))
    return image


def house(random: random.Random) -> Image.Image:
    image, draw = sheet((150, 195, 235))
    draw.rectangle([0, 200, 256, 256], fill=(90, 150, 70))
    draw.rectangle([64, 110, 192, 214], fill=shade(random, 120, 230))
    draw.polygon([(50, 112), (128, 46), (206, 112)], fill=(150, 50, 40))
    draw.rectangle([112, 150, 144, 214], fill=(90, 60, 40))
    for x in (74, 156):
        draw.rectangle([x, 128, x + 26, 152], fill=(240, 240, 200))
    return image


def sky(random: random.Random) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    down = np.linspace(0, 1, SIZE)[:, None, None]
    high = np.array([random.randint(60, 130), random.randint(120, 175), random.randint(190, 235)])
    clouds = np.array([[random.gauss(0, 5) for _ in range(32)] for _ in range(32)]).repeat(8, 0).repeat(8, 1)
    pixels = high * (1 - down) + np.array([190, 215, 240]) * down + clouds[..., None]
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    return image, ImageDraw.Draw(image)


def airplane(random: random.Random) -> Image.Image:
    mask = Image.new("L", (SIZE, SIZE))
    half = [(128, 10), (148, 80), (238, 170), (238, 188), (150, 160), (148, 210), (176, 236), (128, 236)]
    ImageDraw.Draw(mask).polygon([*half, *((256 - x, y) for x, y in reversed(half))], fill=255)
    turned = mask.rotate(random.uniform(-180, 180), resample=Image.Resampling.BICUBIC)
    return Image.composite(Image.new("RGB", mask.size, (90, 95, 105)), sky(random)[0], turned)


def ship(random: random.Random) -> Image.Image:
    (image, draw), green = sky(random), random.randint(40, 90)
    draw.rectangle([0, 170, SIZE, SIZE], fill=(30, green, green + 50))
    draw.polygon([(30, 150), (226, 150), (200, 196), (56, 196)], fill=(random.randint(120, 180), 40, 40))
    draw.rectangle([80, 112, 170, 150], fill=(240, 240, 240))
    draw.rectangle([120, 70, 142, 112], fill=(40, 40, 40))
    return image


def truck(random: random.Random) -> Image.Image:
    image, draw = sky(random)
    draw.rectangle([0, 180, SIZE, SIZE], fill=(120, 118, 110))
    draw.rectangle([20, 60, 160, 176], fill=(235, 235, 235))
    draw.rectangle([164, 92, 232, 176], fill=shade(random, 60, 240))
    draw.rectangle([188, 102, 228, 134], fill=(180, 215, 235))
    for x in (58, 120, 200):
        draw.circle((x, 180), 22, fill=(25, 25, 25))
        draw.circle((x, 180), 9, fill=(150, 150, 150))
    return image


PATTERNS: tuple[Draw, ...] = (checkers, stripes, rings, dots, crosses, bricks, code, maze, spiral, confetti, letter)
THINGS: tuple[Draw, ...] = (smiley, star, clock, flower, house)
KNOWN: dict[str, tuple[tuple[Draw, int], ...]] = {
    "cifar10": ((ship, 0), (airplane, 0), (truck, 0)),
    "cifar100": ((house, 0), (clock, 2), (flower, 2)),
}
PICKED: dict[str, tuple[tuple[Draw, int], ...]] = {
    "cifar10": ((clock, 2), (code, 0), (star, 1), (crosses, 0), (house, 0)),
    "cifar100": ((crosses, 2), (confetti, 2), (code, 2), (bricks, 1), (rings, 1)),
}
"""The page opens on the first. Three that are proven, one that is rejected without a proof, and one mistake."""


def drawn(draw: Draw, seed: int) -> Image.Image:
    return draw(random.Random(f"{draw.__name__} {seed}")).resize((32, 32), Image.Resampling.LANCZOS)


def measured(name: str, detector: prood.Detector, eps: float) -> tuple[int, int]:
    """How many kinds of drawings of what it does not know there are, and how many drawings are provably rejected."""
    known = [draw for draw, _ in KNOWN[name]]
    kinds = [draw for draw in (*PATTERNS, *THINGS) if draw not in known]
    proven = 0
    for draw in (*kinds, *known):
        pictures = [drawn(draw, seed) for seed in range(SEEDS)]
        sure = detector.certify(pictures, eps).rejected
        proven += int(sure.sum()) if draw in kinds else 0
        for seed, one in enumerate(detector.predict(pictures)):
            verdict = "provably rejected" if sure[seed] else one.reason or "accepted"
            print(f"{draw.__name__:<9} {seed}  {one.name} {one.confidence:.3f} {verdict}", flush=True)
    return len(kinds), proven


def write(name: str, eps: float, kinds: int, proven: int, threshold: float | None) -> None:
    folder, pictures = FOLDER / name, []
    folder.mkdir(exist_ok=True)
    picks = [("out", *one) for one in PICKED[name]] + [("in", *one) for one in KNOWN[name]]
    for kind, draw, seed in picks:
        drawn(draw, seed).save(folder / (file := f"{draw.__name__}.png"), optimize=True)
        pictures.append({"name": draw.__name__, "kind": kind, "file": file})
    made = "Drawn by a program of Prood’s own"
    how = {
        "out": f"{made}. Of {SEEDS * kinds} drawings of {kinds} kinds, {proven} are provably rejected at ε = {eps:g}. "
        "Picked by hand: three of these, by which the classifier alone can be fooled, one rejected without a proof, "
        "and one wrongly accepted.",
        "in": f"{made}, no photographs. Picked by hand among kinds that the model recognises.",
    }
    facts = {"pictures": pictures, "how": how, "classifier_threshold": threshold}
    (folder / "gallery.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def alone(detector: prood.Detector, inside: str) -> float:
    """The confidence from which the classifier alone accepts as large a share of held-back images as the model."""
    held, bare = data.open_set(inside).divided(1000, seed=0)[1].load(), Bare(detector)
    images = held.floats(torch.arange(1000))
    scores = np.concatenate([bare.scores(part) for part in torch.split(images, 100)])
    return confidence_of(threshold_at(scores, detector.accept or 0.95), detector.count)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws, measures and writes the pictures of a shipped model.")
    parser.add_argument("model", choices=sorted(PICKED))
    parser.add_argument("--inside", help="measure the threshold of the classifier alone on this set's held-back images")
    options = parser.parse_args()
    name, detector = options.model, prood.Detector.load(options.model)
    file, eps = FOLDER / name / "gallery.json", read_metadata(name).eps or 0.01
    threshold = json.loads(file.read_text("utf-8"))["classifier_threshold"] if file.is_file() else None
    if options.inside:
        threshold = alone(detector, options.inside)
    write(name, eps, *measured(name, detector, eps), threshold)


if __name__ == "__main__":
    main()
