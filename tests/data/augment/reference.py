"""Augmentation with Pillow, one image at a time. Tests compare with it, and benchmarks/input.py races it."""

from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from prood.data.augment import OPERATIONS

NAMES = tuple(OPERATIONS)


def operation(image: Image.Image, name: str, value: float) -> Image.Image:
    """What `prood.data.augment.operate` does to one image."""
    grey = 128 if image.mode == "L" else (128, 128, 128)
    maps = {
        "ShearX": (1, value, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, value, 1, 0),
        "TranslateX": (1, 0, value, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, value),
    }
    if name in maps:
        return image.transform(image.size, Image.Transform.AFFINE, maps[name], Image.Resampling.NEAREST, fillcolor=grey)
    if name == "Rotate":
        return image.rotate(value, Image.Resampling.NEAREST, fillcolor=grey)
    if name in ("Color", "Contrast", "Brightness", "Sharpness"):
        return getattr(ImageEnhance, name)(image).enhance(value)
    if name == "Solarize":
        return ImageOps.solarize(image, value)
    if name == "Posterize":
        return ImageOps.posterize(image, int(value))
    if name in ("Invert", "AutoContrast", "Equalize"):
        return getattr(ImageOps, name.lower())(image)
    assert name == "Identity"
    return image


def value(name: str, magnitude: float, width: int, height: int) -> float:
    """What a signed magnitude means."""
    part = magnitude / 9
    if name in ("ShearX", "ShearY"):
        return 0.3 * part
    if name in ("TranslateX", "TranslateY"):
        return 150 / 331 * (width if name == "TranslateX" else height) * part
    if name == "Rotate":
        return 30 * part
    if name in ("Color", "Contrast", "Brightness", "Sharpness"):
        return 1 + 0.9 * part
    if name == "Solarize":
        return 256 * (1 - abs(part))
    if name == "Posterize":
        return 8 - round(4 * abs(part))
    return 0


def augmented(image: Image.Image, draw: list[float], *, pad: int = 0, cutout: int = 0) -> Image.Image:
    """What `Augment(pad, flip, autoaugment, cutout)` does to one image; `draw` is its row of draws."""
    rows, columns, flip, first, first_magnitude, second, second_magnitude, down, right, *_ = draw
    width, height = image.size
    if pad:
        left, top = pad + int(columns), pad + int(rows)
        image = ImageOps.expand(image, pad).crop((left, top, left + width, top + height))
    if flip:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    for code, magnitude in ((first, first_magnitude), (second, second_magnitude)):
        if code:
            name = NAMES[int(code)]
            image = operation(image, name, value(name, magnitude, width, height))
    if cutout:
        top, left = int(down * height) - cutout // 2, int(right * width) - cutout // 2
        image = image.copy()
        grey = 128 if image.mode == "L" else (128, 128, 128)
        ImageDraw.Draw(image).rectangle((left, top, left + cutout - 1, top + cutout - 1), fill=grey)
    return image
