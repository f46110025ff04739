"""Random programs of more of the library: dataclasses, enums, deques, ordered and default dicts, slots, descriptors,
decorators, iterators of the program, nested modules with hooks, an optimizer, autograd functions.

In: a seed. Out: a `Program`, as python_programs.py writes them, from its tables and these. Apart from it, so that its
seeds stay what they are.
"""

from __future__ import annotations

import sys
import types

from tests.fuzz.program_tree import Node, pieces
from tests.fuzz.python_grammar import ATOMS, EXPRESSIONS, STATEMENTS, TENSOR_STATEMENTS, forms, forms_by_type
from tests.fuzz.python_programs import Program, Writer

RICH_ATOMS = forms_by_type(
    """
point: POINT   Point(1)   Point(2, y=0)
color: Color.RED   Color(2)   Color['BLUE']
deq: DQ   deque([2, 1], maxlen=3)
"""
)

RICH_EXPRESSIONS = forms_by_type(
    """
int: <point>.x   <point>.y   <point>.total()   <color>.value   len(DQ)   sum(<deq>)   (DQ[0] if DQ else <int>)
    SLOT.a   len(SLOT.b)   OWNER.field   decorated(<int>)   sum(Countdown(<int> % 4))   OD.get(<str>, <int>)
    len(DD)   len(DD[<str>])   max(Countdown(2))   PALETTE[<color>]   Registry.made['First'](<int>).go()
    dataclasses.astuple(<point>)[0]   dataclasses.asdict(<point>)['y']   sum(v for _, v in OD.items())
    next(iter(Countdown(3)))   Maker(<int>)(<int>)   list(map(Maker(2), <list>))[-1] if <list> else 0
    functools.reduce(operator.add, Countdown(3))   int('%d' % (<int> % 10))   keyed(a=<int>, **{'b': <int>})
    (lambda *a, **k: len(a) + len(k))(*<list>[:2], z=<int>)
    sum(p * q for p, q in itertools.product(range(2), <list>[:2]))
    next(itertools.chain(<list>, [<int>]))   bisect.bisect(sorted(<list>), <int>)
    heapq.nsmallest(1, [*<list>, 4])[0]
    operator.itemgetter('a')({'a': <int>})   operator.attrgetter('x')(<point>)
    sum(itertools.chain.from_iterable([<list>, <list>])) % 31
    [k for k in range(3)][-1]   (n if n else <int>)   {**OD}.get('a', <int>)   sum(divmod(<int>, 3))
bool: <color> is Color.RED   <color> == <color>   <point> == <point>   <int> in DQ   <str> in OD
    isinstance(<point>, Point)
    <color> in PALETTE   hasattr(SLOT, 'c')   Frozen(<int>) < Frozen(<int>)   bool(<deq>)   SLOT == SLOT
    <int> in Countdown(3)
str: <color>.name   repr(<point>)[:12]   f'{Color.RED.name:>6}'   str(Frozen(<int>))[-6:]   f'{@int!r:^5}'
    f'{@int=}'[-3:]
    ','.join(OD)[-6:]   decorated.__name__   type(<point>).__qualname__   'x'.join([<str>, <str>])[-6:]
    f'{1.25:{@int % 3 + 4}.1f}'
    <str>.partition('a')[0]   <str>.title()   <str>.center(4, '*')   <str>.encode().hex()[:4]   textual(<str>)
list: list(<deq>)   list(Countdown(<int> % 4))   <point>.tags   [*OD.values()]   SLOT.b   [c.value for c in Color]
    sorted(<list>, key=decorated)   [a for a in <list> if a > 0 if a % 2]   list(reversed(<deq>))
    [*map(len, DD.values())]
    list(itertools.takewhile(lambda q: q < 3, <list>))   list(zip(*[<list>, <list>]))[:0]
    list(itertools.starmap(max, [(<int>, 2)]))
    [*itertools.repeat(<int>, 2)]   list(filter(decorated, <list>))   list(range(3))[::-1]
    list(itertools.pairwise(<list>))[:0]
dict: dict(OD)   {c.name: c.value for c in Color}   dataclasses.asdict(<point>) and {'p': <int>}
    dict.fromkeys('ab', <int>)
    {k: len(v) for k, v in DD.items()}   dict(collections.ChainMap({'c': <int>}, <dict>))
point: Point(<int>)   Point(<int>, y=<int>)   <point>.moved(<int>)   dataclasses.replace(<point>, x=<int>)
    copy.copy(<point>)   (<point> if <bool> else <point>)
deq: deque([<int>, <int>], maxlen=3)   deque(<list>, maxlen=3)
color: (Color.RED if <bool> else <color>)   Color(<int> % 3 + 1)   max(Color, key=lambda c: c.value)
fn: decorated   Maker(<int>)   functools.partial(keyed, b=<int>)   operator.neg   <point>.plus
gen: iter(Countdown(3))   itertools.chain(<list>, [<int>])   enumerated(<list>)
    iter(DQ.copy())
tensor: torch.nn.functional.relu(<tensor>)   <tensor>.reshape(3, 1).squeeze(1)   <tensor>.roll(<int> % 3)
    torch.maximum(<tensor>, <tensor>)
    <tensor>.index_select(0, torch.tensor([0, 2, 1]))   torch.cat(<tlist>)[:3]   Double.apply(<tensor>)
    quiet(<tensor>)   deep(<tensor>)
    torch.stack([q for q in <tensor>])   sum(q * k for k, q in enumerate(<tensor>)) + <tensor>
    <tensor>.size(0) * <tensor>
    torch.einsum('i,i->i', <tensor>, <tensor>)   <tensor>.expand(2, 3).sum(0)
    torch.where(torch.tensor([True, False, True]), <tensor>, 0.0)
    <tensor>.gather(0, torch.tensor([2, 0, 1]))   torch.nn.functional.linear(<tensor>, torch.eye(3))
    <tensor>.pow(2)   (<tensor> > 0).float()
    <tensor>.tolist() and <tensor>   torch.tensor(<tensor>.shape).sum() * <tensor>
    <tensor>.chunk(3)[0] + <tensor>   scaled(<tensor>)
    torch.utils.checkpoint.checkpoint(torch.tanh, <tensor>, use_reentrant=False)   <tensor>.to(GT.dtype)
    <tensor>.new_zeros(3) + <tensor>
    torch.nn.functional.layer_norm(<tensor>, (3,))   <tensor>.type_as(y)
    <tensor>.masked_select(torch.ones(3) > 0)   <tensor>.T
    torch.nn.functional.softmax(<tensor>, dim=-1)   BANK[<str>](<tensor>)   LAYERS[<int> % 2](<tensor>)
    <tensor>[None].squeeze(0)   <tensor>[..., :]
scalar: torch.nn.functional.mse_loss(<tensor>, <tensor>)   <tensor>.norm()
    torch.dot(<tensor>, <tensor>) * 0.1   <tensor>.var()   <tensor>.argmax().float()
tlist: list(<tensor>.split(3))   [deep(q) for q in <tlist>[:2]]   list(torch.stack(<tlist>).unbind(0))
    sorted(<tlist>[:2], key=id)[:0] + <tlist>
"""
)

RICH_STATEMENTS = forms(
    """
DQ.append(<int>)   DQ.appendleft(<int>)   DQ.rotate(<int> % 3)   DQ and DQ.popleft()   DQ.extend(<list>[:2])
    DD[<str>].append(<int>)
OD.move_to_end('a')   OD[<str>] = <int>   OD.pop(<str>, None)   POINT.x = <int>   POINT.x += 1
    POINT.tags.append(<int>)   <new point> = <point>
SLOT.a = <int>   SLOT.b.append(<int>)   OWNER.field = <int>   OWNER.field += 1   <new color> = <color>
    PALETTE[<color>] = <int>
LOG.append(<point>)   LOG.append(sorted(DD))   @point.y = <int>   LOG.append(<color>.name)
    COUNTS[<str>] += <int>   LOG.append(dict(COUNTS))
<new int>, (<new int>, *<new list>) = <int>, [<int>, *<list>]   LOG.append(list(OD))   DD.pop(<str>, None)
    LOG.append(DQ.copy())
@list[1:2] = [<int>, <int>]   del @list[::2]   @list.extend(Countdown(2))   @list *= 2; del @list[4:]
    @list[-1:] = <list>[:1]
POINT.tags = <list>   setattr(OWNER, 'late', <int>)   LOG.append(getattr(OWNER, 'late', None))
    Point.shared.append(<int>)   <new str> = <str>
Registry.made['First'].bonus = <int>   SINK.send(<int>)   LOG.append(next(TICKS))   @set ^= {<int>}
    @dict.update(dict(OD))   CHAIN['c'] = <int>
decorated.calls = <int>   STACK.append(lambda q=<int>: q)   LOG.append(STACK[-1]() if STACK else 0)
    global_bump(<int>)   HISTORY[-1]['k'] = <int>
"""
)

RICH_TENSOR_STATEMENTS = forms(
    """
<new tensor> = deep(<tensor>)   LAYERS[0].scale += 1   LAYERS[1].seen.append(<int>)
    <new tensor> = Double.apply(<tensor>)   BANK['a'].flag = <bool>
deep.last = (<tensor>).detach()   KEPT.append((<tensor>).detach())   KEPT and KEPT.pop()
    <new tensor> = quiet(<tensor>)   TD[<str>] = (<tensor>).detach()
optimize(<tensor>)   @tensor.fill_(<float>)   @tensor.sub_(<tensor>)   @tensor[0], <new int> = <float>, <int>
    LOG.append(tuple(@tensor.shape))
@tensor.clamp_(min=-1)   @tensor[1:].mul_(2)   @tensor.view(3)[0] = <float>
    deep.register_buffer('late', (<tensor>).detach())   LOG.append(deep.training)
@tensor -= <scalar>   <new tensor> = @tensor.detach()   <new tensor> = @tensor[1:].sum() + @tensor
    POINT.held = (<tensor>).detach()   LOG.append(x is y)
STATS['mean'] = STATS['mean'] * 0.5 + (<tensor>).detach()   deep.train(<bool>)
    HANDLES.append(LAYERS[0].register_forward_hook(hooked))
HANDLES and HANDLES.pop().remove()   LOG.append(@tensor._version >= 0)   @tensor.grad = None
    x.note = (<tensor>).detach()   LOG.append(sorted(TD))
"""
)

PRELUDE = """\
import bisect, collections, dataclasses, enum, heapq
from collections import OrderedDict, defaultdict, deque
class Color(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3
@dataclasses.dataclass
class Point:
    x: int
    y: int = 2
    tags: list = dataclasses.field(default_factory=list)
    def moved(self, k):
        return dataclasses.replace(self, x=self.x + k)
    def total(self):
        return self.x + self.y + len(self.tags)
    def plus(self, k):
        self.y = (self.y + k) % 19
        return self.y
Point.shared = []
@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: str = "b"
class Slotted:
    __slots__ = ("a", "b")
    def __init__(self, a):
        self.a = a
        self.b = [a]
class Field:
    def __set_name__(self, owner, name):
        self.name = "_" + name
    def __get__(self, instance, owner=None):
        return getattr(instance, self.name, 0)
    def __set__(self, instance, value):
        LOG.append(("set", value))
        setattr(instance, self.name, value % 23)
class Owner:
    field = Field()
class Registry(type):
    made = {}
    def __init__(cls, name, bases, names):
        super().__init__(name, bases, names)
        Registry.made[name] = cls
    def __call__(cls, *args):
        made = super().__call__(*args)
        LOG.append(cls.__name__)
        return made
class First(metaclass=Registry):
    bonus = 1
    def __init__(self, k):
        self.k = k
    def go(self):
        return self.k + self.bonus
class Countdown:
    def __init__(self, k):
        self.k = k
    def __iter__(self):
        return self
    def __next__(self):
        if self.k <= 0:
            raise StopIteration
        self.k -= 1
        return self.k
class Maker:
    def __init__(self, k):
        self.k = k
    def __call__(self, q):
        self.k += 1
        return (self.k * q) % 13
def logged(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        LOG.append(fn.__name__)
        return fn(*args, **kwargs)
    return inner
@logged
def decorated(a):
    return a + 1
def keyed(*rest, a=0, b=1, **more):
    return a * 2 + b + len(rest) + len(more)
def textual(text):
    return "".join(c for c in reversed(text) if c.isalnum())[:4]
def enumerated(values):
    try:
        for k, q in enumerate(values):
            yield k * q
    finally:
        LOG.append("closed")
def sink():
    total = 0
    while True:
        total += yield total
        LOG.append(total)
SINK = sink()
next(SINK)
TICKS = itertools.count()
def global_bump(k):
    global G
    G = (G + k) % 17
DQ, DD, OD = deque([1, 2], maxlen=4), defaultdict(list), OrderedDict(a=1)
POINT, SLOT, OWNER = Point(1), Slotted(2), Owner()
PALETTE = {color: color.value for color in Color}
COUNTS = collections.Counter()
CHAIN = collections.ChainMap({}, {"c": 1})
STACK, HISTORY = [], [{"k": 0}]"""

TENSOR_PRELUDE = """\
class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * 2
    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return g * 2 + t * 0
@torch.no_grad()
def quiet(t):
    return t * 3
def scaled(t):
    with torch.no_grad():
        factor = 1 / (1 + t.abs().max())
    return t * factor
def hooked(module, args, out):
    LOG.append("hook")
    return out + module.scale
class Layer(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
        self.w = torch.nn.Parameter(torch.full((3,), 0.5 * k))
        self.scale, self.seen, self.flag = k, [], True
    def forward(self, t):
        if len(self.seen) < 3:
            self.seen.append(self.scale)
        return t * self.w + self.scale if self.flag else t
class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([Layer(1), Layer(2)])
        self.bank = torch.nn.ModuleDict({"a": Layer(3)})
        self.calls, self.last = 0, None
    def forward(self, t):
        self.calls += 1
        for layer in self.layers:
            t = layer(t)
        return t if self.last is None else t + self.last
deep = Deep().requires_grad_(GRAD)
LAYERS = deep.layers
BANK = defaultdict(lambda: torch.tanh, a=deep.bank["a"])
KEPT, HANDLES, STATS = [], [], {"mean": torch.zeros(3)}
OPT = torch.optim.SGD(deep.parameters(), lr=0.1, momentum=0.5)
def optimize(t):
    if not GRAD:
        return
    OPT.zero_grad()
    (deep(t.detach()).sum() * 0.1).backward()
    OPT.step()"""

sys.modules.setdefault("tests.fuzz.generated", types.ModuleType("tests.fuzz.generated"))  # dataclasses look there


def together(a: dict[str, list[str]], b: dict[str, list[str]]) -> dict[str, list[str]]:
    """The forms of both, by type."""
    return {kind: [*a.get(kind, ()), *b.get(kind, ())] for kind in (*a, *(k for k in b if k not in a))}


class RichWriter(Writer):
    """A writer with more forms, and more at module level."""

    atoms, expressions = together(ATOMS, RICH_ATOMS), together(EXPRESSIONS, RICH_EXPRESSIONS)
    statements, tensor_statements = STATEMENTS + RICH_STATEMENTS, TENSOR_STATEMENTS + RICH_TENSOR_STATEMENTS

    def prelude(self) -> list[Node]:
        made = [*super().prelude(), *pieces(PRELUDE)]
        if self.tensors:
            made += pieces(TENSOR_PRELUDE.replace("GRAD", str(self.gradients)))
        return made


def write_rich(seed: int, tensors: bool = True) -> Program:
    """The program of a seed."""
    return RichWriter(seed, tensors).program(seed)
