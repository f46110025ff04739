"""Buffer names as C++ identifiers.

In: a Program, whose buffers carry the user's and the graph's names. Out: an equal Program whose buffer names are
different C++ identifiers that clash neither with keywords nor with what an entry function declares.
"""

from __future__ import annotations

from dataclasses import replace

from compiler_core.loop_ir.ir import KernelCall, Program, Signal, Slot, Step, Wait

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype
default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template
this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t
while xor xor_eq
"""
_OURS = "args arena gpu lib events status now int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t"
_RESERVED = frozenset((_KEYWORDS + _OURS).split())


def with_identifiers(program: Program) -> Program:
    """`program` under buffer names that C++ takes; names that already are identifiers stay."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for buffer in program.buffers:
        names[buffer.name] = _identifier(buffer.name, taken)
        taken.add(names[buffer.name])
    return replace(
        program,
        buffers=tuple(replace(b, name=names[b.name]) for b in program.buffers),
        steps=tuple(_rename_step(step, names) for step in program.steps),
        inputs=tuple(names[n] for n in program.inputs),
        outputs=tuple(names[n] for n in program.outputs),
    )


def _identifier(name: str, taken: set[str]) -> str:
    stem = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    if not stem or stem[0].isdigit() or stem in _RESERVED or stem.startswith(("dc_", "k_", "__")) or _is_batch(stem):
        stem = f"v_{stem}"
    candidate, count = stem, 1
    while candidate in taken:
        count += 1
        candidate = f"{stem}_{count}"
    return candidate


def _is_batch(stem: str) -> bool:
    """`b0`, `b1`, ...: the axes of batched GEMMs."""
    return stem[0] == "b" and stem[1:].isdigit()


def _rename_step(step: Step, names: dict[str, str]) -> Step:
    def slot(old: Slot) -> Slot:
        return Slot(names[old.buffer], old.offset)

    if isinstance(step, KernelCall):
        return replace(step, slots=tuple(map(slot, step.slots)))
    if isinstance(step, Signal | Wait):
        return replace(step, buffers=tuple(names[name] for name in step.buffers))
    operands = tuple(replace(view, slot=slot(view.slot)) for view in step.operands)
    return replace(step, operands=operands, result=replace(step.result, slot=slot(step.result.slot)))
