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
    file: Annotated[
        Path, Argument(metavar="FILE.onnx|FOLDER", help="Where to write; with --vnnlib a folder, which must be new.")
    ],
    opset: Annotated[int, Option(help="Version of the operator set, 18 to 21.")] = 20,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace what an export wrote there.")] = False,
    vnnlib: Annotated[
        str | None,
        Option(metavar="SET", help="Write g alone and one VNN-LIB instance for each image of this set or folder."),
    ] = None,
    eps: Annotated[str | None, Option(help="With --vnnlib: radius of the ball, 0.01 or 8/255.")] = None,
    limit: Annotated[int, Option(help="With --vnnlib: images, a seeded choice.", min=1)] = 100,
    seed: Annotated[int, Option(help="With --vnnlib: of the choice of images.")] = 0,
    timeout: Annotated[int, Option(help="With --vnnlib: seconds for each instance.", min=1)] = 300,
    vnnlib_version: Annotated[str, Option(help="With --vnnlib: 2.0, or 1.0 for older tools.")] = "2.0",
    threshold: Annotated[
        float | None, Option(help="With --vnnlib: threshold of the confidence. Default: the model's own.")
    ] = None,
    trust_code: TrustCode = False,
) -> None:
    """Write a joint model and its certified bound as one ONNX file; or, with --vnnlib, instances for other verifiers.

    Its inputs are 'images' (N, C, H, W, float32 in [0, 1]) and 'eps', a radius; its outputs 'probabilities', 'p_in',
    'confidence' and 'upper_bound': no image of [0, 1]^d within eps has a confidence above that. The bound covers every
    value that the float32 network in the file can return, in any order of summation; docs/export.md says which runtimes
    keep to that. The file is compared with torch on a few images before it gets its name.

    With --vnnlib, FOLDER gets onnx/g.onnx, a VNN-LIB file for each image and instances.csv, as the tools of VNN-COMP
    read them: 'unsat' means that every image of the ball is rejected. See docs/guides/vnnlib.md.
    """
    from prood.detector import Detector

    if vnnlib is None:
        stray = {"--eps": eps, "--threshold": threshold}
        if given := [name for name, value in stray.items() if value is not None]:
            raise BadValue(f"{given[0]} belongs to --vnnlib SET: name the images to make instances of")
        _graph(run, file, opset=opset, overwrite=overwrite)
        return
    if eps is None:
        raise BadValue("instances are about a ball around each image: give its radius with --eps")
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
