"""Exceptions as control flow: try, except, else, finally, raise from, own classes, groups of handlers."""

from __future__ import annotations

from tests.programs.harness import attempt, program


class BadShape(Exception):
    def __init__(self, wanted, got):
        super().__init__(f"wanted {wanted}, got {got}")
        self.wanted, self.got = wanted, got


class Stop(Exception):
    pass


@program
def fall_back_on_key_error(torch, compile):
    @compile
    def run(x, table, name):
        try:
            w = table[name]
        except KeyError as error:
            return x - 1, error.args[0]
        else:
            x = x * w
        finally:
            x = x + 1
        return x, None

    table = {"a": 2.0}
    yield run(torch.ones(2), table, "a")
    yield run(torch.ones(2), table, "b")
    table["b"] = 5.0
    yield run(torch.ones(2), table, "b")


@program
def own_exception_leaves(torch, compile):
    def check(x, n):
        if x.shape[-1] != n:
            raise BadShape(n, x.shape[-1])
        return x

    @compile
    def run(x, n):
        return check(x, n).sum()

    yield run(torch.ones(2, 3), 3)
    yield attempt(run, torch.ones(2, 3), 4)
    yield run(torch.ones(2, 4), 4)
    try:
        run(torch.ones(1), 9)
    except BadShape as error:
        yield error.wanted, error.got, str(error)


@program
def side_effects_before_an_exception(torch, compile):
    log = []
    buffer = torch.zeros(2)

    @compile
    def run(x, fail):
        log.append("start")
        buffer.add_(x)
        if fail:
            raise Stop("half way")
        log.append("end")
        return buffer * 2

    yield run(torch.ones(2), False)
    yield attempt(run, torch.ones(2), True)
    yield buffer, log
    yield attempt(run, torch.ones(2), True)
    yield run(torch.ones(2), False)
    yield buffer, log


@program
def search_by_exception(torch, compile):
    def find(xs, want):
        for k, x in enumerate(xs):
            if x.shape == want:
                raise Stop(k)
        raise LookupError("none")

    @compile
    def run(xs, want):
        try:
            find(xs, want)
        except Stop as found:
            return xs[found.args[0]] * 2
        except (LookupError, TypeError):
            return xs[0] - 1

    xs = [torch.ones(1), torch.ones(2), torch.ones(3)]
    yield run(xs, (2,))
    yield run(xs, (5,))
    yield run(xs, (3,))


@program
def raise_from_and_context(torch, compile):
    @compile
    def run(x, d):
        try:
            return x * d["scale"]
        except KeyError as error:
            raise BadShape("scale", "nothing") from error

    yield run(torch.ones(1), {"scale": 2})
    result = attempt(run, torch.ones(1), {})
    yield result
    yield type(result.error.__cause__).__name__, result.error.__suppress_context__


@program
def finally_runs_in_order(torch, compile):
    log = []

    def inner(x, how):
        try:
            log.append("try")
            if how == "return":
                return x + 1
            if how == "raise":
                raise Stop
            x = x * 3
        except Stop:
            log.append("except")
            raise
        else:
            log.append("else")
        finally:
            log.append("finally")
        return x

    @compile
    def run(x, how):
        for k in range(2):
            try:
                x = inner(x, how)
            except Stop:
                log.append(f"outer {k}")
                continue
            finally:
                log.append("outer finally")
        return x

    for how in ("pass", "return", "raise", "pass"):
        yield run(torch.ones(1), how)
    yield log


@program
def retries_with_a_limit(torch, compile):
    @compile
    def run(x, failures, limit=3):
        tries = 0
        while True:
            try:
                if tries < failures:
                    raise ConnectionError(tries)
                return x / (tries + 1)
            except ConnectionError:
                tries += 1
                if tries >= limit:
                    raise

    yield run(torch.ones(1), 0)
    yield run(torch.ones(1), 2)
    yield attempt(run, torch.ones(1), 5)
    yield run(torch.ones(1), 4, limit=10)


@program
def duck_typing_by_attribute_error(torch, compile):
    class Box:
        def __init__(self, value):
            self.value = value

    @compile
    def unwrap(x):
        try:
            x = x.value
        except AttributeError:
            pass
        try:
            n = len(x)
        except TypeError:
            n = -1
        return x * n

    yield unwrap(torch.ones(3))
    yield unwrap(Box(torch.ones(2)))
    yield unwrap(torch.tensor(2.0))
    yield unwrap(Box(torch.tensor(2.0)))


@program
def errors_of_tensor_operations(torch, compile):
    @compile
    def add(x, y):
        return x + y

    yield add(torch.ones(2), torch.ones(2))
    yield attempt(add, torch.ones(2), torch.ones(3))
    yield add(torch.ones(2), torch.ones(1))
    yield attempt(add, torch.ones(2), "three")


@program
def shape_error_caught_inside(torch, compile):
    log = []

    @compile
    def product(a, b):
        try:
            return a @ b
        except RuntimeError:
            log.append("transposed")
            return a @ b.t()

    yield product(torch.ones(2, 3), torch.ones(3, 2))
    yield product(torch.ones(2, 3), torch.ones(2, 3))
    yield log


@program
def assertions(torch, compile):
    @compile
    def run(x, n):
        assert n > 0, f"n is {n}"
        assert x.dim() == 1
        return x / n

    yield run(torch.ones(2), 2)
    yield attempt(run, torch.ones(2), -1)
    yield attempt(run, torch.ones(2, 2), 1)
    yield run(torch.ones(3), 3)


@program
def loop_with_else_and_break(torch, compile):
    @compile
    def first_fitting(x, sizes):
        for n in sizes:
            if n % 2:
                continue
            if n > x.shape[0]:
                break
            x = x[:n] * n
        else:
            x = x + 100
        return x

    x = torch.arange(6.0)
    yield first_fitting(x, [5, 4, 2])
    yield first_fitting(x, [3, 8, 2])
    yield first_fitting(x, [])


@program
def nested_handlers_rethrow(torch, compile):
    log = []

    @compile
    def run(x, kind):
        try:
            try:
                if kind:
                    raise kind("inner")
                x = x + 1
            except ValueError as error:
                log.append(str(error))
                raise TypeError("outer") from None
            finally:
                x = x * 10
        except TypeError as error:
            log.append(f"{error} {error.__cause__}")
            return x, type(error)
        return x, None

    yield run(torch.ones(1), None)
    yield run(torch.ones(1), ValueError)
    yield run(torch.ones(1), TypeError)
    yield attempt(run, torch.ones(1), KeyError)
    yield log
