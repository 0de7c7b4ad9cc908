"""A traced module as ONNX nodes, operator by operator.

The exporter of torch is made for networks. Here constants like 1 + 2⁻⁵⁰ carry a proof: nothing may pass through float32
on its way or be simplified. So each operator of the trace becomes one or a few nodes that mean the same
(`operators.py`), and one without a translation is an error.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

from prood.errors import Unsupported


def lost(op: str, constant: np.ndarray[Any, Any]) -> bool:
    """Whether an optimiser that looks at a number in float32 would take this operation for one that does nothing.

    ONNX Runtime 1.31 does, when it removes products with 1 and sums with 0 in float64. What rounds a bound outwards is
    a factor of 1 + 2⁻⁵⁰.
    """
    nothing = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0}.get(op)
    if nothing is None or constant.size != 1 or constant.dtype != np.float64:
        return False
    return bool(constant.astype(np.float32).item() == nothing != constant.item())


class Writer:
    """Collects nodes and constants; `names` says what the values of the trace are called."""

    def __init__(self) -> None:
        self.names: dict[fx.Node, str] = {}
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}

    def add(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """A node with one output; returns the name of that."""
        from onnx import helper, numpy_helper

        constants = [numpy_helper.to_array(self.initializers[name]) for name in inputs if name in self.initializers]
        if any(lost(op, constant) for constant in constants):
            raise Unsupported(f"a runtime may drop {op} with {inputs}: the bound cannot be exported")
        output = output or f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, value: Any, kind: torch.dtype) -> str:
        """A number, or a list of them, in this type, which must hold it."""
        if isinstance(value, float) and not kind.is_floating_point:
            raise Unsupported(f"the number {value} would be cut to {kind}: the bound cannot be exported")
        array = torch.tensor(value, dtype=kind).numpy()
        return self.keep(f"{array.dtype}_{array.tolist()}", array)

    def numbers(self, *values: int) -> str:
        """A list of whole numbers, as shapes and axes are."""
        return self.constant(values, torch.int64)

    def keep(self, name: str, array: np.ndarray[Any, Any]) -> str:
        """A tensor that the file holds, once under each name."""
        from onnx import numpy_helper

        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(array, name)
        return name

    def value(self, argument: Any, kind: torch.dtype) -> str:
        """A value of the trace, cast if need be, or a number."""
        if not isinstance(argument, fx.Node):
            return self.constant(argument, kind)
        name = self.names[argument]
        return name if kind_of(argument) == kind else self.cast(name, kind)

    def like(self, node: fx.Node, *arguments: Any) -> list[str]:
        """Values of the trace and numbers, all in the type of what `node` gives."""
        return [self.value(argument, kind_of(node)) for argument in arguments]

    def cast(self, name: str, kind: torch.dtype) -> str:
        from onnx import helper

        return self.add("Cast", name, to=helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=kind).numpy().dtype))


Translator = Callable[..., str]
"""Of the writer, a node of the trace and that node's arguments; returns the name of the result."""


def kind_of(node: fx.Node) -> torch.dtype:
    kind: torch.dtype = node.meta["val"].dtype
    return kind


def trace(module: nn.Module, *examples: Tensor) -> fx.GraphModule:
    """The operators that the module applies to tensors of these shapes; nothing is computed."""
    with torch.no_grad():
        traced = make_fx(module, tracing_mode="fake", pre_dispatch=True, _allow_non_fake_inputs=True)(*examples)
    traced.graph.eliminate_dead_code()
    return traced


def translate(
    traces: Sequence[fx.GraphModule], table: dict[str, Translator], inputs: Sequence[str], outputs: Sequence[str]
) -> Writer:
    """The nodes of a module that was traced twice, with two numbers of images.

    What differs between the traces depends on that number. Only sizes may, and they are left open.
    """
    writer, given = Writer(), iter(inputs)
    nodes, twins = (list(one.graph.nodes) for one in traces)
    if len(nodes) != len(twins):
        raise Unsupported("the number of operators depends on the number of images: the bound cannot be exported")
    for node, twin in zip(nodes, twins, strict=True):
        if not _alike(node, twin):
            raise Unsupported(f"{node} depends on the number of images: the bound cannot be exported")
        node.meta["sizes"] = _sizes(node, twin)
        if node.op == "placeholder":
            writer.names[node] = next(given)
        elif node.op == "get_attr":
            writer.names[node] = writer.keep(node.target.lstrip("_"), getattr(traces[0], node.target).detach().numpy())
        elif node.op == "call_function":
            if str(node.target) not in table:
                raise Unsupported(f"the bound uses the operator {node.target}, which the export does not know")
            writer.names[node] = table[str(node.target)](writer, node, *_arguments(node))
        elif node.op == "output":
            for result, output in zip(node.args[0], outputs, strict=True):
                writer.add("Identity", writer.names[result], output=output)
    return writer


def _alike(node: fx.Node, twin: fx.Node) -> bool:
    """The same operator with the same arguments, up to the sizes that a shape is made of."""
    if (node.op, node.name, str(node.target)) != (twin.op, twin.name, str(twin.target)):
        return False
    shaping = str(node.target) in ("aten.reshape.default", "aten.expand.default")
    how, again = (repr((entry.args[: 1 if shaping else None], entry.kwargs)) for entry in (node, twin))
    return how == again  # as text, in which a value is its name, and NaN is equal to itself


def _sizes(node: fx.Node, twin: fx.Node) -> list[int | None]:
    """The shape of a result, with None for sizes that depend on the number of images."""
    value, again = node.meta.get("val"), twin.meta.get("val")
    if not (isinstance(value, Tensor) and isinstance(again, Tensor)):
        return []
    return [size if size == changed else None for size, changed in zip(value.shape, again.shape, strict=True)]


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    """Those by position. Named ones change what an operator does, but for the type, which the result shows."""
    unknown = {key: value for key, value in node.kwargs.items() if key not in ("dtype", "device", "pin_memory")}
    if unknown:
        raise Unsupported(f"the bound uses {node.target} with {unknown}, which the export does not know")
    return node.args
