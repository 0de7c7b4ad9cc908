"""What each operator of a trace is in ONNX.

Numbers take the type of the result or of the other operand. Sizes that depend on the number of images are left open.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx

from prood.errors import Unsupported
from prood.export.translate import Translator, Writer, kind_of, lost

TABLE: dict[str, Translator] = {}


def operator(*names: str) -> Callable[[Translator], Translator]:
    def decorate(translator: Translator) -> Translator:
        TABLE.update(dict.fromkeys((f"aten.{name}" for name in names), translator))
        return translator

    return decorate


def _elementwise(op: str) -> Translator:
    return lambda writer, node, *values: writer.add(op, *writer.like(node, *values))


def _comparison(op: str) -> Translator:
    def translator(writer: Writer, node: fx.Node, one: fx.Node, other: Any) -> str:
        kind = torch.promote_types(kind_of(one), kind_of(other)) if isinstance(other, fx.Node) else kind_of(one)
        result = writer.add(op.removeprefix("Not"), writer.value(one, kind), writer.value(other, kind))
        return writer.add("Not", result) if op.startswith("Not") else result

    return translator


_ARITHMETIC = {"add": "Add", "sub": "Sub", "div": "Div", "__and__": "And", "__iand__": "And", "__or__": "Or"}
_FUNCTIONS = {"abs": "Abs", "neg": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "exp": "Exp"}
_FUNCTIONS |= {"bitwise_not": "Not", "maximum": "Max", "minimum": "Min", "matmul": "MatMul", "bmm": "MatMul"}
_ORDERS = {"gt": "Greater", "lt": "Less", "ge": "GreaterOrEqual", "le": "LessOrEqual", "eq": "Equal", "ne": "NotEqual"}
for _name, _op in _ARITHMETIC.items():
    operator(f"{_name}.Tensor")(_elementwise(_op))
for _name, _op in _FUNCTIONS.items():
    operator(f"{_name}.default")(_elementwise(_op))
for _name, _op in _ORDERS.items():
    operator(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_op))


@operator("mul.Tensor")
def _product(writer: Writer, node: fx.Node, one: fx.Node, other: Any) -> str:
    """x·(1 + k) with a tiny k is written as x + x·k: a runtime may take the factor for a one, and drop it."""
    if isinstance(other, fx.Node) or not lost("Mul", np.asarray(other, dtype=np.float64)):
        return writer.add("Mul", *writer.like(node, one, other))
    (name,) = writer.like(node, one)
    return writer.add("Add", name, writer.add("Mul", name, writer.constant(other - 1, kind_of(node))))


@operator("to.dtype", "to.device", "alias.default", "lift_fresh_copy.default")
def _copy(writer: Writer, node: fx.Node, value: fx.Node, *_: Any) -> str:
    return writer.value(value, kind_of(node))


@operator("rsub.Scalar")
def _subtracted_from(writer: Writer, node: fx.Node, *values: Any) -> str:
    one, other = writer.like(node, *values)
    return writer.add("Sub", other, one)


@operator("where.self", "where.Scalar", "where.ScalarSelf", "where.ScalarOther")
def _where(writer: Writer, node: fx.Node, condition: fx.Node, *values: Any) -> str:
    chosen, (one, other) = writer.names[condition], writer.like(node, *values)
    if kind_of(node) != torch.bool:
        return writer.add("Where", chosen, one, other)
    rest = writer.add("And", writer.add("Not", chosen), other)  # runtimes cannot choose these
    return writer.add("Or", writer.add("And", chosen, one), rest)


@operator("clamp.default", "clamp_min.default")
def _clamp(writer: Writer, node: fx.Node, value: fx.Node, *ends: Any) -> str:
    result = writer.value(value, kind_of(node))
    for op, end in zip(("Max", "Min"), ends, strict=False):
        result = result if end is None else writer.add(op, result, writer.constant(end, kind_of(node)))
    return result


@operator("lerp.Scalar")
def _between(writer: Writer, node: fx.Node, *values: Any) -> str:
    low, high, weight = writer.like(node, *values)
    return writer.add("Add", low, writer.add("Mul", writer.add("Sub", high, low), weight))


@operator("isnan.default")
def _isnan(writer: Writer, node: fx.Node, value: fx.Node) -> str:
    return writer.add("IsNaN", writer.names[value])


@operator("softmax.int")
def _softmax(writer: Writer, node: fx.Node, value: fx.Node, axis: int, *_: Any) -> str:
    return writer.add("Softmax", *writer.like(node, value), axis=axis)


@operator("argmax.default")
def _argmax(writer: Writer, node: fx.Node, value: fx.Node, axis: int, keep: bool = False) -> str:
    return writer.add("ArgMax", writer.names[value], axis=axis, keepdims=int(keep))


_REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "all": "ReduceMin", "any": "ReduceMax"}


@operator("sum.dim_IntList", "mean.dim", "amax.default", "all.dim", "any.dim", "any.default")
def _reduction(writer: Writer, node: fx.Node, value: fx.Node, axes: Any = None, keep: bool = False) -> str:
    word = str(node.target).split(".")[1]
    truth = word in ("all", "any")
    name = writer.value(value, torch.int32 if truth else kind_of(node))
    if axes is None:
        axes = range(value.meta["val"].ndim)
    places = [axes] if isinstance(axes, int) else list(axes)
    if places:
        name = writer.add(_REDUCTIONS[word], name, writer.numbers(*places), keepdims=int(keep))
    return writer.cast(name, torch.bool) if truth else name


@operator("arange.default")
def _count(writer: Writer, node: fx.Node, end: int) -> str:
    return writer.numbers(*range(end))


@operator("linear.default")
def _linear(writer: Writer, node: fx.Node, *values: fx.Node | None) -> str:
    value, weight, *bias = writer.like(node, *(one for one in values if one))
    product = writer.add("MatMul", value, writer.add("Transpose", weight, perm=[1, 0]))
    return writer.add("Add", product, *bias) if bias else product


@operator("conv2d.default")
def _convolution(
    writer: Writer, node: fx.Node, value: fx.Node, weight: fx.Node, bias: fx.Node | None = None, *window: Any
) -> str:
    stride, padding, dilation = (*window, *((1, 1), (0, 0), (1, 1))[len(window) :])[:3]
    names = writer.like(node, *(one for one in (value, weight, bias) if one is not None))
    return writer.add("Conv", *names, strides=list(stride), pads=list(padding) * 2, dilations=list(dilation))


@operator("avg_pool2d.default")
def _average(writer: Writer, node: fx.Node, value: fx.Node, kernel: list[int], *_: Any) -> str:
    """Windows side by side, as `graph.layers_of` makes sure."""
    return writer.add("AveragePool", writer.names[value], kernel_shape=list(kernel), strides=list(kernel))


@operator("reshape.default", "unsqueeze.default", "squeeze.dim", "flatten.using_ints", "unflatten.int")
def _reshape(writer: Writer, node: fx.Node, value: fx.Node, *_: Any) -> str:
    shape = [-1 if size is None else size for size in node.meta["sizes"]]
    if shape.count(-1) > 1:
        raise Unsupported(f"two sizes of {node} depend on the number of images: the bound cannot be exported")
    return writer.add("Reshape", writer.names[value], writer.numbers(*shape))


@operator("expand.default")
def _expand(writer: Writer, node: fx.Node, value: fx.Node, *_: Any) -> str:
    before, sizes = value.meta["sizes"], node.meta["sizes"]
    before = [1] * (len(sizes) - len(before)) + before
    if any(size is None and was is not None for was, size in zip(before, sizes, strict=True)):
        raise Unsupported(f"{node} grows with the number of images: the bound cannot be exported")
    return writer.add("Expand", writer.names[value], writer.numbers(*(size or 1 for size in sizes)))


@operator("slice.Tensor")
def _slice(
    writer: Writer, node: fx.Node, value: fx.Node, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> str:
    limits = (start or 0, 2**62 if end is None else end, axis, step)
    return writer.add("Slice", writer.names[value], *map(writer.numbers, limits))


@operator("select.int")
def _select(writer: Writer, node: fx.Node, value: fx.Node, axis: int, place: int) -> str:
    return writer.add("Gather", writer.names[value], writer.constant(place, torch.int64), axis=axis)


@operator("index.Tensor")
def _index(writer: Writer, node: fx.Node, value: fx.Node, places: list[fx.Node | None]) -> str:
    """Entries along the first axis."""
    (place,) = places[:1] if len(places) == 1 else [None]
    if place is None or kind_of(place) != torch.int64:
        raise Unsupported(f"the bound uses {node.target} with {places}, which the export does not know")
    return writer.add("Gather", writer.names[value], writer.names[place], axis=0)


@operator("unbind.int")
def _unbind(writer: Writer, node: fx.Node, value: fx.Node, *axis: int) -> str:
    """Along the first axis; `getitem` takes the parts."""
    if axis not in ((), (0,)):
        raise Unsupported(f"the bound uses {node.target} along axis {axis}, which the export does not know")
    return writer.names[value]


TABLE["<built-in function getitem>"] = lambda writer, node, value, place: _select(writer, node, value, 0, place)


@operator("pad.default")
def _pad(
    writer: Writer, node: fx.Node, value: fx.Node, pads: list[int], mode: str = "constant", fill: Any = None
) -> str:
    if mode != "constant":
        raise Unsupported(f"the bound uses {node.target} with {mode!r}, which the export does not know")
    pairs = list(zip(pads[::2], pads[1::2], strict=True))[::-1]  # torch begins with the last axis
    pairs = [(0, 0)] * (value.meta["val"].ndim - len(pairs)) + pairs
    amounts = writer.numbers(*(before for before, _ in pairs), *(after for _, after in pairs))
    fills = [] if fill is None else [writer.constant(fill, kind_of(node))]
    return writer.add("Pad", writer.names[value], amounts, *fills)


@operator("permute.default")
def _permute(writer: Writer, node: fx.Node, value: fx.Node, order: list[int]) -> str:
    return writer.add("Transpose", writer.names[value], perm=list(order))


@operator("transpose.int", "numpy_T.default")
def _transpose(writer: Writer, node: fx.Node, value: fx.Node, one: int = 0, other: int = 1) -> str:
    order = list(range(value.meta["val"].ndim))
    order[one], order[other] = order[other], order[one]
    return writer.add("Transpose", writer.names[value], perm=order)


@operator("cat.default", "stack.default")
def _join(writer: Writer, node: fx.Node, values: list[fx.Node], axis: int = 0) -> str:
    names = writer.like(node, *values)
    if "stack" in str(node.target):
        names = [writer.add("Unsqueeze", name, writer.numbers(axis)) for name in names]
    return writer.add("Concat", *names, axis=axis)


@operator("zeros_like.default", "ones_like.default", "new_ones.default", "new_full.default")
def _full(writer: Writer, node: fx.Node, value: fx.Node, *how: Any) -> str:
    fill = how[1] if "new_full" in str(node.target) else int("ones" in str(node.target))
    if None not in node.meta["sizes"]:
        return writer.constant(np.full(node.meta["sizes"], fill).tolist(), kind_of(node))
    return writer.add("Expand", writer.constant(fill, kind_of(node)), writer.add("Shape", writer.names[value]))
