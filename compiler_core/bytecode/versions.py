"""All that differs between the bytecodes of CPython 3.11, 3.12 and 3.13: the only file that asks for the version.

In: an opcode's name and argument as `co_code` has them. Out: the canonical name by which `moves` and `requests` know
it, and its argument taken apart. Every opcode of `dis.opmap` is canonical (after `ALIASES`), in `NOTHING`, in
`NOT_REACHED` or in `UNSUPPORTED`.
Source: Lib/dis.py, Python/ceval.c and Python/bytecodes.c of each version.
"""

from __future__ import annotations

import dis
import sys

PYTHON = sys.version_info[:2]
NULL_ABOVE = PYTHON >= (3, 13)  # a call's empty slot lies above its callable; before, below it
SEND_KEEPS_RECEIVER = PYTHON >= (3, 12)  # END_SEND removes it
STOP_IS_WRAPPED = PYTHON >= (3, 12)  # generators have a handler of their own for a StopIteration that escapes
STOP_ENDS_DELEGATION = PYTHON >= (3, 12)  # a StopIteration thrown into `yield from` is its value, whoever raised it
CLOSE_RETURNS_VALUE = PYTHON >= (3, 13)
AFTER_LOOP = {(3, 11): 0, (3, 12): 1}.get(PYTHON, 2)  # instructions at FOR_ITER's target which its end jumps over
COMPARE_SHIFT = {(3, 11): 0, (3, 12): 4}.get(PYTHON, 5)
COMPARE_AS_BOOL = 16 if PYTHON >= (3, 13) else 0

# names that mean the same as another one
ALIASES = {
    "POP_JUMP_FORWARD_IF_FALSE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_FORWARD_IF_TRUE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_FORWARD_IF_NONE": "POP_JUMP_IF_NONE",
    "POP_JUMP_FORWARD_IF_NOT_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_FALSE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_TRUE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_BACKWARD_IF_NONE": "POP_JUMP_IF_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE": "POP_JUMP_IF_NOT_NONE",
    "JUMP_FORWARD": "GO_TO",
    "JUMP_BACKWARD": "GO_TO",
    "JUMP_BACKWARD_NO_INTERRUPT": "GO_TO",
    "LOAD_CLOSURE": "LOAD_RAW",
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_CLASSDEREF": "LOAD_NAME_OR_DEREF",
}
BACKWARD = {name for name in dis.opmap if "BACKWARD" in name}
# nothing to do; KW_NAMES and SET_FUNCTION_ATTRIBUTE are read together with the call or function they belong to
NOTHING = {"NOP", "RESUME", "PRECALL", "KW_NAMES", "SET_FUNCTION_ATTRIBUTE"}
# what the machine never comes to, and why
NOT_REACHED = {
    "END_FOR": "FOR_ITER goes on after it",
    "CLEANUP_THROW": "`InterpretedGenerator.throw_into` has done it",
}

ASYNC = "a coroutine or asynchronous generator"
STAR = "a function with except*"
LAZY = "a type that is evaluated when it is asked for"
NEVER = "not in the code of a function"
UNSUPPORTED = {
    **dict.fromkeys(
        ["GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AWAITABLE", "ASYNC_GEN_WRAP"], ASYNC
    ),
    **dict.fromkeys(["CHECK_EG_MATCH", "PREP_RERAISE_STAR"], STAR),
    **dict.fromkeys(["PRINT_EXPR", "IMPORT_STAR", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"], NEVER),
    **dict.fromkeys(["CACHE", "EXTENDED_ARG", "RESERVED"], NEVER),
    **{name: NEVER for name in dis.opmap if name.startswith("INSTRUMENTED_")},
}
if PYTHON >= (3, 12):  # the compiler's own, which do not reach co_code
    UNSUPPORTED |= {name: NEVER for name, number in dis.opmap.items() if number > 255}
UNSUPPORTED_INTRINSICS = {
    "INTRINSIC_1_INVALID": NEVER,
    "INTRINSIC_2_INVALID": NEVER,
    "INTRINSIC_PRINT": NEVER,
    "INTRINSIC_IMPORT_STAR": NEVER,
    "INTRINSIC_ASYNC_GEN_WRAP": ASYNC,
    "INTRINSIC_PREP_RERAISE_STAR": STAR,
    **dict.fromkeys(["INTRINSIC_TYPEALIAS", "INTRINSIC_TYPEVAR_WITH_BOUND", "INTRINSIC_SET_TYPEPARAM_DEFAULT"], LAZY),
    "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS": LAZY,
}


def comparison(arg: int) -> tuple[str, bool]:
    """The operator of COMPARE_OP, and whether its result is made a bool."""
    return dis.cmp_op[arg >> COMPARE_SHIFT], bool(arg & COMPARE_AS_BOOL)


def attribute(name: str, arg: int) -> tuple[int, bool]:
    """(index of the attribute's name, whether it is loaded to be called) of LOAD_ATTR and LOAD_METHOD."""
    if PYTHON < (3, 12):
        return arg, name == "LOAD_METHOD"
    return arg >> 1, bool(arg & 1)


def intrinsic(name: str, arg: int) -> str:
    """The name of what CALL_INTRINSIC_1 and CALL_INTRINSIC_2 do."""
    return str(getattr(dis, f"_intrinsic_{name[-1]}_descs")[arg])
