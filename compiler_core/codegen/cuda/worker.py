"""Compiles Triton functions to cubins, one a request: a process that `cubins.py` starts, several side by side.

In: line by line on standard input, requests as JSON: {"source": path of a module of Triton functions, "function",
"signature", "aligned", "warps", "stages", "contracts", "capability", "cubin": path of the result}. Out: for each a line
of JSON on standard output: {"name", "shared", "threads", "extra", "scratch", "seconds"}, or {"error"}. Imports nothing
of ours, so that it starts quickly; needs no GPU.

    extra     arguments that Triton adds behind ours: addresses of memory that it wants of its caller (seen: global
              scratch and profile scratch, in 3.5 to 3.9), counted in the PTX, not guessed from a version
    scratch   how many bytes of these the launch needs for each program; 0 bytes: null will do
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any


def load_functions(path: str) -> dict[str, Any]:
    """The names of the module at `path`, of which no bytecode is written. Triton must not be told to interpret."""
    module = ModuleType("distcompile_kernels")
    module.__file__ = path
    sys.modules[module.__name__] = module  # Triton looks functions' modules up there
    exec(compile(Path(path).read_text(), path, "exec"), module.__dict__)
    return vars(module)


def compile_one(functions: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Compile the function that `request` names, and write its cubin."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    began_s, signature = time.perf_counter(), request["signature"]
    aligned = {(place,): [["tt.divisibility", 16]] for place in request["aligned"]}
    source = ASTSource(functions[request["function"]], signature=signature, constexprs={}, attrs=aligned)
    # where not `contracts`, a product and a sum are rounded one after the other, as eager does: runtime/toolchain.py
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
        "extra": count_parameters(made.asm["ptx"]) - len(signature),
        "scratch": scratch,
        "seconds": time.perf_counter() - began_s,
    }


def count_parameters(ptx: str) -> int:
    """How many parameters the one entry of a PTX text has."""
    (entry,) = re.findall(r"\.entry\s+[\w$]+\s*\(([^)]*)\)", ptx)
    return len(re.findall(r"\.param\b", entry))


def main() -> None:
    importlib.import_module("triton.compiler")  # while nothing has been asked for yet
    functions: dict[str, Any] = {}
    for line in sys.stdin:
        try:
            request = json.loads(line)
            functions = functions or load_functions(request["source"])
            answer = compile_one(functions, request)
        except Exception as error:  # noqa: BLE001  told to who asked, who raises it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
