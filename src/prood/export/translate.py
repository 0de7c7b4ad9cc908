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
        import onnx.numpy_helper  # of an optional package

        self.onnx: Any = onnx
        self.names: dict[fx.Node, str] = {}
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}

    def add(self, op: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """A node with one output; returns the name of that."""
        constants = [self.initializers[name] for name in inputs if name in self.initializers]
        if any(lost(op, self.onnx.numpy_helper.to_array(constant)) for constant in constants):
            raise Unsupported(f"a runtime may drop {op} with {inputs}: the bound cannot be exported")
        output = output or f"{op}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), [output], name=output, **attributes))
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
        if name not in self.initializers:
            self.initializers[name] = self.onnx.numpy_helper.from_array(array, name)
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
        dtype = torch.empty(0, dtype=kind).numpy().dtype
        return self.add("Cast", name, to=self.onnx.helper.np_dtype_to_tensor_dtype(dtype))


Translator = Callable[..., str]  # of the writer, a node and the node's arguments; returns the name of the result


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
        if _signature(node) != _signature(twin):
            raise Unsupported(f"{node} depends on the number of images: the bound cannot be exported")
        shapes = [getattr(one.meta.get("val"), "shape", ()) for one in (node, twin)]
        node.meta["sizes"] = [size if size == again else None for size, again in zip(*shapes, strict=True)]
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


def _signature(node: fx.Node) -> tuple[str, ...]:
    """The operator and its arguments, up to the sizes that a shape is made of."""
    shaping = str(node.target) in ("aten.reshape.default", "aten.expand.default")
    how = repr((node.args[: 1 if shaping else None], node.kwargs))  # in which a value is its name, and NaN equals NaN
    return node.op, node.name, str(node.target), how


def _arguments(node: fx.Node) -> tuple[Any, ...]:
    """Those by position. Named ones change what an operator does, but for the type, which the result shows."""
    unknown = {key: value for key, value in node.kwargs.items() if key not in ("dtype", "device", "pin_memory")}
    if unknown:
        raise Unsupported(f"the bound uses {node.target} with {unknown}, which the export does not know")
    return node.args
