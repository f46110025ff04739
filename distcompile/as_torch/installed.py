"""What multiprocessing's fork server loads first, so that its processes too find distcompile under torch's name.

In: an import. Out: `install` has run.
"""

from distcompile.as_torch.finder import install

install()
