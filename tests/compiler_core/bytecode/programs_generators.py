# ruff: noqa
"""Small programs: generators of all kinds, and iterators. See programs_basic.py."""

import itertools

from bytecode_oracle import note


def _count(n):
    for i in range(n):
        yield i
    return "end"


def plain():
    return list(_count(4)), [x for x in _count(3)], tuple(_count(0))


def machine_driven_loop():
    out = []
    for x in _count(4):
        for y in _count(x):
            out.append((x, y))
    return out


def by_next():
    g = _count(2)
    out = [next(g), next(g), next(g, "default")]
    try:
        next(g)
    except StopIteration as e:
        out.append(e.value)
    return out


def return_value_in_stop():
    g = _count(1)
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return e.value


def uncaught_stop():
    g = _count(0)
    next(g)


def sending():
    def echo():
        got = []
        while True:
            x = yield len(got)
            if x is None:
                return got
            got.append(x)

    g = echo()
    out = [next(g), g.send("a"), g.send("b")]
    try:
        g.send(None)
    except StopIteration as e:
        out.append(e.value)
    return out


def send_to_unstarted():
    g = _count(3)
    g.send(5)


def send_none_to_unstarted():
    return _count(3).send(None)


def send_to_finished():
    g = _count(0)
    list(g)
    g.send(1)


def throwing():
    def careful():
        while True:
            try:
                yield 1
            except KeyError as e:
                yield note(str(e))
            finally:
                note("finally")

    g = careful()
    out = [next(g), g.throw(KeyError("k")), next(g), g.throw(KeyError, "class"), next(g)]
    try:
        g.throw(ValueError("v"))
    except ValueError as e:
        out.append(repr(e))
    return out, list(g)


def throw_before_start():
    g = _count(3)
    try:
        g.throw(KeyError("early"))
    except KeyError:
        return list(g)


def throw_into_finished():
    g = _count(0)
    list(g)
    g.throw(KeyError("late"))


def throw_wrong():
    _count(3).throw(5)


def throw_not_caught():
    def f():
        yield 1
        yield 2

    g = f()
    next(g)
    g.throw(ValueError("out"))


def closing():
    def f():
        try:
            yield 1
            yield 2
        except GeneratorExit:
            note("exit")
            raise
        finally:
            note("finally")

    g = f()
    next(g)
    g.close()
    g.close()
    h = f()
    h.close()
    return list(g), list(h)


def close_ignored():
    def f():
        try:
            yield 1
        except GeneratorExit:
            yield 2

    g = f()
    next(g)
    g.close()


def close_raises():
    def f():
        try:
            yield 1
        finally:
            raise KeyError("in finally")

    g = f()
    next(g)
    g.close()
