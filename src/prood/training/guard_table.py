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
    std: tuple[float, ...] = option((), "what it then divides each channel by", above=True)
    output: str | int | None = option(None, "which of several outputs are the logits: a name or a number")
    probabilities: bool | None = option(None, "whether it returns probabilities; without, it is seen from a few images")
    image: tuple[int, ...] = option((), "images that the guarded classifier takes: channels, height, width", low=1)
    factor: int = option(1, "g averages squares of this side first, and is trained on images averaged down", low=1)
    accept: float = option(0.95, "share of the in-distribution to accept", high=1, above=True)
    level: float = option(0.95, "confidence of the calibration", high=1, above=True)
    provable: str = option("default", "share of the false rejections that g spends, or a point: default, strong")
    shares: tuple[float, ...] = option(
        (0.15, 0.2, 0.15), "of inside: held back for choices, for calibration, for the test"
    )
    most: int = option(1000, "images at most of each part but the one that is trained on", low=1)
    images: int = option(50_000, "images of each folder to use at most, chosen by the seed", low=1)
    attacked: int = option(20, "test outliers that are attacked; 0 for none")
    minutes: float = option(10.0, "the whole of it is planned for this time", above=True)
    seed: int = option(0, "of the parts that the images are divided into", high=2**32 - 1)
