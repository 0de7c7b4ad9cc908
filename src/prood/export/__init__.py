"""One ONNX file from images and a radius to probabilities and a certified bound of the confidence (docs/export.md).

And g alone with VNN-LIB instances, for others to check what is proven (docs/guides/vnnlib.md).
"""

from prood.export.check import Agreement, check, open_session, run
from prood.export.graph import INPUTS, OUTPUTS
from prood.export.vnnlib import VnnLib, export_vnnlib
from prood.export.write import OPSET, OPSETS, export

__all__ = [
    "INPUTS",
    "OPSET",
    "OPSETS",
    "OUTPUTS",
    "Agreement",
    "VnnLib",
    "check",
    "export",
    "export_vnnlib",
    "open_session",
    "run",
]
