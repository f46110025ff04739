# ruff: noqa
"""Small programs in the syntax of 3.12: f-strings nested, type parameters; as text. See programs_basic.py."""

SOURCE = """
from bytecode_oracle import note


def nested_quotes():
    d = {"k": [1, 2]}
    return f"{d['k'][0]} {', '.join(f'{x:>{3}}' for x in d['k'])}"


def type_parameters():
    def first[T](xs: list[T]) -> T:
        return xs[0]

    class Box[T]:
        def __init__(self, x: T):
            self.x = x

        def get(self) -> T:
            return self.x

    return first([3]), Box(4).get(), Box.__type_params__[0].__name__, first.__type_params__[0].__name__


def comprehension_in_class():
    n = 2

    class A:
        a = 3
        b = [x + n for x in range(a)]

    return A.b


def comprehension_leaks_nothing():
    x = 1
    [x for x in range(3) if [x for x in range(2)]]
    try:
        [1 / x for x in (1, 0)]
    except ZeroDivisionError:
        pass
    return x, locals()


def comprehension_cell_kept():
    x = 5
    f = lambda: x
    y = [(lambda: x)() for x in range(3)]
    return y, f(), x
"""
exec(compile(SOURCE, __file__.replace("programs_", "/programs_"), "exec"))
