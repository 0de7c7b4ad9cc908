"""One ONNX file from images and a radius to probabilities and a certified bound of the confidence (docs/export.md)."""

from prood.export.check import Agreement, check, open_session, run
from prood.export.graph import INPUTS, OUTPUTS
from prood.export.write import OPSET, OPSETS, export

__all__ = ["INPUTS", "OPSET", "OPSETS", "OUTPUTS", "Agreement", "check", "export", "open_session", "run"]
