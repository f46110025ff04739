# ruff: noqa
"""Small programs: `with`. See programs_basic.py."""

import contextlib

from bytecode_oracle import note
from programs_exceptions import Oops


class Manager:
    def __init__(self, name, suppress=False, fail_enter=False, fail_exit=False):
        self.name, self.suppress, self.fail_enter, self.fail_exit = name, suppress, fail_enter, fail_exit

    def __enter__(self):
        note(("enter", self.name))
        if self.fail_enter:
            raise Oops("enter")
        return self.name

    def __exit__(self, kind, value, entries):
        note(("exit", self.name, kind, str(value), entries is not None))
        if self.fail_exit:
            raise Oops("exit")
        return self.suppress


def simple_with():
    with Manager("a") as a, Manager("b") as b:
        note((a, b))
    return a, b


def with_return():
    for i in range(3):
        with Manager(i):
            if i == 1:
                return i
            continue


def with_suppressing():
    with Manager("outer"):
        with Manager("inner", suppress=True):
            raise KeyError("k")
        note("after")
    return "fine"


def with_raising():
    with Manager("outer"):
        with Manager("inner"):
            raise KeyError("k")


def with_fail_enter():
    with Manager("a"), Manager("b", fail_enter=True):
        note("never")


def with_fail_exit():
    with Manager("a", suppress=True), Manager("b", fail_exit=True):
        raise KeyError(1)


def with_fail_exit_after_success():
    with Manager("a", fail_exit=True):
        pass


def with_parenthesized():
    with (
        Manager("a") as a,
        Manager("b"),
    ):
        return a


def with_target_unpacked():
    @contextlib.contextmanager
    def pair():
        note("in")
        try:
            yield 1, [2]
        finally:
            note("out")

    with pair() as (a, [b]):
        return a, b


def with_contextmanager_raising():
    @contextlib.contextmanager
    def swallow(kind):
        try:
            yield
        except kind as e:
            note(str(e))

    with swallow(KeyError):
        raise KeyError("swallowed")
    with swallow(KeyError):
        raise ValueError("not")


def with_exit_stack():
    with contextlib.ExitStack() as stack:
        for i in range(3):
            stack.enter_context(Manager(i, suppress=i == 1))
        raise Oops("inside")
    return "fine"


def with_library_managers():
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    with contextlib.nullcontext(4) as x:
        pass
    return x


def with_not_a_manager():
    with 5:
        pass


def with_half_a_manager():
    class Half:
        def __enter__(self):
            pass

    with Half():
        pass


def return_through_with_and_finally():
    def f():
        with Manager("w"):
            try:
                return note("value")
            finally:
                note("finally")

    return f()


def stop_iteration_is_an_exception():
    try:
        next(iter([]))
    except StopIteration as e:
        return e.value


def error_while_handling_in_called_function():
    def handler():
        raise Oops("in handler")

    try:
        1 / 0
    except ZeroDivisionError:
        try:
            handler()
        except Oops as e:
            return repr(e.__context__)


def deep_unwinding():
    def f(n):
        with Manager(n):
            if n == 0:
                raise Oops("bottom")
            f(n - 1)

    f(3)


def key_error_default():
    class Table(dict):
        def __missing__(self, key):
            return key * 2

    return Table()["ab"]
