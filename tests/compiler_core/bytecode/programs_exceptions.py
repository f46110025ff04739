# ruff: noqa
"""Small programs: raising, handling, `finally` and `with`. See programs_basic.py."""

import contextlib
import sys
import traceback

from bytecode_oracle import note


class Oops(Exception):
    pass


class Detailed(Exception):
    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")
        self.a = note(a)


def try_else_finally():
    out = []
    for x in (1, 0, "a"):
        try:
            out.append(1 / x)
        except ZeroDivisionError as e:
            out.append(str(e))
        except (TypeError, ValueError):
            out.append("type")
        else:
            out.append("else")
        finally:
            out.append("finally")
    return out


def uncaught():
    raise ValueError("a", 1)


def raise_class():
    raise Oops


def raise_nothing_active():
    raise


def raise_not_an_exception():
    raise 5


def raise_with_arguments():
    raise Detailed(1, b=2)


def raise_from():
    try:
        raise KeyError("first")
    except KeyError as e:
        raise Oops("second") from e


def raise_from_none():
    try:
        1 / 0
    except ZeroDivisionError:
        raise Oops("only") from None


def raise_from_class():
    raise Oops("x") from ValueError


def raise_from_wrong():
    raise Oops("x") from 5


def implicit_context():
    try:
        {}["k"]
    except KeyError:
        [][0]


def context_chain():
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            int("x")
    except ValueError as e:
        try:
            raise e
        finally:
            None.x


def bare_raise():
    try:
        1 / 0
    except ZeroDivisionError:
        note("again")
        raise


def bare_raise_in_called():
    def again():
        raise

    try:
        1 / 0
    except ZeroDivisionError:
        again()


def raise_same_again():
    try:
        uncaught()
    except ValueError as e:
        raise e


def reraise_later():
    kept = None
    try:
        uncaught()
    except ValueError as e:
        kept = e
    try:
        raise kept
    except ValueError as e:
        return e is kept, e.__context__


def name_is_unbound_after():
    try:
        1 / 0
    except ZeroDivisionError as e:
        pass
    return e


def nested_handlers():
    out = []
    try:
        try:
            raise KeyError("a")
        except ValueError:
            out.append("no")
        finally:
            out.append("inner finally")
    except LookupError as e:
        out.append(repr(e))
        try:
            raise TypeError("b")
        except TypeError as f:
            out.append(repr(f.__context__))
        out.append(repr(sys.exc_info()[1]))
    out.append(sys.exc_info())
    return out


def return_in_finally():
    try:
        return note(1)
    finally:
        return note(2)


def return_in_finally_swallows():
    try:
        1 / 0
    finally:
        return "swallowed"


def finally_order():
    def f(x):
        for i in range(3):
            try:
                if i == x:
                    return note(("return", i))
                if i == 1:
                    continue
            finally:
                note(("finally", i))
                if x == 5 and i == 1:
                    break
        return "end"

    return f(0), f(1), f(2), f(5)


def finally_overrides_exception():
    try:
        raise KeyError(1)
    finally:
        raise ValueError(2)


def exception_in_else():
    try:
        pass
    except Exception:
        return "wrong"
    else:
        raise Oops("else")
    finally:
        note("finally")


def continue_in_handler():
    out = []
    for x in [1, 0, 2]:
        try:
            out.append(6 // x)
        except ZeroDivisionError:
            continue
        out.append("next")
    return out


def loop_with_break_in_try():
    while True:
        try:
            break
        finally:
            note("left")
    return sys.exc_info()


def exception_from_callee():
    def low(x):
        return 1 // x

    def middle(x):
        try:
            return low(x)
        finally:
            note("middle")

    try:
        middle(0)
    except ZeroDivisionError as e:
        note(len(traceback.extract_tb(e.__traceback__)))
        return [(entry.name, entry.line) for entry in traceback.extract_tb(e.__traceback__)]


def format_exception_inside():
    def fail(x):
        return x.missing

    try:
        fail(3)
    except AttributeError:
        return [line for line in traceback.format_exc().splitlines() if "^" not in line and "~" not in line]


def exception_group_is_plain():
    e = ExceptionGroup("eg", [ValueError(1), KeyError(2)])
    try:
        raise e
    except ExceptionGroup as got:
        return got is e, len(got.exceptions)


def catch_not_a_class():
    try:
        1 / 0
    except 5:
        pass


def catch_tuple_with_wrong():
    try:
        1 / 0
    except (ValueError, "x"):
        pass


def catch_computed():
    def kinds():
        note("kinds")
        return (KeyError, (ZeroDivisionError))

    try:
        1 / 0
    except kinds() as e:
        return str(e)


def catch_base_exception():
    try:
        raise SystemExit(3)
    except BaseException as e:
        return type(e), e.code


def exception_with_notes():
    try:
        raise ValueError("x")
    except ValueError as e:
        e.add_note("hello")
        return e.__notes__, e.args


def exc_info_seen_by_callee():
    def look():
        return sys.exc_info()[0]

    out = [look()]
    try:
        1 / 0
    except ZeroDivisionError:
        out.append(look())
        try:
            raise KeyError
        except KeyError:
            out.append(look())
        out.append(look())
    out.append(look())
    return out


def handler_in_loop_of_calls():
    def f(n):
        try:
            if n == 0:
                raise Oops(n)
            return f(n - 1)
        except Oops:
            if n % 2:
                raise
            raise Oops(n)

    return f(4)
