# ruff: noqa
"""Small programs: expressions, variables, control flow, calls. Each function is run by CPython and by the machine."""

from bytecode_oracle import note

GLOBAL = 5


def arithmetic():
    a, b = 17, 5
    return a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> 1, a & b, a | b, a ^ b, -a, +a, ~a


def in_place():
    a = 7
    a += 3
    a -= 1
    a *= 4
    a //= 5
    a **= 2
    a %= 13
    a <<= 2
    a >>= 1
    a |= 1
    a &= 7
    a ^= 3
    b = [1]
    c = b
    b += [2]
    a /= 2
    return a, b, c is b


def comparisons():
    a, b, c = 1, 2, 3
    return a < b < c, a < b > c, a == 1, a != b, c >= b, b <= a, a is b, a is not b, a in [b, c], a not in (b,), not a


def chained_calls_once():
    return note(1) < note(5) < note(3) < note(9)


def boolean_operators():
    return [x and y or z for x in (0, 1, []) for y in (0, "y") for z in ("z", None)]


def boolean_effects():
    return note(0) or note("") or note(3) or note(4), note(1) and note(0) and note(2)


def conditional_expression():
    return ["small" if x < 2 else "middle" if x < 4 else "large" for x in range(6)]


def loops():
    out = []
    for i in range(10):
        if i == 2:
            continue
        if i == 7:
            break
        for j in range(i):
            if j > 2:
                break
        else:
            out.append("else")
        out.append((i, j if i else None))
    else:
        out.append("not reached")
    while len(out) > 3:
        out.pop()
    else:
        out.append("while else")
    return out


def nested_while():
    n, steps = 27, 0
    while True:
        if n == 1:
            return steps
        while n % 2 == 0:
            n //= 2
            steps += 1
        if n != 1:
            n = 3 * n + 1
            steps += 1


def walrus():
    if (n := len("abcdef")) > 3 and (m := n * 2):
        pass
    return n, m, [y := x * 2 for x in range(3)], y


def unpacking():
    a, b = b, c = 1, 2
    (d, [e, *f]), *g = (1, [2, 3, 4]), 5, 6
    *h, i = "xyz"
    [j] = {9}
    k = l = [1]
    return a, b, c, d, e, f, g, h, i, j, k is l


def star_expressions():
    a, b = [1, 2], {"x": 1}
    return [*a, *"xy", 3], (*a, 0), {*a, 3}, {**b, "y": 2, **{"x": 3}}


def unpack_too_few():
    a, b, c = [1, 2]


def unpack_too_many():
    a, b = {1: 2, 3: 4, 5: 6}


def unpack_too_many_generator():
    a, b = (x for x in range(5))


def unpack_star_too_few():
    a, *b, c = [1]


def unpack_not_iterable():
    a, b = 5


def swap():
    a, b, c = 1, 2, 3
    a, b, c = c, a, b
    a, b = b, a
    return a, b, c


def delete_variable():
    x = 1
    del x
    return x


def delete_twice():
    x = 1
    del x
    del x


def unbound_local():
    if note(0):
        y = 1
    return y


def undefined_global():
    return not_defined_anywhere


def undefined_free():
    def inner():
        return late

    inner()
    late = 1


def empty_own_cell():
    def inner():
        return late

    note(late)
    late = 1


def deleted_cell():
    x = 1

    def inner():
        return x

    del x
    return inner()


def global_statement():
    global GLOBAL
    GLOBAL += 1
    value = GLOBAL
    GLOBAL = 5
    return value


def global_deletion():
    global SHORT_LIVED
    SHORT_LIVED = 1
    note(SHORT_LIVED)
    del SHORT_LIVED
    note("gone")
    del SHORT_LIVED


def f_strings():
    x, name, width = 3.14159, "world", 12
    return (
        f"{x:.2f} {name!r:>{width}} {name!s} {name!a} {x!r} {{}} {x=} {name=!s} {1 + 1} {'nested ' + f'{x:.1f}'}",
        f"{name:*^{width}}",
        f"{[1, 2]} {None}",
        "%s-%d" % (name, 4),
        f"",
    )


def slices():
    a = list(range(10))
    a[2:4] = [20, 30, 40]
    del a[0]
    a[::3] = [0] * len(a[::3])
    b = a[1:-1], a[::-1], a[-3:], a[:2], a[5], a[slice(1, 3)]
    del a[1:3]
    return a, b, "text"[1:3], (1, 2, 3)[::2]


def containers():
    d = {"a": 1, "b": [1, 2], 3: (4, 5)}
    d["c"] = {1, 2}
    del d["a"]
    d["b"][0] += 10
    return d, {1, 2, 2}, (), [], {}, (1,), {"k": {"n": {"x": 1}}}["k"]["n"]


def comprehensions():
    return (
        [x * y for x in range(4) if x % 2 for y in range(x)],
        {x % 3 for x in range(10)},
        {k: v for v, k in enumerate("abc") if v != 1},
        [[y for y in range(x)] for x in range(3)],
        list(x for x in range(3)),
        [(lambda: x)() for x in range(3)],
        sum(x * x for x in range(5)),
    )


def comprehension_scope():
    x = "outer"
    y = [x for x in range(3)]
    z = [x + str(i) for i in range(2)]
    return x, y, z


def comprehension_shadow_unbound():
    a = [b for b in range(3)]
    return b


def comprehension_with_closure():
    n = 3
    fs = [lambda x: x + n + i for i in range(3)]
    n = 10
    return [f(1) for f in fs], [[f(j) for f in fs] for j in range(2)]


def comprehension_raises():
    x = 1
    try:
        [1 // x for x in (2, 1, 0)]
    except ZeroDivisionError:
        return x


def assertion():
    assert 1 == 1, "fine"
    assert note([]), "an empty " + "list"


def plain_assertion():
    assert not True


def attribute_error():
    return (5).nothing


def type_errors():
    for call in (
        lambda: 1 + "a",
        lambda: -"a",
        lambda: [] < 1,
        lambda: {}[[]],
        lambda: note(None)[0],
        lambda: 1 in 2,
        lambda: len(3),
        lambda: (1).x,
        lambda: iter(3),
        lambda: next([]),
        lambda: [][1],
        lambda: {}["k"],
        lambda: int("x"),
    ):
        try:
            call()
        except Exception as error:
            note((type(error).__name__, str(error)))


def for_not_iterable():
    for _ in 5:
        pass


def for_over_dict_views():
    d = {"x": 1, "y": 2}
    out = []
    for k, v in d.items():
        out += [k, v]
    for i, (k, v) in enumerate(zip(d, d.values())):
        out.append((i, k, v))
    return out


def dict_changed_while_iterated():
    d = {1: 2}
    for k in d:
        d[k + 1] = 0


def is_none_jumps():
    out = []
    for x in (None, 0, 1):
        if x is None:
            out.append("none")
        if x is not None:
            out.append("some")
        while x is None:
            x = 2
        while x is not None:
            x = None
        out.append(x)
    return out


def local_functions_dir():
    x, y = 1, 2

    def inner(z):
        w = y
        return sorted(locals()), dir(), vars() == locals()

    return inner(3), "note" in globals(), sorted(locals())


def imports():
    import os.path
    import collections.abc as abc
    from math import floor as fl, pi
    from os import path

    return os.path.join("a", "b"), abc.Mapping.__name__, fl(pi), path is os.path


def import_missing():
    from math import nothing_like_it


def import_missing_module():
    import no_such_module_anywhere


def many_variables():
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = a8 = a9 = 1
    return a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9


def evaluation_order():
    d = {}
    d[note("key")] = note("value")
    (note([]).append)(note(1))
    [note(1), note(2)][note(0)] += note(3)
    return {note(1): note(2), note(3): note(4)}, note("a") + note("b") * note(2)


def multiple_targets():
    class Box:
        pass

    box, items = Box(), [0, 0]
    box.a, items[0], (x, *y) = note(1), note(2), note([3, 4])
    box.b = items[1] = z = 7
    box.a += 2
    items[0] -= 1
    del box.b, items[1]
    return vars(box), items, x, y, z


def string_building():
    s = ""
    for ch in "hello":
        s = ch + s
    return s, s.upper().center(9, "-"), "ab", b"x" + b"y", "x" * 3, r"\n"


def big_jumps():
    total = 0
    for i in range(3):
        if i == 1:
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
            total += 1
    return total


def ellipsis_and_constants():
    return ..., None, True, 1j, 1e10, b"bytes", frozenset({1}), x if (x := 0) else "else", __name__
