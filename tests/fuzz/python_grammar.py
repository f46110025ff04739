"""What random programs are made of: expressions by type, and statements of one line.

A form is text with holes: `<int>` an expression of that type, `@list` a variable that holds one, `<new int>` a
new name.
Types: int, bool, float, str, list (of ints), dict (str to int), set, fn (int to int), gen (of ints), obj (Thing), and,
in programs with tensors, tensor (f32[3]), scalar (f32[]), tlist (list of tensors), tfn (tensor to tensor).
Forms keep numbers, strings and containers small, and most do not raise.
"""

from __future__ import annotations

import re


def forms(text: str) -> list[str]:
    """Forms stand three spaces apart, or on lines of their own."""
    return [form for form in re.split(r" {3,}|\n", text) if form.strip()]


def forms_by_type(text: str) -> dict[str, list[str]]:
    """A line that opens with `type: ` begins that type's."""
    parts = re.split(r"^(\w+): ", text, flags=re.MULTILINE)[1:]
    return {kind: forms(body) for kind, body in zip(parts[::2], parts[1::2])}


ATOMS = forms_by_type(
    """
int: 0   1   2   3   -1   5   n   G
bool: True   False   flag   not flag
float: 0.5   1.5   -0.25   2.0
str: 'a'   'bc'   s   ''
list: [1, 2]   []   [3, 1, 2]   items   GL
dict: {'a': 1}   {}   table   GD
set: {1, 2}   set()
fn: abs   (lambda q: q + 1)   helper
gen: iter([1, 2, 3])   numbers(3)
obj: obj   Thing(1)   Sub(2)
tensor: x   y   GT   TD.get('t', x)   torch.ones(3)   torch.arange(3.0)
scalar: x.sum()   torch.tensor(0.5)
tlist: [x, y]   [y]
tfn: torch.tanh   torch.relu   layer   net
"""
)

EXPRESSIONS = forms_by_type(
    """
int: <int> + <int>   <int> - <int>   <int> * <int> % 31   <int> // 3   <int> % 5   -<int>   ~<int>
    min(<int>, <int>)   max(<int>, <int>)   abs(<int>)   len(<list>)   sum(<list>)   len(<dict>)
    <dict>.get(<str>, <int>)   sum(<dict>.values())   <obj>.total   <obj>.double   <obj>.bump(<int>)
    (<int> if <bool> else <int>)   int(<bool>)   <fn>(<int>)   next(<gen>, 0)   len(<str>)   len(<obj>)
    (lambda q, k=<int>: q * k % 17)(<int>)   next((q for q in <list> if q > <int>), -1)   <int> ^ <int>
    functools.reduce(lambda p, q: (p * 2 + q) % 13, <list>, <int>)   sum(q * q for q in <list>) % 29
    sum(map(<fn>, <list>)) % 37   max(<list>, default=<int>)   (<list> or [<int>])[0]   <obj>.opt_x
    sorted(<list>, key=lambda q: -q)[:1][0] if <list> else 0   <list>.count(<int>)   len(<set>)   hash(<int>)
    helper(<int>, <int>)   helper(<int>, k=<int>)   Pair(<int>, <int>).second   recurse(<int> % 4, <int>)
    Counter(<list>)[<int>]   sum(itertools.islice(<gen>, 2))   divmod(<int>, 4)[1]   round(<float>)   Thing.count
    type(<obj>).weight   getattr(<obj>, 'missing', <int>)   ord((<str> or 'z')[0]) % 7   <obj>[<int>]
    operator.add(<int>, <int>)   variadic(<int>, *<list>[:2], k=<int>)   (<int> << 1) % 19
bool: <int> < <int>   <int> == <int>   <int> >= <int>   not <bool>   <bool> and <bool>   <bool> or <bool>
    <int> in <list>   <str> in <dict>   <str> not in <dict>   0 < <int> < 5   <str> == <str>   bool(<list>)
    any(q > 1 for q in <list>)   all(<list>)   <list> == <list>   isinstance(<obj>, Sub)   hasattr(<obj>, 'extra')
    <obj> is obj   <obj> == <int>   <int> in <obj>   <str>.startswith(<str>)   <set> <= {1, 2, 3}   <list> is items
    <int> % 2 == 0   callable(<fn>)   <float> > <float>   isinstance(<int>, (str, int))
float: <int> / 2   <float> + <int> * 0.5   float(<int>)   -<float>   math.sqrt(abs(<int>))   round(<float>, 1)
    (<float> if <bool> else <float>)   min(<float>, 2.5)   <float> * 0.5   math.floor(<float>) + 0.5
str: (<str> + <str>)[-6:]   f'{@int}-{@str}'[-6:]   <str>.upper()   str(<int>)   <str>[::-1]   <str> * 2
    type(<obj>).__name__   f'{@int:.1f}'   f'{@str!r:>5}'[-6:]   '-'.join(<dict>)[-6:]   repr(<list>)[:6]
    ('%d' % <int>)   <str>.replace('a', 'b')   (<str> if <bool> else <str>)   '{:>3}'.format(<int>)   str(<bool>)
    max(<dict>, default='q')   ''.join(sorted(<str>))   helper.__name__
list: [<int>, <int>]   [q + <int> for q in <list>]   list(range(<int> % 4))   sorted(<list>)   <list>[1:]
    (<list> + [<int>])[-6:]   [*<list>, *<list>][:6]   list(map(<fn>, <list>))   <list>[::-1]   list(<list>)
    [q for q in <list> if q % 2]   list(<dict>.values())   [p * q for p in <list>[:2] for q in <list>[:2]]
    list(itertools.islice(<gen>, 3))   list(<obj>)[:4]   [a + b for a, b in zip(<list>, <list>)]   sorted(<set>)
    list(itertools.accumulate(<list>))   [len(q) for q in <str>]   list(filter(None, <list>))   list(obj.items)
    [i * q for i, q in enumerate(<list>)]   list(numbers(<int> % 4))   (<list> if <bool> else <list>)
    list(delegating(<int> % 3))   [*range(3)][<int> % 3 :]   [k for k, _ in itertools.groupby(<list>)]
dict: {'a': <int>, 'b': <int>}   dict(<dict>)   {**<dict>, 'k': <int>}   dict(a=<int>)   <dict> | {'z': <int>}
    {k: v + <int> for k, v in <dict>.items()}   dict(zip('abc', <list>))   {k: <int> for k in <str>}
    vars(Thing(<int>)) and {'t': <int>}   (<dict> if <bool> else <dict>)   dict(sorted(<dict>.items()))
set: set(<list>)   <set> | {<int>}   <set> & {1, 2, 3}   {q % 3 for q in <list>}   <set> - {<int>}
fn: (lambda q: q * 2 % 11)   (lambda q, k=<int>: q - k)   adder(<int>)   functools.partial(helper, k=<int>)
    (abs if <bool> else helper)   <obj>.bump   counting()   cached   <obj>.shifted
gen: numbers(<int> % 5)   (q + 1 for q in <list>)   iter(<list>)   zipped(<list>)   map(abs, <list>)
obj: Thing(<int>)   Sub(<int>)   (obj if <bool> else <obj>)   <obj> + <int>   copy.copy(<obj>)   Thing.made()
tensor: <tensor> + <tensor>   <tensor> * <float>   <tensor> - <int>   torch.tanh(<tensor>)   <tensor>.relu()
    <tensor>.abs()   torch.where(<tensor> > <tensor>, <tensor>, <tensor>)   <tensor>.flip(0)   <tensor>.clone()
    <tensor> / (1 + <tensor>.abs())   torch.full((3,), float(<int>))   torch.stack(<tlist>).sum(0)   <tfn>(<tensor>)
    sum(<tlist>)   <tensor>[[2, 1, 0]]   torch.cat([<tensor>[:1], <tensor>[1:]])   <tensor>.detach()
    <tensor> * <int>   torch.tensor([<int>, <int>, 1]) * 0.5   <tensor>.softmax(0)   <tensor>.view(3)   <tensor>[:]
    <tensor> * <scalar>   <tensor>.unsqueeze(0).mean(0)   -<tensor>   <tensor>.clamp(-2, 2)   <obj>(<tensor>)
    torch.sigmoid(<tensor>)   (<tensor> if <bool> else <tensor>)   <tensor>[<int> % 3] + <tensor>   <tlist>[-1]
    functools.reduce(torch.add, <tlist>)   max(<tlist>, key=lambda q: <int>)   smooth(<tensor>)
    blend(<tensor>, <tensor>, t=<float>)   <tensor>.sort().values   torch.zeros_like(<tensor>)
    <tensor>.masked_fill(<tensor> > 1, 0.5)   <tensor>.cumsum(0)   <tensor> @ torch.eye(3)
    <tensor>.to(torch.float64).float()   layer(<tensor>, k=<int>)   Pair(<tensor>, <tensor>).first   net(<tensor>)
scalar: <tensor>.sum()   <tensor>.mean()   <tensor>[<int> % 3]   <tensor>.max()   <tensor> @ <tensor> * 0.1
tlist: [<tensor>, <tensor>]   <tlist> + [<tensor>]   [<tensor> * q for q in range(1, 3)]   <tlist>[::-1]
    list(waves(<tensor>))
tfn: torch.neg   (lambda q: q * <float>)   scaler(<float>)   (torch.tanh if <bool> else torch.relu)
    functools.partial(blend, x)
"""
)

LOOKS = forms(
    """
float(<tensor>.sum()) > 0   bool((<tensor> > 0).any())   <tensor>.sum() > 0   <scalar>.item() > 0.5
"""
)

STATEMENTS = forms(
    """
<new int> = <int>   <new list> = <list>   <new dict> = <dict>   <new str> = <str>   <new bool> = <bool>
<new float> = <float>   <new set> = <set>   <new fn> = <fn>   <new gen> = <gen>   <new obj> = <obj>
@int = <int>   @int += <int>   @int -= <int>   @list = <list>   @str = <str>   @float = <float>
@list.append(<int>)   @list[:] = <list>[:6]   @list.insert(0, <int>)   @list.reverse()   @list.sort()
@list += [<int>]   items.append(<int>)   GL.append(<int>)   del @list[3:]   @list and @list.pop()
@dict['k'] = <int>   @dict.setdefault(<str>, <int>)   @dict.pop(<str>, None)   @dict.update(q=<int>)
table[<str>] = <int>   GD['g'] = GD.get('g', 0) + 1   @set.add(<int>)   @set.discard(<int>)
@dict |= {'m': <int>}   obj.total = <int>   obj.total += 1   obj.items.append(<int>)   obj.extra = <int>
@obj.bump(<int>)   setattr(@obj, 'total', <int>)   obj.double = <int>   Thing.count += 1   obj.items = <list>
@obj.name = <str>   LOG.append(<int>)   LOG.append((<str>, <int>))   LOG.append(<str>)   LOG.append(<list>)
note(<int>)   note(<str>)   @int, @int = <int>, <int>   <new int>, *<new list> = [<int>, *<list>]
(<new int>, <new int>), <new str> = (<int>, <int>), <str>   @str += 'z'   assert <int> < 1000, 'large'
<new int> = <new int> = <int>   @int = @int if <bool> else <int>   GD.clear()   LOG.append(type(@obj).__name__)
LOG.append(f'{@int:>3}|{@str}')   vars(obj)['direct'] = <int>   obj[<int>] = <int>
LOG.append(sorted(vars(@obj)))   CONTEXT.set(<int>)   <new int> = CONTEXT.get()   CELLS[0] = <int>
"""
)

GLOBAL_STATEMENTS = forms(
    """
G = <int>   G += 1
"""
)

TENSOR_STATEMENTS = forms(
    """
<new tensor> = <tensor>   <new tensor> = <tensor>   <new tensor> = <tensor>   <new tensor> = <tensor>
<new tensor> = <tensor>   <new tensor> = <tensor>   <new tensor> = <tensor>   <new tensor> = <tensor>
<new scalar> = <scalar>   <new tlist> = <tlist>   <new tfn> = <tfn>   @tensor = <tensor>   @tensor = <tensor>
@tensor += <tensor>   @tensor.add_(<tensor>)   @tensor.mul_(0.5)   @tensor[1] = <int>
@tensor[:2] = <tensor>[1:]   @tensor.zero_()   @tensor.copy_(<tensor>)   @tensor *= <float>
@tensor[0] += <scalar>   x.mul_(0.5)   y[1:] += 1   @tlist.append(<tensor>)   @tlist.reverse()
@tlist[0] = <tensor>   obj.t = (<tensor>).detach()   GT.add_(1)   LOG.append(<tensor>)   x.tag = <int>
LOG.append(getattr(x, 'tag', None))   net.count += 1   net.cache['c'] = (<tensor>).detach()
GT = (<tensor>).detach()   net.mean.mul_(0.5).add_((<tensor>).detach(), alpha=0.5)
TD['t'] = (<tensor>).detach()   <new tensor>, <new tensor> = <tensor>, <tensor>
<new tensor>, *<new tlist> = [<tensor>, *<tlist>]   LOG.append(<tensor>.shape)   net.mean = (<tensor>).detach()
net.flag = not net.flag   @tensor.clamp_(-3, 3)   @tensor[@tensor > 1] = 0.5   <new tensor> = @tensor.view(3)
<new tensor> = @tensor[:]   obj.keep = <tlist>[:1]   MEMO[<int> % 3] = (<tensor>).detach()
"""
)
