"""The table of stand-ins: names of torch that distcompile does not have, and what each does here.

In: nothing. Out: `STAND_INS`: full name -> StandIn. Five kinds, and no other:

    TRUE     means what torch's means, in a world without GPU, TorchScript, ONNX or a dispatcher
    RECORD   takes note of something that only a refused name would read: it is kept, and nothing else happens
    TYPE     a class for annotations and `isinstance`; nothing here is one, and making one is refused
    NAMES    an enumeration; what takes its members is refused
    ERROR    raises NotSupportedError, which names it, when it is called

Invariant: a test walks the table and holds each to its kind. Names that distcompile gains win over a stand-in.
"""

from __future__ import annotations

from distcompile.as_torch.stand_ins import compilers, devices, jobs, libraries, sharded
from distcompile.as_torch.stand_ins.kinds import StandIn

STAND_INS: dict[str, StandIn] = {**compilers.NAMES, **libraries.NAMES, **devices.NAMES, **sharded.NAMES, **jobs.NAMES}
MODULES = frozenset(
    ".".join(name.split(".")[:end]) for name in STAND_INS for end in range(2, name.count(".") + 1)
)  # fmt: skip
