# ruff: noqa
"""Small programs: functions, closures and calls. See programs_basic.py."""

from bytecode_oracle import note


def nonlocal_counter():
    count = 0

    def increase(by=1):
        nonlocal count
        count += by
        return count

    return increase(), increase(5), increase(), count


def closures_in_loop():
    late = [lambda: i for i in range(3)]
    early = [lambda i=i: i for i in range(3)]
    return [f() for f in late], [f() for f in early]


def deep_closure():
    a = 1

    def one():
        b = 2

        def two():
            nonlocal a
            c = a + b

            def three():
                nonlocal b
                b += c
                return a, b, c

            a += 10
            return three()

        return two(), a, b

    return one(), a


def parameter_as_cell():
    def make(x, *rest, key=2, **more):
        def inner():
            nonlocal x
            x += 1
            return x, rest, key, more

        return inner

    f = make(1, 2, 3, z=4)
    return f(), f()


def recursion():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def ackermann(m, n):
        if not m:
            return n + 1
        return ackermann(m - 1, 1 if not n else ackermann(m, n - 1))

    return fib(11), ackermann(2, 3)


def mutual_recursion():
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return even(50), odd(7)


def infinite_recursion():
    def down(n):
        return down(n + 1)

    try:
        down(0)
    except RecursionError as error:
        return "maximum recursion depth exceeded" in str(error)


def default_arguments():
    def f(a, b=2, *, c=3, d):
        return a, b, c, d

    return f(1, d=4), f(1, 5, d=6, c=7), f(d=1, a=2)


def mutable_default():
    def f(x, seen=[]):
        seen.append(x)
        return seen

    f(1)
    return f(2), f.__defaults__


def variadic():
    def f(*args, **kwargs):
        return args, kwargs

    a, k = [1, 2], {"x": 1}
    return f(), f(1), f(*a), f(**k), f(0, *a, 3, *"yz", y=2, **k, **{"w": 4}), f(*a, *a)


def positional_only():
    def f(a, b=1, /, c=2, *, d=3, **rest):
        return a, b, c, d, rest

    return f(1), f(1, 2, 3, d=4), f(1, c=5, a=6)


def keyword_calls():
    def f(a, b, c):
        return a, b, c

    return f(c=1, a=2, b=3), f(1, c=2, b=3), dict(a=1, b=2), sorted([3, 1, 2], key=lambda x: -x, reverse=True)


def wrong_arguments():
    def f(a, b, /, c, d=1, *, e, g=2):
        pass

    def h():
        pass

    def any_keyword(a, *args, k, **kwargs):
        pass

    calls = [
        lambda: f(),
        lambda: f(1),
        lambda: f(1, 2),
        lambda: f(1, 2, 3),
        lambda: f(1, 2, 3, 4, 5),
        lambda: f(1, 2, 3, e=1, x=2),
        lambda: f(1, b=2, c=3, e=1),
        lambda: f(1, 2, 3, c=4, e=1),
        lambda: h(1),
        lambda: h(1, 2, x=3),
        lambda: h(x=3),
        lambda: any_keyword(),
        lambda: any_keyword(1, 2, 3),
        lambda: any_keyword(1, a=2, k=3),
        lambda: f(*[1, 2, 3], **{"c": 1}, e=1),
        lambda: f(1, 2, 3, **{"e": 1}, **{"e": 2}),
        lambda: f(*5),
        lambda: f(**5),
        lambda: f(**{1: 2}),
        lambda: h(*None),
        lambda: note(1)(),
        lambda: [*5],
        lambda: {**5},
        lambda: {*5},
    ]
    for call in calls:
        try:
            call()
        except TypeError as error:
            note(str(error))
    return len(calls)


def lambdas():
    compose = lambda *fs: lambda x: fs[0](compose(*fs[1:])(x)) if fs else x
    return compose(lambda x: x + 1, lambda x: x * 2)(5), (lambda: (yield))().__class__.__name__ != ""


def decorators():
    def twice(f):
        def wrapper(*args):
            return f(f(*args))

        wrapper.__name__ = f.__name__
        return wrapper

    def named(name):
        def decorate(f):
            f.label = name
            return f

        return decorate

    @named("n")
    @twice
    def inc(x: int) -> int:
        "doc"
        return x + 1

    return inc(3), inc.label, inc.__name__


def annotations():
    def f(a: int, *b: str, c: float = 1.0, **d: dict) -> list:
        x: int = 3
        y: str
        return x

    return f(1), f.__annotations__, f.__kwdefaults__
