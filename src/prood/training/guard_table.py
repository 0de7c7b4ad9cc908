"""The table of a recipe that `prood guard` works by."""

from dataclasses import dataclass

from prood.methods.declaring import Options, option


@dataclass(frozen=True)
class GuardTable(Options):
    """[guard]: what `prood guard` does with a recipe beside the training."""

    classifier: str | None = option(
        None, "the classifier to guard: model.onnx, timm:NAME, a run …; without one it is trained"
    )
    classes: str | None = option(None, "file with the names of the classifier's classes")
    weights: str | None = option(None, "file .safetensors for torchvision:NAME and timm:NAME")
    mean: tuple[float, ...] = option(
        (), "what the classifier subtracts from each channel, if not what it says itself", low=-1e9
    )
    std: tuple[float, ...] = option((), "standard deviation that then divides each channel", above=True)
    output: str | int | None = option(None, "name or number of the output with the logits")
    probabilities: bool | None = option(None, "whether it returns probabilities; without, inferred from a few images")
    image: tuple[int, ...] = option((), "images of the guarded classifier: channels, height, width", low=1)
    factor: int = option(1, "side of the squares that g averages first; it is trained on averaged images", low=1)
    accept: float = option(0.95, "share of the in-distribution to accept", high=1, above=True)
    level: float = option(0.95, "confidence in that share", high=1, above=True)
    provable: str = option("default", "share of the false rejections given to g, or a point: default, strong")
    shares: tuple[float, ...] = option(
        (0.15, 0.2, 0.15), "of inside: held back for choices, for calibration, for the test"
    )
    most: int = option(1000, "maximum images in each part except the training part", low=1)
    images: int = option(50_000, "maximum images from each folder, chosen by the seed", low=1)
    attacked: int = option(20, "test outliers to attack; 0 for none")
    minutes: float = option(10.0, "minutes for everything", above=True)
    seed: int = option(0, "seed for dividing the images into parts", high=2**32 - 1)
