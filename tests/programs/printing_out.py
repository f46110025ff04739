"""print, logging and warnings, in order, every time."""

from __future__ import annotations

import logging
import warnings

from tests.programs.harness import attempt, program


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(f"{record.levelname}: {record.getMessage()}")


@program
def print_between_operations(torch, compile):
    @compile
    def run(x):
        y = x + 1
        print("after the first", y.shape[0])
        z = y * 2
        print("done", end="!\n")
        return z

    for n in (2, 2, 3):
        yield run(torch.ones(n))


@program(codegen=True)
def the_worked_example(torch, compile):
    @compile
    def toy(a, b):
        x = a / (torch.abs(a) + 1)
        print("woo")
        if b.sum() < 0:
            b = b * -1
        return x * b

    for sign in (1.0, -1.0, 1.0, -1.0):
        yield toy(torch.arange(3.0), torch.full((3,), sign))


@program
def print_a_tensor_value(torch, compile):
    @compile
    def run(x):
        total = x.sum()
        print(f"total is {total.item():.2f}")
        return total / 2

    for k in range(3):
        yield run(torch.ones(2) * k)


@program
def print_in_a_loop_and_callee(torch, compile):
    def layer(x, k):
        y = x * k
        print("layer", k)
        return y + 1

    @compile
    def run(x, n):
        for k in range(n):
            x = layer(x, k)
        print("end")
        return x

    for n in (2, 3, 2, 3):
        yield run(torch.ones(1), n)


@program
def logging_with_levels(torch, compile):
    logger = logging.getLogger("tests.programs.printing_out")
    logger.propagate = False
    handler = Lines()
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)

    @compile
    def run(x, step):
        logger.info("step %d of %s", step, tuple(x.shape))
        logger.debug("not shown")
        y = x * 2
        if step > 1:
            logger.warning("late")
        return y

    for step in range(3):
        yield run(torch.ones(2), step)
    logger.setLevel(logging.DEBUG)
    yield run(torch.ones(2), 5)
    yield handler.lines


@program
def warnings_of_ones_own(torch, compile):
    def old_name(x):
        warnings.warn("use new_name", DeprecationWarning, stacklevel=2)
        return x + 1

    @compile
    def run(x):
        return old_name(x) * 2

    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield run(torch.ones(1))
        yield [str(w.message) for w in caught if w.category is DeprecationWarning]
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        yield attempt(run, torch.ones(1))


@program
def progress_every_few_steps(torch, compile):
    @compile
    def step(x, k):
        y = x.tanh()
        if k % 3 == 0:
            print(f"[{k:>3}] {tuple(y.shape)}")
        return y

    x = torch.ones(2)
    for k in range(7):
        x = step(x, k)
    yield x


@program
def verbose_flag_on_a_module(torch, compile):
    class Net(torch.nn.Module):
        verbose = False

        def forward(self, x):
            if self.verbose:
                print("input", tuple(x.shape))
            x = x * 2
            if self.verbose:
                print("output", type(x).__name__)
            return x

    net = Net()
    f = compile(net)
    yield f(torch.ones(2))
    net.verbose = True
    yield f(torch.ones(2))
    yield f(torch.ones(2))
    net.verbose = False
    yield f(torch.ones(2))


@program
def print_then_raise(torch, compile):
    @compile
    def run(x, n):
        try:
            y = x + 1
            print("try")
            if n > 1:
                raise ValueError(n)
            return y
        except ValueError:
            print("except")
            return x - n
        finally:
            print("finally")

    for n in (1, 2, 1, 3):
        yield run(torch.ones(1), n)


@program
def writes_to_a_file_object(torch, compile):
    class Sink:
        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

    sink = Sink()

    @compile
    def run(x, name):
        print(name, x.shape[0], sep="=", file=sink)
        return x * 2

    for name in ("a", "b", "a"):
        yield run(torch.ones(1), name)
    yield sink.text


@program
def debugging_aids(torch, compile):
    class Meter:
        def __init__(self):
            self.n, self.lines = 0, []

        def __repr__(self):
            return f"Meter({self.n})"

        def update(self, shape):
            self.n += 1
            self.lines.append(f"{self!r} {list(shape)!s:<8}|")

    meter = Meter()

    @compile
    def run(x):
        meter.update(x.shape)
        y = x.relu()
        meter.update(y.sum(0).shape)
        return y, repr(meter)

    yield run(torch.ones(2, 2))
    yield run(torch.ones(2, 2))
    yield meter.lines
