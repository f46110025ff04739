"""What stands behind torch's names at the top level: functions, tables and answers that only torch's programs ask for.

- `absent.py`: Modules of accelerators that are never here: torch.xpu, torch.mps, torch.mtia.
- `artefacts.py`: torch.compiler's portable cache: what this process has compiled as bytes, and such bytes back in the
  cache.
- `asking.py`: Small questions that model files ask torch itself: an assertion, a type's name.
- `derivatives.py`: torch.func's derivatives of functions: grad, vjp, jvp, jacrev, jacfwd, hessian, linearize, as
  deep as wanted.
- `determinism.py`: torch's switches for deterministic algorithms, set and read back.
- `flat.py`: Tensors in one row, and back: torch._utils' functions of code that sends many tensors as one.
- `foreach.py`: torch._foreach_*: one operation on each tensor of a list.
- `found.py`: What stands under a public name: the function of a row of the tables, as it is public there.
- `laid_out.py`: torch's import paths for what stands in other files here: `distributions.normal`,
  `nn.modules.conv`.
- `limits.py`: finfo and iinfo: the range and precision of a dtype, as torch gives them; and which dtype several
  make together.
- `loops.py`: torch.cond, torch.while_loop, and map, scan and associative_scan: control flow as functions.
- `mapping.py`: torch.func.vmap: a function of one example, mapped over a dimension of its arguments.
- `moved.py`: Where files of ours lay before 2026-11-25, so that pickles of whole modules, optimizers and Generators
  can be read.
- `names.py`: Torch's surface: each function of distcompile's own files once, and where each public name is found.
- `rare.py`: Functions of torch's that few programs call, composed of others.
- `sending.py`: Tensors on their way to another process, through a Queue, a Pipe or the arguments of a Process: the
  memory is shared.
- `settings.py`: Modules of torch's that hold settings, `torch._dynamo.config` and `torch._inductor.config`: what
  scripts set.
- `streams.py`: torch.Stream and torch.Event: queues of a device's work and points in them, of any kind of device.
- `symbols.py`: torch.sym_int and its like: arithmetic of sizes that may be symbols.
- `threads.py`: How many threads one process computes with: torch.set_num_threads' names, and those beside it.
- `torch_version.py`: The version that `torch.__version__` tells: that of the torch whose names and behaviour are
  meant, and our own.
"""
