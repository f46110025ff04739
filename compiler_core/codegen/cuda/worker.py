"""Compiles Triton functions to cubins, one a request: a process that `workers.py` starts, which forks others like it.

In: the numbers of sockets, one for each process that may be forked, which is when something comes there. Line by line,
requests as JSON: {"source": path of a module of Triton functions, "function", "signature", "aligned", "warps",
"stages", "contracts", "capability", "cubin": path of the result, "cache": a folder for Triton}. Out: for each a line of
JSON: {"name", "shared", "threads", "overlaps", "extra", "scratch", "seconds"}, or {"error"}. Closed sockets end it.
Imports nothing of ours, so that it starts quickly; needs no GPU.

    overlaps  whether the kernel may be launched while the one before it ends: its first instruction waits for the end
              of that one (griddepcontrol, from sm_90 on), the second lets the kernel after it come and wait in its
              turn. They are put into the PTX, so that functions stay what Triton's interpreter runs
    packed    sums, minima and maxima of two 16-bit integers in one register are written as two instructions: ptxas 12.8
              (of Triton 3.6) makes `add.s16x2` of {undefined, x} and {0, 255} an addition of 0, and LLVM writes that
              where it narrows index arithmetic (seen: a pooling's gradient on an H200, wrong by that alone)
    extra     arguments that Triton adds behind ours: addresses of memory that it wants of its caller (seen: global
              scratch and profile scratch, in 3.5 to 3.9), counted in the PTX, not guessed from a version
    scratch   how many bytes of these the launch needs for each program; 0 bytes: null will do
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
from pathlib import Path
from select import select
from socket import socket
from types import ModuleType
from typing import Any


def load_functions(path: str) -> dict[str, Any]:
    """The names of the module at `path`, of which no bytecode is written. Triton must not be told to interpret."""
    module = ModuleType("distcompile_kernels_" + re.sub(r"\W", "_", path))
    module.__file__ = path
    sys.modules[module.__name__] = module  # Triton looks functions' modules up there
    exec(compile(Path(path).read_text(), path, "exec"), module.__dict__)
    return vars(module)


_WAIT = "\n\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;"  # PTX ISA, "griddepcontrol"
_OVERLAPPING = 90  # the least compute capability


def change_ptx() -> None:
    """Have ptxas see the PTX of Triton's kernels as we want it. See `overlaps` and `packed` above."""
    from triton.backends.nvidia.compiler import CUDABackend

    make_cubin = CUDABackend.make_cubin

    def with_changes(self: Any, src: str, metadata: Any, opt: Any, capability: int) -> Any:
        changed = unpacked(waiting(src) if capability >= _OVERLAPPING else src)
        return make_cubin(self, changed, metadata, opt, capability)

    CUDABackend.make_cubin = with_changes


_PACKED = re.compile(
    r"(?P<guard>@!?%p\d+\s+)?(?P<op>add|min|max)\.(?P<sign>[su])16x2\s+(?P<d>\S+), (?P<a>\S+), (?P<b>\S+);"
)
_UNPACKED = """{{ .reg .b16 dc_a0, dc_a1, dc_b0, dc_b1; .reg .b32 dc_a, dc_b;
\tmov.b32 dc_a, {a}; mov.b32 dc_b, {b}; mov.b32 {{dc_a0, dc_a1}}, dc_a; mov.b32 {{dc_b0, dc_b1}}, dc_b;
\t{op}.{sign}16 dc_a0, dc_a0, dc_b0; {op}.{sign}16 dc_a1, dc_a1, dc_b1;
\t{guard}mov.b32 {d}, {{dc_a0, dc_a1}}; }}"""


def unpacked(ptx: str) -> str:
    """A PTX text without arithmetic of two 16-bit integers in one instruction."""
    return _PACKED.sub(lambda found: _UNPACKED.format(**found.groupdict("")), ptx)


def waiting(ptx: str) -> str:
    """A PTX text whose one entry begins with the wait."""
    head, entry, rest = re.split(r"(\.entry\s+[\w$]+\s*\([^)]*\)[^{]*\{)", ptx)
    return f"{head}{entry}{_WAIT}{rest}"


def compile_one(functions: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Compile the function that `request` names, and write its cubin."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    began_s, signature = time.perf_counter(), request["signature"]
    aligned = {(place,): [["tt.divisibility", 16]] for place in request["aligned"]}
    source = ASTSource(functions[request["function"]], signature=signature, constexprs={}, attrs=aligned)
    # where not `contracts`, a product and a sum are rounded one after the other, as eager does: triton/module.py
    options = {
        "num_warps": request["warps"],
        "num_stages": request["stages"],
        "enable_fp_fusion": request["contracts"],
    }
    made = triton.compile(source, target=GPUTarget("cuda", request["capability"], 32), options=options)
    Path(request["cubin"]).write_bytes(made.asm["cubin"])
    metadata = made.metadata
    scratch = [getattr(metadata, f"{kind}_scratch_size", 0) for kind in ("global", "profile")]
    return {
        "name": metadata.name,
        "shared": metadata.shared,
        "threads": 32 * metadata.num_warps,
        "overlaps": request["capability"] >= _OVERLAPPING,
        "extra": count_parameters(made.asm["ptx"]) - len(signature),
        "scratch": scratch,
        "seconds": time.perf_counter() - began_s,
    }


def count_parameters(ptx: str) -> int:
    """How many parameters the one entry of a PTX text has."""
    (entry,) = re.findall(r"\.entry\s+[\w$]+\s*\(([^)]*)\)", ptx)
    return len(re.findall(r"\.param\b", entry))


def serve(line: socket) -> None:
    """Compile what is asked for on `line`, until it is closed."""
    loaded: dict[str, dict[str, Any]] = {}  # by path of the source
    with line.makefile("r") as requests, line.makefile("w") as answers:
        for text in requests:
            try:
                request = json.loads(text)
                source = request["source"]
                os.environ["TRITON_CACHE_DIR"] = request["cache"]
                if source not in loaded:
                    loaded[source] = load_functions(source)
                answer = compile_one(loaded[source], request)
            except Exception as error:  # noqa: BLE001  told to who asked, who raises it
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


def main() -> None:
    importlib.import_module("triton.compiler")  # while nothing has been asked for yet
    change_ptx()
    lines = [socket(fileno=int(number)) for number in sys.argv[1:]]
    while lines:
        for line in select(lines, [], [])[0]:
            lines.remove(line)
            if os.fork() == 0:
                for other in lines:
                    other.close()
                serve(line)
                return
            line.close()
    while True:
        try:
            os.wait()
        except ChildProcessError:  # none is left
            return


if __name__ == "__main__":
    main()
