"""Where values live: cells, views and their strides, writes in place, memory that is shared or lent.

- `borrowing.py`: Tensors on memory of others: arrays of NumPy's, buffers, files.
- `cell.py`: Cells: where a Tensor's value lives, and how a write through one handle is seen through all others.
- `copying.py`: Copies of Tensors: `copy.copy`, `copy.deepcopy`, and what pickle keeps.
- `fence.py`: Fences: values that are on their way, and whoever reads one before it has arrived waits.
- `journal.py`: The journal of a trace: what traced code changed in cells, handles and tables, so that it can be
  taken back.
- `largest.py`: The largest tensors on a CUDA device, and where they are referred to: for errors, and for people.
- `layout.py`: In which order a result's elements lie in memory, as far as the user can see: `stride()`, `view`,
  `is_contiguous`.
- `lending.py`: DLPack of Tensors: `__dlpack__`, `__dlpack_device__`, `from_dlpack`, `to_dlpack`.
- `lent.py`: Memory lent to or from others (NumPy, DLPack, a file, whoever asked for an address): written in place.
- `overlap.py`: Memory that is written while it is read, or of which several elements are one: refused, as by torch.
- `own_views.py`: View functions whose result is a handle of its own even where nothing changes: `p.view(p.shape)`
  is not p; and those that give several views at once, none of which may be written in place where gradients are
  recorded; and `view`, which refuses to copy.
- `ownership.py`: Who else can see an array: whether the value of a cell may be overwritten, because the cell alone
  refers to it.
- `rebinding.py`: Rebinding: a handle gets another cell, another history, or another `requires_grad`; who relies on
  it is told.
- `shared_memory.py`: Memory that other processes see: `Tensor.share_memory_`.
- `sized.py`: Tensors from outside whose sizes the call decides: what the trace that captures them is shown.
- `storage.py`: Storages: the memory that Tensors lie in, as bytes; what libraries ask to find tensors that share
  memory.
- `strided.py`: as_strided and resize_ on Tensors: views by sizes and strides that count through the storage.
- `through.py`: Writing through a view into memory that nobody else looks at: the rest of the storage stays where it
  is.
- `typed_storage.py`: torch's storages of elements: TypedStorage, and FloatStorage and its like, which are names of
  some of them.
- `view_link.py`: Where a view's history comes from: the link from a Tensor to the one that it was taken from.
- `views.py`: Which results alias their operand, how to write through them, and the strides they have.
- `writing.py`: Writing to a Tensor in place: what may be written to, where the value goes, and what history the
  handle then has.
"""
