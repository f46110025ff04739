"""Python made of a graph: `def forward(self, x): ...`, a line a node, values freed after their last use.

In: nodes in order, the name of the object that has the attributes. Out: `PythonCode`: the text, and the globals that it
needs. torch's functions are written under torch's names; other objects are globals of their own names.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from compiler_core.tensor.tensor import Tensor
from distcompile.fx.naming import Namespace, name_in_torch
from distcompile.fx.node import Node, qualified_name

MAGIC = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}",
    "pos": "+{}", "neg": "-{}", "invert": "~{}", "getitem": "{}[{}]",
}  # fmt: skip
REFLECTABLE = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}",
    "mod": "{} % {}",
    "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}",
    "xor": "{} ^ {}", "matmul": "{} @ {}",
}  # fmt: skip
INPLACE = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}", "imod": "{} %= {}",
    "imul": "{} *= {}", "imatmul": "{} @= {}", "ior": "{} |= {}", "ipow": "{} **= {}", "irshift": "{} >>= {}",
    "isub": "{} -= {}", "itruediv": "{} /= {}", "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip
_SYMBOLS = {**MAGIC, **REFLECTABLE}


@dataclass
class PythonCode:
    """src: the text. globals: name -> object."""

    src: str
    globals: dict[str, Any]


class CodeGen:
    """How a function is made of a graph."""

    def __init__(self) -> None:
        self._body_transformer: Any = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line with def."""
        names = free_vars if free_vars[:1] == ["self"] else ["self", *free_vars]
        return f"def {self._func_name}({', '.join(names)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any) -> str:
        """The line with return."""
        return f"return {output_args!r}"

    def process_inputs(self, *args: Any) -> Any:
        """What the placeholders are given, of the function's arguments."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns, of the graph's output."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """More globals of the code."""
        return []

    def python(self, nodes: Sequence[Node], root_module: str, namespace: Namespace) -> PythonCode:
        """The code of these nodes."""
        return _Writer(self, nodes, root_module, namespace).written()


class _Writer:
    """One text being written."""

    def __init__(self, codegen: CodeGen, nodes: Sequence[Node], root: str, namespace: Namespace) -> None:
        self.codegen, self.nodes, self.root, self.namespace = codegen, nodes, root, namespace
        self.parameters: list[str] = []
        self.body: list[str] = []
        self.globals: dict[str, Any] = {}
        self.annotation = ""
        self.wrapped: dict[str, None] = {}

    def written(self) -> PythonCode:
        for name, value in (("inf", float("inf")), ("nan", float("nan")), ("NoneType", type(None))):
            self.globals[self.namespace.create_name(name, value)] = value
        import distcompile

        self.globals |= {"torch": distcompile, "device": distcompile.device, **dict(self.codegen.additional_globals())}
        freed = _last_uses(self.nodes)
        for node in self.nodes:
            line = self.line(node)
            if line is None:
                continue
            gone = freed.get(node, []) + ([node] if not node.users and node.op != "output" else [])
            ends = ";  " + " = ".join([*map(repr, gone), "None"]) if gone and node.op != "output" else ""
            self.body.append(f"{line}{ends}\n")
        body = self.body or ["pass\n"]
        if self.codegen._body_transformer is not None:
            body = self.codegen._body_transformer(body)
        lines = "\n".join("    " + line for line in "".join(body).split("\n"))
        head = self.codegen.gen_fn_def(self.parameters, self.annotation)
        marks = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in self.wrapped)
        return PythonCode(f"\n{marks}\n\n{head}\n{lines}", self.globals)

    def line(self, node: Node) -> str | None:
        kind = "" if node.type is None else f" : {self.type_of(node.type)}"
        match node.op:
            case "placeholder":
                default = f" = {self.text(node.args[0])}" if node.args else ""
                self.parameters.append(f"{node.target}{kind}{default}")
                raw = str(node.target).replace("*", "")
                return f"{node!r} = {raw}" if raw != repr(node) else None
            case "output":
                if node.type is not None:
                    self.annotation = f" -> {self.type_of(node.type)}"
                return self.codegen.generate_output(_Text(self.text(node.args[0])))
            case "get_attr":
                return f"{node!r}{kind} = {_path(self.root, str(node.target))}"
            case "call_method":
                head, *rest = node.args
                return f"{node!r}{kind} = {_path(self.text(head), str(node.target))}({self.call(rest, node.kwargs)})"
            case "call_module":
                called = _path(self.root, str(node.target))
                return f"{node!r}{kind} = {called}({self.call(node.args, node.kwargs)})"
            case _:
                return self.function(node, kind)

    def function(self, node: Node, kind: str) -> str:
        target: Any = node.target
        name = getattr(target, "__name__", "")
        if getattr(target, "__module__", "") == "_operator":
            args = [self.text(arg) for arg in node.args]
            if name in _SYMBOLS:
                return f"{node!r}{kind} = {_SYMBOLS[name].format(*args)}"
            if name in INPLACE:
                return f"{INPLACE[name].format(*args)};  {node!r}{kind} = {args[0]}"
        called = self.name(qualified_name(target), target)
        if called == "getattr" and len(node.args) == 2 and str(node.args[1]).isidentifier():
            return f"{node!r}{kind} = {_path(self.text(node.args[0]), node.args[1])}"
        if node.meta.get("is_wrapped"):
            self.wrapped[called] = None
        return f"{node!r}{kind} = {called}({self.call(node.args, node.kwargs)})"

    def name(self, hint: str, value: Any) -> str:
        """What code calls `value` by."""
        known = name_in_torch(value)
        if known is not None:
            return known
        made = self.namespace.create_name(hint, value)
        self.globals[made] = value
        return made

    def call(self, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        return ", ".join([*map(self.text, args), *(f"{name} = {self.text(arg)}" for name, arg in kwargs.items())])

    def text(self, arg: Any) -> str:
        """An argument as code."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple):
            inner = ", ".join(map(self.text, arg)) + ("," if len(arg) == 1 else "")
            return f"{self.name(type(arg).__name__, type(arg))}({inner})" if hasattr(arg, "_fields") else f"({inner})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.text, arg))}]"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{key!r}: {self.text(value)}" for key, value in arg.items()) + "}"
        if isinstance(arg, slice):
            return f"slice({', '.join(self.text(part) for part in (arg.start, arg.stop, arg.step))})"
        if isinstance(arg, enum.Enum):
            return f"{self.name(type(arg).__name__, type(arg))}.{arg.name}"
        return self._constant(arg)

    def _constant(self, arg: Any) -> str:
        if isinstance(arg, (type, types.FunctionType, types.BuiltinFunctionType)):
            return self.name(getattr(arg, "__name__", "value"), arg)
        text = repr(arg)
        if text.startswith("distcompile."):  # a dtype, a layout, a memory format
            return "torch." + text.removeprefix("distcompile.")
        return text

    def type_of(self, kind: Any) -> str:
        """An annotation as code."""
        if kind == ():
            return "()"
        if kind is Tensor:
            return "torch.Tensor"
        arguments = typing.get_args(kind)
        if isinstance(kind, types.UnionType):
            return " | ".join(map(self.type_of, arguments))
        if arguments:
            return f"{self.type_of(typing.get_origin(kind))}[{', '.join(map(self.type_of, arguments))}]"
        if kind is None or kind is Ellipsis:
            return {None: "None", Ellipsis: "..."}[kind]
        return self.name(getattr(kind, "__name__", str(kind)), kind)


class _Text(str):
    """Code, which stands as it is."""

    def __repr__(self) -> str:
        return str(self)


def _path(root: str, target: str) -> str:
    """root.a.b, with getattr for what is no name in Python."""
    for part in target.split("."):
        root = f"{root}.{part}" if part.isidentifier() else f'getattr({root}, "{part}")'
    return root


def _last_uses(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """Node -> the nodes that nobody reads after it."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(nodes):
        for used in node._input_nodes:
            if used not in seen:
                seen.add(used)
                found.setdefault(node, []).append(used)
    return found
