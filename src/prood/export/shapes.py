"""What each operator that shapes, cuts or joins is in ONNX. Sizes that depend on the number of images are left open."""

import numpy as np
import torch
from torch import fx

from prood.errors import Unsupported
from prood.export.operators import TABLE, arguments, kind_of, operator
from prood.export.translate import Writer

__all__ = ["TABLE"]


@operator("reshape.default", "unsqueeze.default", "squeeze.dim", "flatten.using_ints", "unflatten.int")
def _reshape(writer: Writer, node: fx.Node) -> str:
    shape = [-1 if size is None else size for size in node.meta["sizes"]]
    if shape.count(-1) > 1:
        raise Unsupported(f"two sizes of {node} depend on the number of images: the bound cannot be exported")
    return writer.add("Reshape", writer.names[arguments(node)[0]], writer.numbers(*shape))


@operator("expand.default")
def _expand(writer: Writer, node: fx.Node) -> str:
    value, sizes = arguments(node)[0], node.meta["sizes"]
    before = value.meta["sizes"]
    before = [1] * (len(sizes) - len(before)) + before
    if any(size is None and was is not None for was, size in zip(before, sizes, strict=True)):
        raise Unsupported(f"{node} grows with the number of images: the bound cannot be exported")
    return writer.add("Expand", writer.names[value], writer.numbers(*(size or 1 for size in sizes)))


@operator("slice.Tensor")
def _slice(writer: Writer, node: fx.Node) -> str:
    given = arguments(node)
    value, axis, start, end, step = (*given, *(0, None, None, 1)[len(given) - 1 :])[:5]
    limits = writer.numbers(start or 0), writer.numbers(2**62 if end is None else end)
    return writer.add("Slice", writer.names[value], *limits, writer.numbers(axis), writer.numbers(step))


@operator("select.int")
def _select(writer: Writer, node: fx.Node) -> str:
    value, axis, place = arguments(node)
    return writer.add("Gather", writer.names[value], writer.constant(place, torch.int64), axis=axis)


@operator("unbind.int")
def _unbind(writer: Writer, node: fx.Node) -> str:
    """Along the first axis; `_item` takes the parts."""
    value, *axis = arguments(node)
    if axis not in ([], [0]):
        raise Unsupported(f"the bound uses {node.target} along axis {axis}, which the export does not know")
    return writer.names[value]


def _item(writer: Writer, node: fx.Node) -> str:
    value, place = arguments(node)
    return writer.add("Gather", writer.names[value], writer.constant(place, torch.int64), axis=0)


TABLE["<built-in function getitem>"] = _item


@operator("pad.default")
def _pad(writer: Writer, node: fx.Node) -> str:
    value, pads = arguments(node)
    pairs = list(zip(pads[::2], pads[1::2], strict=True))[::-1]  # torch begins with the last axis
    pairs = [(0, 0)] * (value.meta["val"].ndim - len(pairs)) + pairs
    amounts = writer.numbers(*(before for before, _ in pairs), *(after for _, after in pairs))
    return writer.add("Pad", writer.names[value], amounts)


@operator("permute.default")
def _permute(writer: Writer, node: fx.Node) -> str:
    value, order = arguments(node)
    return writer.add("Transpose", writer.names[value], perm=list(order))


@operator("transpose.int", "numpy_T.default")
def _transpose(writer: Writer, node: fx.Node) -> str:
    value, *axes = arguments(node)
    order = list(range(value.meta["val"].ndim))
    one, other = axes or (0, 1)
    order[one], order[other] = order[other], order[one]
    return writer.add("Transpose", writer.names[value], perm=order)


@operator("cat.default", "stack.default")
def _join(writer: Writer, node: fx.Node) -> str:
    values, axis, *_ = (*arguments(node), 0)
    names = [writer.value(value, kind_of(node)) for value in values]
    if "stack" in str(node.target):
        names = [writer.add("Unsqueeze", name, writer.numbers(axis)) for name in names]
    return writer.add("Concat", *names, axis=axis)


@operator("zeros_like.default", "ones_like.default", "new_ones.default", "new_full.default")
def _full(writer: Writer, node: fx.Node) -> str:
    value, *how = arguments(node)
    fill = how[1] if "new_full" in str(node.target) else int("ones" in str(node.target))
    if None not in node.meta["sizes"]:
        return writer.constant(np.full(node.meta["sizes"], fill).tolist(), kind_of(node))
    return writer.add("Expand", writer.constant(fill, kind_of(node)), writer.add("Shape", writer.names[value]))
