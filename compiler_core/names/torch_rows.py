"""What a word of torch's tables says: one word is one function, with every name and form under which users find it.

In: a table, file -> words (`torch_table.py`, and distcompile/surface/names.py). Out: a `Row` for each word.
A word is the function's names, joined by `=`; `:f` behind them where its file calls it otherwise. A name:

    f           torch.f
    f.          torch.f, and the method Tensor.f
    f_          these two, and the method f_, in place
    f__         these three, and torch.f_
    .f  .f_     the method alone; and the one in place
    special.f   torch.special.f, and so of every namespace
    np.f        NumPy's ufunc that computes the same, where no other name of the function is its name

A word that ends in a colon says of what kind the words behind it are, up to the next such word. Kinds, and several
with commas between them:

    linalg, nn.functional, ...   the words are names of this namespace, as they stand
    own                          none is public: they are for our own functions (`ops/functional.py`)
    exact                        names as they stand, though they end in `_`
    methods                      torch.f is the method Tensor.f
    shared                       torch.f and nn.functional.f are one object; names as they stand
    view                         a view, and a new handle also where nothing changes; in place it moves the handle
    new_view                     the same of a function that never gives back its operand
    strict_view                  a view, or an error where that would be a copy
    several                      several views at once
    tensors                      of files loaded with Tensor: the method refuses a number where a tensor is wanted
    numbers                      the first operand may be a number, if the second is none
    float32                      of ops/functional.py: on GPUs autocast computes it in float32, where programs call it
    out                          of files in tensor/: it takes out=
    no_out                       of files in ops/: it takes no out=, as the others there do
    makes                        it makes a tensor: device=, requires_grad= and their like
    silent                       `__torch_function__` is not asked
    asks                         it is asked, although the file is neither in ops/ nor in tensor/
    modes                        modes alone can override it
    python, c                    where torch has it, which decides what overrides are told; not said: in C, and what
                                 nn.functional alone has in Python
    functional                   as python, and torch.functional has it too
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler_core.errors import OpDefinitionError
from compiler_core.records import dataclass

Place = tuple[str, str]  # module, name in it
SPACES = frozenset(("linalg", "special", "fft", "masked", "signal.windows", "nn.functional"))
KINDS = SPACES | {
    *("own", "exact", "methods", "shared", "view", "new_view", "strict_view", "several", "tensors", "numbers"),
    *("float32", "out", "no_out", "makes", "silent", "asks", "modes", "python", "c", "functional"),
}
_TENSOR, _METHODS = "compiler_core.tensor.tensor", frozenset(("methods",))
_AS_THEY_STAND = SPACES | {"exact", "methods", "shared"}


@dataclass(slots=True, eq=False)  # frozen ones take four times as long to make, and there are a thousand
class Row:
    """One function. module: the file that implements it, as `inner`. place: where it has what its callers rely on.

    names: public ones, `linalg.inv`. bare: those of no namespace, functions' and methods', public or not.
    methods, twins: the methods, and those in place. ufuncs: NumPy's names. at_once: its file is loaded with Tensor.
    """

    module: str
    inner: str
    place: Place
    kinds: frozenset[str]
    at_once: bool
    names: Sequence[str] = ()
    bare: Sequence[str] = ()
    methods: Sequence[str] = ()
    twins: Sequence[str] = ()
    ufuncs: Sequence[str] = ()

    @property
    def is_python(self) -> bool:
        """Whether torch has it in Python, outside of torch.nn.functional."""
        return "python" in self.kinds or "functional" in self.kinds


def rows(table: Mapping[str, str], package: str = "", found_in: str = "", *, at_once: bool = False) -> Iterator[Row]:
    """The rows of a table. found_in: the module of each `place`, if that is not the file. Raises OpDefinitionError."""
    for file, words in table.items():
        module, kinds = f"{package}.{file}".lstrip("."), frozenset[str]()
        for word in words.split():
            if word[-1] == ":":
                kinds = _kinds(word, module)
                continue
            told, _, inner = word.partition(":")
            forms = told.split("=")
            row = _as_they_stand(forms, kinds) if kinds & _AS_THEY_STAND else _with_forms(forms, kinds)
            row.module, row.inner, row.at_once = module, inner or row.inner, at_once
            row.place = (found_in, row.bare[0]) if found_in else (module, row.inner)
            yield row
            if "__" in told and row.twins:
                for twin in (form[:-1] for form in forms if form.endswith("__")):
                    yield Row(_TENSOR, f"Tensor.{twin}", (_TENSOR, f"Tensor.{twin}"), _METHODS, at_once, (twin,))


def _kinds(word: str, module: str) -> frozenset[str]:
    kinds = frozenset(word[:-1].split(","))
    if not kinds <= KINDS:
        raise OpDefinitionError(f"the table of {module} speaks of {', '.join(kinds - KINDS)}, which is no kind of name")
    return kinds


def _as_they_stand(forms: Sequence[str], kinds: frozenset[str]) -> Row:
    inner = f"Tensor.{forms[0]}" if "methods" in kinds else forms[0]
    spaces = kinds & SPACES
    if spaces:
        (space,) = spaces
        return Row("", inner, ("", ""), kinds, False, [f if "." in f else f"{space}.{f}" for f in forms])
    names = [*forms, *(f"nn.functional.{f}" for f in forms)] if "shared" in kinds else forms
    return Row("", inner, ("", ""), kinds, False, names, forms)


def _with_forms(forms: Sequence[str], kinds: frozenset[str]) -> Row:
    names, bare, methods, twins, ufuncs = ([] for _ in range(5))
    for form in forms:
        space, _, rest = form.rpartition(".")
        if space and rest:
            names.append(form) if space != "np" else ufuncs.append(rest)
            continue
        plain = form.strip(".").rstrip("_")
        bare.append(plain)
        if form[0] != ".":
            names.append(plain)
        if form != plain:
            methods.append(plain)
        if form[-1] == "_":
            twins.append(f"{plain}_")
    inner = (names[0] if names and forms[0][0] != "." else bare[0]).rpartition(".")[2]
    return Row("", inner, ("", ""), kinds, False, () if "own" in kinds else names, bare, methods, twins, ufuncs)
