"""What each operator that computes is in ONNX. Numbers take the type of the result, or of what they meet."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import fx

from prood.errors import Unsupported
from prood.export.translate import Translator, Writer, lost

TABLE: dict[str, Translator] = {}


def operator(*names: str) -> Callable[[Translator], Translator]:
    def decorate(translator: Translator) -> Translator:
        TABLE.update(dict.fromkeys((f"aten.{name}" for name in names), translator))
        return translator

    return decorate


def kind_of(node: Any) -> torch.dtype:
    kind: torch.dtype = node.meta["val"].dtype
    return kind


def arguments(node: fx.Node) -> tuple[Any, ...]:
    """The arguments. Named ones change what an operator does, but for the type, which the result shows."""
    unknown = {key: value for key, value in node.kwargs.items() if key not in ("dtype", "device", "pin_memory")}
    if unknown:
        raise Unsupported(f"the bound uses {node.target} with {unknown}, which the export does not know")
    return node.args


def _elementwise(op: str) -> Translator:
    def translator(writer: Writer, node: fx.Node) -> str:
        return writer.add(op, *(writer.value(argument, kind_of(node)) for argument in arguments(node)))

    return translator


def _comparison(op: str) -> Translator:
    def translator(writer: Writer, node: fx.Node) -> str:
        one, other = arguments(node)
        kind = torch.promote_types(kind_of(one), kind_of(other)) if isinstance(other, fx.Node) else kind_of(one)
        result = writer.add(op.removeprefix("Not"), writer.value(one, kind), writer.value(other, kind))
        return writer.add("Not", result) if op.startswith("Not") else result

    return translator


@operator("mul.Tensor")
def _product(writer: Writer, node: fx.Node) -> str:
    """x·(1 + k) with a tiny k is written as x + x·k: a runtime may take the factor for a one, and drop it."""
    one, other = arguments(node)
    if isinstance(other, fx.Node) or not lost("Mul", np.asarray(other, dtype=np.float64)):
        return _elementwise("Mul")(writer, node)
    name = writer.value(one, kind_of(node))
    return writer.add("Add", name, writer.add("Mul", name, writer.constant(other - 1, kind_of(node))))


_ELEMENTWISE = {
    "Add": ["add.Tensor"],
    "Sub": ["sub.Tensor"],
    "Div": ["div.Tensor"],
    "Max": ["maximum.default"],
    "Min": ["minimum.default"],
    "Abs": ["abs.default"],
    "Neg": ["neg.default"],
    "Reciprocal": ["reciprocal.default"],
    "Relu": ["relu.default"],
    "Exp": ["exp.default"],
    "And": ["__and__.Tensor", "__iand__.Tensor"],
    "Or": ["__or__.Tensor"],
    "Not": ["bitwise_not.default"],
    "MatMul": ["matmul.default", "bmm.default"],
}
_COMPARISONS = {
    "Greater": "gt",
    "Less": "lt",
    "GreaterOrEqual": "ge",
    "LessOrEqual": "le",
    "Equal": "eq",
    "NotEqual": "ne",
}
for _op, _names in _ELEMENTWISE.items():
    operator(*_names)(_elementwise(_op))
for _op, _name in _COMPARISONS.items():
    operator(f"{_name}.Tensor", f"{_name}.Scalar")(_comparison(_op))


@operator("to.dtype", "to.device", "alias.default", "lift_fresh_copy.default")
def _copy(writer: Writer, node: fx.Node) -> str:
    return writer.value(node.args[0], kind_of(node))


@operator("rsub.Scalar")
def _subtracted_from(writer: Writer, node: fx.Node) -> str:
    one, other = (writer.value(argument, kind_of(node)) for argument in arguments(node))
    return writer.add("Sub", other, one)


@operator("where.self", "where.Scalar", "where.ScalarSelf", "where.ScalarOther")
def _where(writer: Writer, node: fx.Node) -> str:
    condition, *values = arguments(node)
    names = [writer.value(value, kind_of(node)) for value in values]
    if kind_of(node) != torch.bool:
        return writer.add("Where", writer.names[condition], *names)
    rest = writer.add("And", writer.add("Not", writer.names[condition]), names[1])  # runtimes cannot choose these
    return writer.add("Or", writer.add("And", writer.names[condition], names[0]), rest)


@operator("clamp.default", "clamp_min.default")
def _clamp(writer: Writer, node: fx.Node) -> str:
    value, *ends = arguments(node)
    result = writer.value(value, kind_of(node))
    for op, end in zip(("Max", "Min"), ends, strict=False):
        result = result if end is None else writer.add(op, result, writer.constant(end, kind_of(node)))
    return result


@operator("lerp.Scalar")
def _between(writer: Writer, node: fx.Node) -> str:
    low, high, weight = (writer.value(argument, kind_of(node)) for argument in arguments(node))
    return writer.add("Add", low, writer.add("Mul", writer.add("Sub", high, low), weight))


@operator("isnan.default")
def _isnan(writer: Writer, node: fx.Node) -> str:
    (value,) = arguments(node)
    return writer.add("IsNaN", writer.names[value])


@operator("softmax.int")
def _softmax(writer: Writer, node: fx.Node) -> str:
    value, axis, *_ = arguments(node)
    return writer.add("Softmax", writer.value(value, kind_of(node)), axis=axis)


@operator("argmax.default")
def _argmax(writer: Writer, node: fx.Node) -> str:
    value, axis, keep = (*arguments(node), False)[:3]
    return writer.add("ArgMax", writer.names[value], axis=axis, keepdims=int(keep))


_REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "all": "ReduceMin", "any": "ReduceMax"}


@operator("sum.dim_IntList", "mean.dim", "amax.default", "all.dim", "any.dim", "any.default")
def _reduction(writer: Writer, node: fx.Node) -> str:
    value, axes, keep, *_ = (*arguments(node), None, None)
    if axes is None:
        axes = list(range(value.meta["val"].ndim))
    word = str(node.target).split(".")[1]
    truth = word in ("all", "any")
    name = writer.value(value, torch.int32 if truth else kind_of(node))
    if axes != []:
        places = writer.numbers(*([axes] if isinstance(axes, int) else axes))
        name = writer.add(_REDUCTIONS[word], name, places, keepdims=int(bool(keep)))
    return writer.cast(name, torch.bool) if truth else name


@operator("arange.default")
def _count(writer: Writer, node: fx.Node) -> str:
    (end,) = arguments(node)
    return writer.numbers(*range(end))


@operator("linear.default")
def _linear(writer: Writer, node: fx.Node) -> str:
    value, weight, *bias = (writer.value(argument, kind_of(node)) for argument in arguments(node) if argument)
    product = writer.add("MatMul", value, writer.add("Transpose", weight, perm=[1, 0]))
    return writer.add("Add", product, *bias) if bias else product


@operator("conv2d.default")
def _convolution(writer: Writer, node: fx.Node) -> str:
    given = arguments(node)
    value, weight, bias, stride, padding, dilation = (*given, *(None, (1, 1), (0, 0), (1, 1))[len(given) - 2 :])[:6]
    names = [writer.value(argument, kind_of(node)) for argument in (value, weight, bias) if argument is not None]
    return writer.add("Conv", *names, strides=list(stride), pads=list(padding) * 2, dilations=list(dilation))


@operator("avg_pool2d.default")
def _average(writer: Writer, node: fx.Node) -> str:
    """Windows side by side, as `proof.layers_of` makes sure."""
    value, kernel, *_ = arguments(node)
    return writer.add("AveragePool", writer.names[value], kernel_shape=list(kernel), strides=list(kernel))
