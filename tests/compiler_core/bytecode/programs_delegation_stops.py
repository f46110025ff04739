# ruff: noqa
"""Small programs: a StopIteration that comes to `yield from` by throw or close. See programs_basic.py."""

from bytecode_oracle import note


class _Closing:
    def __iter__(self):
        return self

    def __next__(self):
        return 1

    def close(self):
        raise StopIteration(9)


class _Throwing(_Closing):
    def throw(self, error):
        raise error


def _delegating(to):
    r = yield from to
    note(r)
    yield 3


def stop_thrown_into_a_list():
    g = _delegating([1, 2])
    next(g)
    return g.throw(StopIteration(5))


def stop_thrown_back():
    g = _delegating(_Throwing())
    next(g)
    return g.throw(StopIteration(5))


def stop_from_close():
    g = _delegating(_Closing())
    next(g)
    return g.throw(GeneratorExit)


def stop_from_close_at_close():
    g = _delegating(_Closing())
    next(g)
    g.close()
