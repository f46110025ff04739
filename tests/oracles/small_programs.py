"""Small numeric programs, each a line of statements, for beside_torch.py: what torch gives, or the error it raises."""

# C is a number that float32 does not hold: a constant, or another at every call
NUMBERS = """
y = x(); y[1]=C; y
y = x(); y[1:3]=C; y
y = x(); y[x>0]=C; y
y = x(); y[m.tensor([0, 2])]=C; y
y = x(); y[...]=C; y
y = x(); y[1]=np.float64(C); y
y = x(); y[1:3]=m.tensor([C, C], dtype=m.float64); y
y = x(); y[1:3]=m.from_numpy(np.array([C, C])); y
y = x().view(2, 2); y[0, m.tensor([True, False])]=C; y
x=m.tensor(0., dtype=m.float64); x[()]=C; x
x().fill_(C)
x().fill_(m.tensor(C, dtype=m.float64))
m.fill(x(), C)
x().view(2, 2).fill_diagonal_(C)
x().masked_fill(x()>0, C)
x().masked_fill_(x()>0, C)
m.where(x()>0, x(), C)
m.where(x()>0, C, x())
m.where(x()>0, C, 2.0)
x().clamp(C, 2)
x().clamp_(max=C)
m.full((2,), C, dtype=m.float64)
m.full_like(x(), C)
x().new_full((2,), C)
x().new_tensor([C])
x().new_tensor(C)
m.addcmul(x(), x(), x(), value=C)
m.addcdiv(x(), x(), x()+9, value=C)
m.add(x(), x(), alpha=C)
m.sub(x(), x(), alpha=C)
m.rsub(x(), C)
x().scatter(0, m.tensor([1]), C)
x().scatter(0, m.tensor([1]), C, reduce="multiply")
x().index_fill(0, m.tensor([1]), C)
x().index_fill_(0, m.tensor([1]), C)
x().index_add(0, m.tensor([1]), x()[:1], alpha=C)
x().abs()**C
C**x()
m.pow(C, x())
x().fill_(C)<C
m.tensor([C], dtype=m.float64)==C
m.tensor([C], dtype=m.float64)>=C
(x()/0).nan_to_num(C, C, C)
m.tensor(C, dtype=m.float64)
m.as_tensor(C, dtype=m.float64)
m.tensor([C, 1], dtype=m.float64)
m.scalar_tensor(C, dtype=m.float64)
m.lerp(x(), x()+1, C)
x().lerp_(x()+1, C)
x()%C
C%(x()+9)
m.fmod(x(), C)
x()//C
C//(x()+9)
x()/C
C/(x()+9)
m.atan2(x(), m.tensor(C, dtype=m.float64))
m.hypot(x(), m.tensor(C, dtype=m.float64))
F.threshold(x(), C, C)
F.leaky_relu(x(), C)
F.elu(x(), C)
F.celu(x(), C)
F.softplus(x(), C, C)
F.hardtanh(x(), -C, C)
F.softshrink(x(), C)
F.hardshrink(x(), C)
F.pad(x(), (1, 1), value=C)
m.constant_pad_nd(x(), (1, 1), C)
m.arange(0, 1, C, dtype=m.float64)
m.linspace(C, 1, 3, dtype=m.float64)
m.logspace(C, 1, 3, dtype=m.float64)
m.arange(C, 3., dtype=m.float64)
m.xlogy(x().abs(), C)
m.xlogy(C, x().abs())
m.copysign(x(), -C)
m.special.xlog1py(C, x().abs())
m.maximum(x(), m.tensor(C, dtype=m.float64))
m.dist(x(), x()+1, C+1)
x().norm(C+1)
m.cdist(x().view(2, 2), x().view(2, 2)+1, p=C+1)
m.renorm(x().view(2, 2), C+1, 0, C)
x().quantile(C)
m.quantile(x(), m.tensor([C], dtype=m.float64))
F.layer_norm(x(), (4, ), eps=C)
F.normalize(x(), eps=C, dim=0)
F.huber_loss(x(), x()*2, delta=C)
y = x(); y+=C; y
y = x(); y*=C; y
y = x().abs(); y**=C; y
y = x(); y/=C; y
m.logit(x(), C)
m.special.logit(x(), eps=C)
m.diag_embed(x()).fill_diagonal_(C)
x().put_(m.tensor([1]), m.tensor([C], dtype=m.float64))
x().select_scatter(m.tensor(C, dtype=m.float64), 0, 1)
m.bucketize(C, x().sort()[0])
m.searchsorted(x().sort()[0], C)
m.float_power(x().abs(), C)
m.polygamma(2, x().abs()+C)
m.addmm(x().view(2, 2), x().view(2, 2), x().view(2, 2), beta=C, alpha=C)
m.addmv(x()[:2], x().view(2, 2), x()[:2], beta=C, alpha=C)
m.addr(x().view(2, 2), x()[:2], x()[:2], beta=C, alpha=C)
m.addbmm(x().view(2, 2), x().view(1, 2, 2), x().view(1, 2, 2), beta=C, alpha=C)
m.baddbmm(x().view(1, 2, 2), x().view(1, 2, 2), x().view(1, 2, 2), beta=C, alpha=C)
m.trapezoid(x(), dx=C)
m.diff(x(), prepend=m.tensor([C], dtype=m.float64))
F.triplet_margin_loss(x().view(2, 2), x().view(2, 2)+1, x().view(2, 2)-1, margin=C)
F.local_response_norm(x().view(1, 2, 2), 2, C, C, C)
F.poisson_nll_loss(x(), x(), eps=C, full=True, log_input=False)
F.gaussian_nll_loss(x(), x(), x().abs(), eps=C)
m.clip(x(), m.tensor(C, dtype=m.float64))
m.tensor([np.float64(C), 1])
m.tensor(np.float64(C))
m.as_tensor(np.float64(C))
m.full((2,), np.float64(C))
x().masked_fill(x()>0, m.tensor(C, dtype=m.float64))
"""

# BIG is one that float64 does not hold
WHOLE_NUMBERS = """
x=m.zeros(2, dtype=m.int64); x[0]=BIG; x
m.zeros(2, dtype=m.int64).fill_(BIG)
m.full((2,), BIG)
m.ones(2, dtype=m.int64)+BIG
m.where(x()>0, BIG, m.ones(4, dtype=m.int64))
m.ones(2, dtype=m.int64).clamp(min=BIG)
m.ones(2, dtype=m.int64).masked_fill(m.tensor([True, False]), BIG)
m.full((2,), BIG)==BIG+1
m.full((2,), BIG)<BIG+1
m.full((2,), BIG).clamp(max=BIG-1)
m.zeros(2, dtype=m.int64).scatter(0, m.tensor([1]), BIG)
m.zeros(2, dtype=m.int64).index_fill(0, m.tensor([1]), BIG)
m.full((2,), BIG)%(BIG-1)
m.full((2,), BIG)//3
m.full((2,), BIG)*3
m.full((2,), BIG)*0.5
BIG-m.ones(2, dtype=m.int64)
m.arange(BIG, BIG+3)
m.arange(0.5, 4.2, 1.5, dtype=m.int64)
m.arange(0.5, 4.2, 1.5, dtype=m.int32)
m.arange(-0.5, 2.5, 1.2, dtype=m.int64)
m.arange(-0.5, 2.5, 1.2, dtype=m.int16)
m.arange(4.9, -1.2, -1.5, dtype=m.int64)
m.arange(0, 3, 0.5, dtype=m.int64)
m.arange(0, 3, 0.5, dtype=m.int32)
m.clamp_max(m.tensor([True, False]), m.tensor([True, True]))
m.clamp_min(m.tensor([True, False]), m.tensor([True, True]))
m.clamp(m.tensor([True, False]), min=m.tensor(False))
m.clamp(m.tensor([True, False]), m.tensor(False), m.tensor(True))
m.clamp(m.tensor([True, False]), min=False)
m.full((2,), BIG)&(BIG-1)
m.full((2,), BIG)^1
m.tensor([BIG, 1])
m.add(m.ones(2, dtype=m.int64), m.ones(2, dtype=m.int64), alpha=BIG)
m.isin(m.full((2,), BIG), BIG)
"""

# Z is a complex one that complex64 does not hold
COMPLEX_NUMBERS = """
x=m.zeros(2, dtype=m.complex128); x[0]=Z; m.view_as_real(x)
m.view_as_real(m.zeros(2, dtype=m.complex128).fill_(Z))
m.view_as_real(m.full((2,), Z, dtype=m.complex128))
m.view_as_real(m.ones(2, dtype=m.complex128)*Z)
m.view_as_real(m.tensor(Z, dtype=m.complex128))
m.view_as_real(x()+Z)
m.view_as_real(m.where(x()>0, Z, x()))
"""

# numbers at and beyond the ends of dtypes
RANGES = """
m.tensor([0.1])==0.1
m.ldexp(x(), m.tensor(3))
m.full((2,), 3)**31
m.full((2,), 2**53+1)==float(2**53)
m.full((2,), 2**53+1)>2.0**53
m.ones(2, dtype=m.uint8)-2
m.ones(2, dtype=m.uint8)<300
m.ones(2, dtype=m.int8)<300
m.ones(2, dtype=m.int8)+300
m.ones(2, dtype=m.int8).clamp(max=300)
m.ones(2, dtype=m.int8).fill_(300)
m.ones(2, dtype=m.uint8)==257
m.full((2,), 300, dtype=m.int8)
x=m.ones(2, dtype=m.int8); x[0]=300; x
m.ones(2, dtype=m.int32).fill_(3.7)
x=m.ones(2, dtype=m.int32); x[0]=3.7; x
m.ones(2, dtype=m.int32).masked_fill(m.tensor([True, False]), 3.7)
m.ones(2, dtype=m.bool).fill_(0.5)
m.where(m.tensor([True, False]), 3.7, m.ones(2, dtype=m.int32))
m.ones(2, dtype=m.int32).clamp(min=1.5)
m.ones(2, dtype=m.int32)==1.5
m.addcmul(m.ones(2, dtype=m.int32), m.ones(2, dtype=m.int32), m.ones(2, dtype=m.int32), value=2.0)
m.full((2,), True)
x=m.ones(2, dtype=m.float16); x[0]=1e6; x
m.ones(2, dtype=m.float16).fill_(1e6)
m.full((2,), 1e6, dtype=m.float16)
m.ones(2, dtype=m.float16)*1e6
m.ones(2, dtype=m.float16)+1e6
m.ones(2, dtype=m.float16).clamp(max=1e6)
m.where(m.tensor([True, False]), 1e6, m.ones(2, dtype=m.float16))
m.ones(2, dtype=m.float16).masked_fill(m.tensor([True, False]), 1e6)
m.ones(2, dtype=m.float16)<1e6
m.ones(2).fill_(1e300)
x=m.ones(2); x[0]=1e300; x
m.ones(2)*1e300
m.full((2,), 1e300)
m.ones(2)*(2**100)
m.ones(2)+10**25
m.ones(2, dtype=m.int64)+2**70
m.tensor(2**70)
m.tensor(2**63, dtype=m.uint64)
m.tensor(300, dtype=m.uint8)
m.tensor(-1, dtype=m.uint8)
m.tensor(3.7, dtype=m.int32)
m.tensor([1, 2.5, True])
m.tensor(np.float32(0.1))
m.tensor([m.tensor(1.5), 2])
m.full((2,), np.int32(3))
m.full((2,), m.tensor(3.5))
x().masked_fill(x()>0, m.tensor(0.1))
"""

# 16-bit floats are computed in float32, numbers beside them too, and rounded once
SIXTEEN_BITS = """
x().half() * 0.1
x().bfloat16() * 0.1
0.1 * x().half()
x().half() / 0.3
0.3 / (x().half() + 9)
x().half() // 0.3
m.div(x().half(), 0.3, rounding_mode="trunc")
x().half() + 0.1
x().half() - 0.1
m.add(x().half(), x().half(), alpha=0.1)
m.sub(x().bfloat16(), x().bfloat16(), alpha=0.3)
(x().half() * 1000) * 128
(x().half() * 0.003) * 2**-12
x().half() * m.tensor(0.1)
x().half() / m.tensor(0.3, dtype=m.float64)
x().half() ** 3
x().bfloat16() ** 3.7
x().half() % 0.3
m.lerp(x().half(), x().half() + 1, 0.3)
m.addcmul(x().half(), x().half(), x().half(), value=0.3)
m.addcdiv(x().half(), x().half(), x().half() + 9, value=0.3)
F.softplus(x().half() * 6)
F.softplus(x().bfloat16() * 6)
F.logsigmoid(x().half() * 20)
F.elu(x().half(), 0.3)
F.leaky_relu(x().bfloat16(), 0.3)
F.mish(x().half())
F.hardswish(x().half())
F.silu(x().bfloat16())
F.celu(x().half(), 0.3)
F.softshrink(x().half(), 0.3)
m.logaddexp(x().half(), -x().half())
m.round(x().half() * 100, decimals=1)
m.sinc(x().half())
m.exp2(x().half())
m.log2(x().bfloat16() + 2)
m.logit(m.sigmoid(x().half()), 1e-3)
(x().half() * 0.1).mean()
y = x().half(); y *= 0.1; y
y = x().half(); y /= 0.3; y
x().half().mul_(0.1)
"""

# what is exact in torch
EXACT = """
m.log2(2.0 ** m.arange(-20, 21).float())
m.log2(2.0 ** m.arange(-20, 21).double())
m.log10(m.tensor([1., 10., 100., 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10]))
m.log10(m.tensor([1., 10., 100., 1e3, 1e9, 1e15, 1e22], dtype=m.float64))
m.exp2(m.arange(-20, 21).float())
m.exp2(m.arange(-20, 21).double())
m.lerp(x(), x() + 0.1, 1.0)
m.lerp(x(), x() + 0.1, m.ones(4, dtype=m.float64))
1 / x().float()
0.1 / (x().float() + 7)
3 / m.tensor([7, 11])
"""

PROGRAMS = [
    line
    for block in (NUMBERS, WHOLE_NUMBERS, COMPLEX_NUMBERS, RANGES, SIXTEEN_BITS, EXACT)
    for line in block.strip().splitlines()
]
