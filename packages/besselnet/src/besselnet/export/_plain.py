"""Networks as Python that needs only torch: `to_plain` as a module, `plain_source` as a file.

``torch.fx`` traces the network of ordinary layers (:mod:`besselnet.export._layers`) down to ``torch.nn``
modules and functions. The trace is written as a readable class.
"""

import ast
import inspect
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from besselnet.export._layers import to_ordinary

_INFIX: dict[Any, str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.matmul: "@",
    operator.pow: "**",
}
_MODULES = {"F": F, "torch": torch, "torch.linalg": torch.linalg, "torch.special": torch.special}


def to_plain(model: nn.Module) -> fx.GraphModule:
    """Return the network without besselnet: ``torch.nn`` modules and torch functions, float32, eval mode.

    Each Bessel convolution is folded into an ``nn.Conv2d``, whose maps are squared and summed. The result can
    be trained further, pickled and copied. Its weights are plain filters, so further training may lose the
    equivariance.

    Example:
        >>> from besselnet import BesselConv2d
        >>> plain = to_plain(nn.Sequential(BesselConv2d(1, 4, 5), nn.ReLU()))
        >>> [type(m).__name__ for m in plain.modules() if not list(m.children())]
        ['Conv2d', 'ReLU']
    """
    ordinary = to_ordinary(model, "direct")
    try:
        traced = fx.GraphModule(ordinary, _Tracer().trace(ordinary))
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{type(model).__name__}: torch.fx cannot trace its forward ({reason}): export it to onnx or "
            "torch-export instead"
        ) from error
    return _flat(traced).requires_grad_(True)


class _Tracer(fx.Tracer):
    """Follows what is computed of buffers too, in place of taking their present values."""

    proxy_buffer_attributes = True


def _flat(traced: fx.GraphModule) -> fx.GraphModule:
    """The same with all modules and tensors at the top, by names such as ``conv1`` and ``weights1``."""
    members: dict[str, Any] = {}
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    names: dict[str, str] = {}
    for node in traced.graph.nodes:
        copied[node] = graph.node_copy(node, copied.__getitem__)
        if node.op in ("call_module", "get_attr"):
            if node.target not in names:
                member = operator.attrgetter(node.target)(traced)
                kind = re.sub(r"[1-3]d$", "", type(member).__name__).lower()
                stem = node.target.split(".")[-1] if isinstance(member, Tensor) else kind
                number = next(n for n in itertools.count(1) if f"{stem}{n}" not in members)
                names[node.target] = f"{stem}{number}"
                members[names[node.target]] = member
            copied[node].target = names[node.target]
    return fx.GraphModule(members, graph, "Network").eval()


def plain_source(plain: fx.GraphModule, facts: Mapping[str, Any], title: str) -> str:
    """A Python file that builds the module and loads its ``state_dict`` from the file of its name in ``.pt``.

    Args:
        plain: what :func:`to_plain` returned.
        facts: constants to put into the file, by their names.
        title: first line of its docstring.
    """
    constants = [f"{name} = {value!r}" for name, value in facts.items()]
    return _TEMPLATE.format(
        title=title,
        constants="\n".join(constants),
        members="\n".join(f"        {line}" for line in _members(plain)),
        forward="\n".join(f"        {line}" for line in _forward(plain.graph)),
    )


_TEMPLATE = '''"""{title}

Needs only torch. The weights are in the .pt file of the same name:

    network = load()
    logits = network(images)  # images (N, C, H, W), floats in [0, 1]
"""

from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

{constants}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
{members}

    def forward(self, x):
{forward}


def load(weights=Path(__file__).with_suffix(".pt")):
    """Return the trained network in eval mode."""
    network = Network()
    network.load_state_dict(torch.load(weights, weights_only=True))
    return network.eval()
'''


def _members(plain: fx.GraphModule) -> Iterator[str]:
    """Lines that make the modules, parameters and buffers, in the order of their use."""
    seen = set()
    for node in plain.graph.nodes:
        if node.op not in ("call_module", "get_attr") or node.target in seen:
            continue
        seen.add(node.target)
        member = getattr(plain, node.target)
        if isinstance(member, nn.Parameter):
            yield f"self.{node.target} = nn.Parameter(torch.empty({tuple(member.shape)}))"
        elif isinstance(member, Tensor):
            kind = "" if member.dtype == torch.float32 else f", dtype={member.dtype}"
            empty = f"torch.empty({tuple(member.shape)}{kind})"
            yield f'self.register_buffer("{node.target}", {empty})'
        else:
            yield f"self.{node.target} = {_constructor(member)}"


def _constructor(module: nn.Module) -> str:
    """The call that makes a module: what it prints as, without the defaults, if that makes the same again."""
    try:
        call = ast.parse(f"nn.{module!r}", mode="eval").body
        assert isinstance(call, ast.Call)
        defaults = inspect.signature(type(module)).parameters
        call.keywords = [
            k for k in call.keywords if ast.literal_eval(k.value) != defaults[k.arg or ""].default
        ]
        text = ast.unparse(call)
        again = eval(text, {"nn": nn})
    except (AssertionError, SyntaxError, ValueError, KeyError, TypeError, AttributeError):
        again = None
    if type(again) is type(module) and repr(again) == repr(module):
        return text
    raise ValueError(
        f"{module!r} cannot be written as Python: export the network to onnx or torch-export instead"
    )


def _forward(graph: fx.Graph) -> list[str]:
    """The lines of the body. A name is used again when its value is no longer needed, which frees memory."""
    expressions: dict[fx.Node, str] = {}
    last_use = _last_uses(graph)
    free: list[str] = []
    made = 0
    lines = []
    for node in graph.nodes:
        if node.op == "placeholder":
            expressions[node] = "x"
        elif node.op == "output":
            lines.append(f"return {_text(node.args[0], expressions)}")
        elif _is_inline(node):
            expressions[node] = _expression(node, expressions)
        else:
            line = _expression(node, expressions)
            free += [expressions[n] for n in last_use.get(node, ())]
            if not free:
                made += 1
                free.append(f"x{made}")
            expressions[node] = min(free)
            free.remove(expressions[node])
            lines.append(f"{expressions[node]} = {line}")
    return lines


def _is_inline(node: fx.Node) -> bool:
    """Sizes, and what is computed of them, stand where they are used."""
    if node.op == "get_attr" or node.target is getattr:
        return True
    numbers = node.op == "call_function" and node.target in (operator.getitem, *_INFIX)
    return numbers and all(_is_inline(n) for n in node.all_input_nodes)


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """For each line the values that no later line needs, also by an inlined expression."""
    reads: dict[fx.Node, set[fx.Node]] = {}
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        reads[node] = {node} if not _is_inline(node) else set()
        needed = set().union(*(reads[n] for n in node.all_input_nodes))
        if _is_inline(node):
            reads[node] = needed
        else:
            last |= dict.fromkeys(needed, node)
    uses: dict[fx.Node, list[fx.Node]] = {}
    for value, node in last.items():
        uses.setdefault(node, []).append(value)
    return uses


def _expression(node: fx.Node, expressions: Mapping[fx.Node, str]) -> str:
    def text(value: Any) -> str:
        return _text(value, expressions)

    target: Any = node.target
    given = [text(a) for a in node.args] + [f"{k}={text(v)}" for k, v in node.kwargs.items()]
    if node.op == "get_attr":
        return f"self.{target}"
    if node.op == "call_module":
        return f"self.{target}({', '.join(given)})"
    if node.op == "call_method":
        return f"{given[0]}.{target}({', '.join(given[1:])})"
    if target is getattr:
        return f"{given[0]}.{node.args[1]}"
    if target is operator.getitem:
        return f"{given[0]}[{given[1]}]"
    if target in _INFIX:
        return f"{_bracketed(given[0])} {_INFIX[target]} {_bracketed(given[1])}"
    return f"{_function_name(target)}({', '.join(given)})"


def _bracketed(text: str) -> str:
    return f"({text})" if " " in text else text


def _function_name(function: Callable[..., Any]) -> str:
    for prefix, module in _MODULES.items():
        for name, member in vars(module).items():
            if member is function:
                return f"{prefix}.{name}"
    raise ValueError(
        f"{function!r} cannot be written as Python: export the network to onnx or torch-export instead"
    )


def _text(value: Any, expressions: Mapping[fx.Node, str]) -> str:
    """An argument: a value by its name, and lists of them; everything else as it prints."""
    if isinstance(value, fx.Node):
        return expressions[value]
    if isinstance(value, (tuple, list)):
        inside = ", ".join(_text(v, expressions) for v in value)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    return repr(value)
