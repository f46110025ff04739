"""torch's own files: what `torch.save` writes and `torch.load` reads, without torch.

In: any object with Tensors in it; a .pt file of torch or of ours. Out: the file; the object.
`zip_file` holds a file's records, `pickling` and `unpickling` its data.pkl, `names` which names may stand in it,
`storages` the memory that tensors share, `legacy` the files of torch before 1.6.
"""
