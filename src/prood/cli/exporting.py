"""prood export: the model and its proof for other programs"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from prood.cli.options import JointModel, TrustCode
from prood.errors import BadValue, Unsupported

if TYPE_CHECKING:
    from prood.detector import Detector


def export(
    run: JointModel,
    file: Annotated[Path, Argument(metavar="FILE.onnx|FOLDER", help="File to write; with --vnnlib, a new folder.")],
    opset: Annotated[int, Option(help="Version of the ONNX operator set, 18 to 21.")] = 20,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace an earlier export.")] = False,
    vnnlib: Annotated[
        str | None,
        Option(metavar="SET", help="Write g alone, and a VNN-LIB instance for each image in this set or folder."),
    ] = None,
    eps: Annotated[str | None, Option(help="With --vnnlib: radius of the ball, e.g. 0.01 or 8/255.")] = None,
    limit: Annotated[int, Option(help="With --vnnlib: number of images, chosen at random.", min=1)] = 100,
    seed: Annotated[int, Option(help="With --vnnlib: seed for that choice.")] = 0,
    timeout: Annotated[int, Option(help="With --vnnlib: seconds for each instance.", min=1)] = 300,
    vnnlib_version: Annotated[str, Option(help="With --vnnlib: 2.0, or 1.0 for older tools.")] = "2.0",
    threshold: Annotated[
        float | None, Option(help="With --vnnlib: threshold of the confidence. Default: the model's.")
    ] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write a joint model with its certified bound as one ONNX file.

    Inputs: 'images' (N, C, H, W, float32 in [0, 1]) and 'eps', a radius. Outputs: 'probabilities', 'p_in', 'confidence'
    and 'upper_bound', which no confidence within eps exceeds. The bound covers every value that the float32 network can
    return, in any order of summation. Prood compares the file with torch on a few images. See docs/export.md.

    With --vnnlib, FOLDER gets onnx/g.onnx, a VNN-LIB file for each image, and instances.csv in VNN-COMP's format, so
    that other verifiers can check g. 'unsat' means that every image in the ball is rejected. See docs/guides/vnnlib.md.
    """
    from prood.detector import Detector

    if vnnlib is None:
        stray = {"--eps": eps, "--threshold": threshold}
        if given := [name for name, value in stray.items() if value is not None]:
            raise BadValue(f"{given[0]} needs --vnnlib SET: name the images for the instances")
        _graph(run, file, opset=opset, overwrite=overwrite)
        return
    if eps is None:
        raise BadValue("--vnnlib needs the radius of the ball: give it with --eps, e.g. --eps 0.01")
    detector = Detector.load(run, trust_code=trust_code)
    if threshold is not None:
        detector.threshold = threshold
    if detector.threshold is None:
        raise Unsupported(f"{run} has no threshold: set one with 'prood calibrate', or give --threshold")
    how = {"version": vnnlib_version, "timeout": timeout, "overwrite": overwrite}
    _instances(detector, file, vnnlib, eps, limit, seed, how)


def _graph(run: str, file: Path, **how: Any) -> None:
    from prood.export import export as write

    found = write(run, file, **how)
    print(f"wrote {file}")
    differences = f"{found.probabilities:.1g} in a probability and {found.upper_bound:.1g} in a bound"
    print(f"ONNX Runtime and torch differ by at most {differences} ({found.images} images)")


def _instances(
    detector: "Detector", folder: Path, images: str, eps: str, limit: int, seed: int, how: dict[str, Any]
) -> None:
    from prood import data
    from prood.bounds.options import checked_radius
    from prood.export import VnnLib, export_vnnlib

    name = f"folder:{images}" if Path(images).is_dir() else images
    chosen = data.open_set(name, shape=detector.shape, count=limit, seed=seed, split="test").subset(limit, seed).load()
    facts = {"set": name, "limit": limit, "seed": seed, "fingerprint": chosen.fingerprint()}
    names = [f"{chosen.name}, image {number} of the choice" for number in range(len(chosen))]
    options = VnnLib(checked_radius(eps), names=names, facts=facts, **how)
    found = export_vnnlib(detector, chosen, folder, options)
    thresholds = " and ".join(f"{one:g}" for one in found.thresholds)
    print(f"wrote {folder}: {found.instances} instances, g ≥ {thresholds} within {options.eps:g}")
    print(f"ONNX Runtime and torch differ by at most {found.difference:.1g} in g, relative to 1 + |g|")
