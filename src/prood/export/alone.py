"""g alone as a plain ONNX network: stock operators in float32, as tools that verify networks read them.

It is the same function as the deployed g over the reals. Its sums are not those of the deployed file, in order or in
blocks, so float32 results differ in their last digits. The far penalty is left out: it is 0 on images.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prood.bounds import NegativeLinear, Normalise
from prood.errors import Refuted
from prood.export.check import open_session
from prood.export.graph import layers_of
from prood.export.layers import FixedNegative
from prood.models import Committee, Discriminator
from prood.version import __version__

OPSET, IR = 13, 8
"""Old enough for all tools, and all that these operators need."""

INPUT, OUTPUT = "X", "Y"
TOLERANCE = 1e-4
"""How far the file's g may be from torch's, relative to 1 + |g|."""


def members_of(discriminator: Discriminator) -> list[Discriminator]:
    """The networks in the file: g itself, or each member of a committee, an output for each."""
    if isinstance(discriminator, Committee):
        return [member for member, _ in discriminator.pairs()]
    return [discriminator]


def network_model(discriminator: Discriminator, shape: tuple[int, int, int], facts: dict[str, str]) -> Any:
    """The ONNX model from one image X, (1, C, H, W), to Y, (1, members)."""
    from onnx import TensorProto, checker, helper

    writer = _Writer()
    members = members_of(discriminator)
    outputs = [writer.network(f"g{number}", layers_of(one)) for number, one in enumerate(members)]
    if len(outputs) > 1:
        writer.add("Concat", *outputs, axis=1, output=OUTPUT)
    else:
        writer.nodes[-1].output[0] = OUTPUT
    image = helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, *shape])
    found = helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, len(members)])
    graph = helper.make_graph(writer.nodes, "g", [image], [found], writer.initializers)
    versions = {"opset_imports": [helper.make_opsetid("", OPSET)], "ir_version": IR}
    model = helper.make_model(graph, **versions, producer_name="prood", producer_version=__version__)
    helper.set_model_props(model, facts)
    checker.check_model(model, full_check=True)
    return model


class _Writer:
    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []

    def add(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        output = output or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def keep(self, name: str, value: Tensor) -> str:
        from onnx import numpy_helper

        self.initializers.append(numpy_helper.from_array(value.detach().cpu().float().numpy(), name))
        return name

    def network(self, prefix: str, layers: list[nn.Module]) -> str:
        """The layers one after the other, from the image on; what there may be, `layers_of` says."""
        value = INPUT
        for place, layer in enumerate(layers):
            value = self.layer(f"{prefix}_{place}", layer, value)
        return value

    def layer(self, name: str, layer: nn.Module, value: str) -> str:
        if isinstance(layer, Normalise):
            value = self.add("Sub", value, self.keep(f"{name}_mean", layer.mean[None]))
            return self.add("Div", value, self.keep(f"{name}_std", layer.std[None]))
        if isinstance(layer, nn.Conv2d):
            weights = [self.keep(f"{name}_weight", layer.weight)]
            weights += [] if layer.bias is None else [self.keep(f"{name}_bias", layer.bias)]
            high, wide = (int(one) for one in layer.padding)
            how: dict[str, Any] = {
                "kernel_shape": layer.kernel_size,
                "strides": layer.stride,
                "dilations": layer.dilation,
            }
            return self.add("Conv", value, *weights, **how, pads=[high, wide, high, wide])
        if isinstance(layer, nn.AvgPool2d):
            size = layer.kernel_size
            size = (size, size) if isinstance(size, int) else size
            return self.add("AveragePool", value, kernel_shape=size, strides=size)
        if isinstance(layer, nn.Linear | NegativeLinear):
            fixed = FixedNegative.of(layer, torch.float32) if isinstance(layer, NegativeLinear) else layer
            bias = torch.zeros(len(fixed.weight)) if fixed.bias is None else fixed.bias
            weights = [self.keep(f"{name}_weight", fixed.weight), self.keep(f"{name}_bias", bias)]
            return self.add("Gemm", value, *weights, transB=1)
        if isinstance(layer, nn.Flatten):
            return self.add("Flatten", value, axis=1)
        assert isinstance(layer, nn.ReLU)  # `layers_of` lets no other pass
        return self.add("Relu", value)


@torch.no_grad()
def check_network(content: bytes, discriminator: Discriminator, images: Tensor) -> float:
    """The largest difference between ONNX Runtime and torch over these images, relative to 1 + |g|; or an error."""
    session = open_session(content)
    members, worst = members_of(discriminator.cpu().eval()), 0.0
    for image in images:
        found = session.run([OUTPUT], {INPUT: image[None].numpy()})[0][0]
        expected = np.array([member(image[None]).item() for member in members])
        worst = max(worst, float(np.max(np.abs(found - expected) / (1 + np.abs(expected)))))
    if not worst <= TOLERANCE:
        raise Refuted(f"ONNX Runtime and torch differ by {worst:g} in g: the network was not exported faithfully")
    return worst
