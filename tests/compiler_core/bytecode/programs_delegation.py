# ruff: noqa
"""Small programs: `yield from`, generators and exceptions, custom iterators. See programs_basic.py."""

import itertools

from bytecode_oracle import note


def _count(n):
    for i in range(n):
        yield i
    return "end"


def delegation():
    def inner():
        x = yield 1
        note(("inner got", x))
        y = yield 2
        return x, y

    def outer():
        r = yield from inner()
        yield r
        r = yield from [7, 8]
        yield r
        yield from _count(2)

    g = outer()
    return [next(g), g.send("a"), g.send("b"), *g]


def delegation_to_iterator():
    def outer():
        r = yield from iter((1, 2))
        note(r)
        yield from {"k": 1}
        yield from ""
        yield from map(str, range(2))

    return list(outer())


def delegation_send_to_list():
    def outer():
        yield from [1, 2]

    g = outer()
    next(g)
    g.send(5)


def delegation_throw():
    def inner():
        while True:
            try:
                yield "inner"
            except KeyError:
                note("inner caught")
            except ValueError:
                return "returned"

    def outer():
        r = yield from inner()
        yield r
        yield "last"

    g = outer()
    return next(g), g.throw(KeyError("k")), g.throw(ValueError("v")), next(g)


def delegation_throw_through():
    def inner():
        try:
            yield 1
        finally:
            note("inner finally")

    def outer():
        try:
            yield from inner()
        except KeyError as e:
            yield repr(e)

    g = outer()
    return next(g), g.throw(KeyError("k")), next(g, "over")


def delegation_throw_to_list():
    def outer():
        try:
            yield from [1, 2]
        except KeyError:
            yield "caught"

    g = outer()
    return next(g), g.throw(KeyError("k"))


def delegation_close():
    def inner():
        try:
            yield 1
        except GeneratorExit:
            note("inner exit")
            raise

    def outer():
        try:
            yield from inner()
        finally:
            note("outer finally")

    g = outer()
    next(g)
    g.close()
    return list(g)


def delegation_exception_inside():
    def inner():
        yield 1
        raise KeyError("inner")

    def outer():
        try:
            yield from inner()
        except KeyError as e:
            return repr(e)

    g = outer()
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return e.value


def deep_delegation():
    def tree(n):
        if n:
            yield from tree(n - 1)
            yield n
            yield from tree(n - 1)

    return list(tree(5)), sum(tree(4))


def very_deep_delegation():
    def chain(n):
        if n:
            yield n
            yield from chain(n - 1)

    total = 0
    for x in chain(150):
        total += x
    return total


def stop_iteration_inside():
    def f():
        yield 1
        raise StopIteration("inside")

    for x in f():
        note(x)


def stop_iteration_from_next_inside():
    def f():
        while True:
            yield next(it)

    it = iter([1, 2])
    out = []
    try:
        for x in f():
            out.append(x)
    except RuntimeError as e:
        return out, str(e), repr(e.__cause__), repr(e.__context__)


def stop_iteration_inside_native():
    def f():
        yield 1
        raise StopIteration("inside")

    return list(f())


def exception_in_generator():
    def f():
        yield 1
        yield 1 // 0

    out = []
    g = f()
    try:
        for x in g:
            out.append(x)
    except ZeroDivisionError as e:
        out.append(str(e))
    return out, list(g)


def exception_leaves_generator():
    def f():
        yield 1
        raise KeyError("leaves")

    for x in f():
        note(x)


def exception_leaves_native_consumer():
    def f():
        yield 1
        raise KeyError("leaves")

    return sum(f())


def generator_in_handler():
    def f():
        try:
            raise KeyError("own")
        except KeyError:
            yield 1
            yield 2
            raise

    g = f()
    out = [next(g)]
    try:
        1 / 0
    except ZeroDivisionError:
        out.append(next(g))
    try:
        next(g)
    except KeyError as e:
        out.append(repr(e))
        out.append(repr(e.__context__))
    return out


def handler_around_generator():
    def f():
        import sys

        yield sys.exc_info()[0]
        try:
            raise KeyError
        except KeyError:
            yield sys.exc_info()[0]
        yield sys.exc_info()[0]

    out = []
    g = f()
    out.append(next(g))
    try:
        1 / 0
    except ZeroDivisionError:
        out.append(next(g))
        out.append(next(g))
    out += list(g)
    return out


def already_executing():
    def f():
        yield next(g)

    g = f()
    next(g)


def generator_expressions():
    n = 3
    g = (x * n for x in range(3) if x)
    n = 10
    return (
        list(g),
        any(x > 2 for x in (1, 2, 3)),
        all(x for x in [1, 0]),
        max(x * x for x in (-3, 2)),
        "".join(c for c in "abc"),
    )


def generator_expression_evaluates_first_eagerly():
    try:
        g = (x for x in note(5))
    except TypeError as e:
        return str(e)


def nested_generator_expressions():
    return [list(y * x for y in range(x)) for x in range(4)], dict((k, [v for v in range(k)]) for k in range(3))


def infinite():
    def naturals():
        n = 0
        while True:
            yield n
            n += 1

    def sieve(it):
        p = next(it)
        yield p
        yield from sieve(x for x in it if x % p)

    g = naturals()
    next(g), next(g)
    return list(itertools.islice(sieve(g), 8)), [x for x, _ in zip(naturals(), "abc")]


def pipeline():
    def numbers():
        for i in range(10):
            note(("n", i))
            yield i

    def odd(it):
        for x in it:
            if x % 2:
                yield x

    return [x for x in itertools.takewhile(lambda x: x < 6, odd(numbers()))]


def coroutine_style():
    def averager():
        total, count, average = 0, 0, None
        while True:
            term = yield average
            total += term
            count += 1
            average = total / count

    g = averager()
    next(g)
    return [g.send(x) for x in (10, 20, 60)]


def yields_in_odd_places():
    def f():
        x = [(yield 1), (yield 2)]
        y = {"k": (yield x)}
        z = f"{(yield y)}-{(yield)}"
        w = max((yield z), 3)
        return w

    g = f()
    out = [next(g)]
    try:
        for i in range(10):
            out.append(g.send(i))
    except StopIteration as e:
        out.append(e.value)
    return out


def yield_in_with_and_finally():
    class Manager:
        def __enter__(self):
            note("enter")

        def __exit__(self, *args):
            note(("exit", args[0]))

    def f():
        with Manager():
            try:
                yield 1
            finally:
                yield 2

    g = f()
    next(g)
    out = list(g)
    h = f()
    next(h)
    try:
        h.throw(KeyError("k"))
        next(h)
    except KeyError as e:
        out.append(repr(e))
    return out


def custom_iterator():
    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    a, b, c = Countdown(3)
    return (
        list(Countdown(3)),
        [x for x in Countdown(2)],
        (a, b, c),
        [*Countdown(2)],
        1 in Countdown(3),
        sum(Countdown(4)),
    )


def getitem_iteration():
    class Squares:
        def __getitem__(self, i):
            if i > 3:
                raise IndexError
            return i * i

    return list(Squares()), [x for x in Squares()], 9 in Squares()


def iter_with_sentinel():
    values = iter([1, 2, 0, 3])
    return list(iter(lambda: next(values), 0))


def method_generators():
    class Tree:
        def __init__(self, value, *children):
            self.value, self.children = value, children

        def __iter__(self):
            yield self.value
            for child in self.children:
                yield from child

    return list(Tree(1, Tree(2, Tree(3)), Tree(4)))


def unpack_generators():
    a, *b = _count(3)
    c, d = _count(2)
    return a, b, c, d, [*_count(2), *_count(3)], {*_count(3)}, max(*_count(4)), print(*_count(0), end="")


def names():
    g = _count(1)
    return g.__name__, g.__qualname__, iter(g) is g, g.gi_running, g.gi_code is _count.__code__


def generator_attributes_of_lambda():
    f = lambda: (yield 1)
    return list(f()), f().__name__


def reentrant_consumer():
    def f(n):
        for x in _count(n):
            if x > 1:
                yield list(f(x))
            else:
                yield x

    return list(f(4))
