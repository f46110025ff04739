"""Convolution as one composite on a CUDA device, by a cuDNN that is not there: numbers, gradients, how results lie,
what autocast casts; and a small residual network, whose training is the CPU's, in few launches."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler_core import cuda
from compiler_core.eager.device import convolution as device_convolution
from compiler_core.eager.device import orders as device_orders
from compiler_core.eager.device import proof as device_proof
from compiler_core.ops import on_device
from compiler_core.ops.convolution import composite as composite  # declares the composites
from compiler_core.ops.whole import COMPOSITES
from compiler_core.runtime.cuda import cudnn
from compiler_core.tensor.autograd.tape import WholeNode
from tests.fake_cuda import FakeCuda
from tests.fake_cuda import fake_cuda as fake_cuda  # a fixture
from tests.fake_cuda.dnn import Dnn, add_cudnn

pytest.importorskip("triton")
pytestmark = [pytest.mark.triton, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT", "ignore::RuntimeWarning")]
BF16, F16, F32 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32)
PLACES: dict[str, Any] = {"stride": (2, 1), "low": (1, 0), "high": (0, 1), "dilation": (1, 2), "groups": 2}


@pytest.fixture(autouse=True)
def dnn(fake_cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Dnn:
    monkeypatch.setattr(cudnn, "_eager_plans", {})
    monkeypatch.setattr(device_proof, "_proved", {})
    return add_cudnn(fake_cuda)


def there(array: Any, lies: str = "rows") -> Any:
    if lies == "rows":
        return cuda.put(array, 0)
    return cuda.put(np.ascontiguousarray(array.transpose(0, 2, 3, 1)), 0).transpose(0, 3, 1, 2)


def near(made: Any, right: Any, dtype: Any, slack: float) -> None:
    found = cuda.fetch(made)
    assert (found.shape, found.dtype) == (right.shape, dtype)
    assert float(np.abs(found.astype(np.float64) - right).max()) <= slack * max(1.0, float(np.abs(right).max()))


@pytest.mark.parametrize("lies", ["rows", "last"])
@pytest.mark.parametrize(
    ("name", "dtype"), [*itertools.product(("convolution", "lowered_convolution"), (BF16, F16)), ("convolution", F32)]
)
def test_values_and_gradients(name: str, dtype: Any, lies: str, dnn: Dnn) -> None:
    rng = np.random.default_rng(0)
    kind = F32 if name == "lowered_convolution" else dtype
    x = rng.normal(size=(3, 16, 7, 9)).astype(dtype)
    w, b = rng.normal(size=(6, 8, 3, 2)).astype(kind), rng.normal(size=6).astype(kind)
    wide = [a.astype(dtype).astype(np.float64) for a in (x, w, b)]
    whole = COMPOSITES["convolution"]
    right = whole.compose(*wide, **PLACES)
    g = rng.normal(size=right.shape).astype(dtype)
    slopes = whole.vjp(g.astype(np.float64), right, *wide, **PLACES)
    found, slack = COMPOSITES[name].on_device(), {BF16: 2.0**-6, F16: 2.0**-9, F32: 1e-5}[dtype]
    arrays = [there(x, lies), there(w), there(b)]
    made = found.forward(*arrays, **PLACES)
    assert made is not None
    out, kept = made
    near(out, right, dtype, slack)
    dx, dw, db = found.backward([True] * 3, there(g, lies), None, kept, *arrays, **PLACES)
    near(dx, slopes[0], dtype, slack)
    near(dw, slopes[1], kind, slack)
    near(db, slopes[2], kind, 1e-5 if kind == F32 else slack)
    assert device_orders.lies_last(out) == device_orders.lies_last(dx) == (dtype != F32)
    assert dw.flags.c_contiguous
    assert Counter(kind for kind, _ in dnn.ran)["convolution"] >= 1


def test_a_bias_lies_in_any_way(dnn: Dnn) -> None:
    x, w = (there(np.ones(shape, BF16)) for shape in ((1, 8, 2, 2), (8, 8, 1, 1)))
    places = {"stride": (1, 1), "low": (0, 0), "high": (0, 0), "dilation": (1, 1), "groups": 1}
    many = np.arange(16).astype(BF16)
    for of, here in (
        (lambda b: b[::2], many[::2]),
        (lambda b: cuda.module().broadcast_to(b[3:4], (8,)), many[[3] * 8]),
    ):
        out, _ = COMPOSITES["convolution"].on_device().forward(x, w, of(there(many)), **places)
        np.testing.assert_array_equal(cuda.fetch(out)[0, :, 1, 1].astype(np.float64), 8 + here.astype(np.float64))


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_float32_is_tf32_where_that_is_permitted(precision: str, dnn: Dnn, monkeypatch: pytest.MonkeyPatch) -> None:
    import distcompile as torch

    rounds_down = 1  # what the notes of an engine of tf32 say
    monkeypatch.setattr(cudnn, "_notes", lambda configuration: {rounds_down})
    monkeypatch.setattr(cuda.precision, "tf32", precision == "high")
    x = torch.ones(1, 8, 4, 4, device="cuda")
    assert torch.nn.functional.conv2d(x, x).item() == 128
    assert bool(dnn.ran) == (precision == "high")


def test_what_it_refuses_is_composed(dnn: Dnn) -> None:
    dnn.refuses = True
    x, w = there(np.ones((1, 8, 4, 4), BF16)), there(np.ones((8, 8, 3, 3), BF16))
    assert COMPOSITES["convolution"].on_device().forward(x, w, None, **{**PLACES, "groups": 1}) is None
    import distcompile as torch

    ones = torch.ones(1, 2, 3, 3, device="cuda", dtype=torch.bfloat16)
    assert torch.nn.functional.conv2d(ones, ones, padding=1).flatten().tolist() == [8, 12, 8, 12, 18, 12, 8, 12, 8]


def test_under_autocast_it_is_one_node_and_a_weight_is_cast_once(asked: list[str], dnn: Dnn) -> None:
    import distcompile as torch

    layer = torch.nn.Conv2d(8, 8, 3, padding=1, device="cuda")
    x = torch.randn(2, 8, 6, 6, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        first = layer(layer(x))
        assert isinstance(first._node, WholeNode)
        assert first._node.op.name == "lowered_convolution"
        assert type(first.grad_fn).__name__ == "ConvolutionBackward0"
        asked.clear()
        second = layer(layer(x))
    assert "turn_narrow" not in asked
    (first + second).float().sum().backward()
    assert layer.weight.grad.dtype is torch.float32
    assert layer.bias.grad.dtype is torch.float32
    with pytest.raises(Exception, match="should be the same"):
        torch.nn.functional.conv2d(x.to(torch.bfloat16), layer.weight)


class Net:
    """Two residual blocks of convolution, batch norm and ReLU, as ResNet's."""

    def __init__(self, place: str) -> None:
        import distcompile as torch

        torch.manual_seed(0)
        nn = torch.nn
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                nn.Conv2d(16, 8, 3, padding=1), nn.BatchNorm2d(8),
            )
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Linear(8, 8)
        self.all = nn.ModuleList([self.stem, self.blocks, self.head]).to(place)

    def __call__(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = (x + block(x)).relu()
        return self.head(x.mean((2, 3)))


def trained(place: str, last: bool) -> tuple[list[float], list[Any]]:
    import distcompile as torch

    net = Net(place)
    x = torch.linspace(-3, 5, 4 * 3 * 8 * 8).reshape(4, 3, 8, 8).sin().to(place)
    if last:
        net.all.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    losses, momenta = [], [torch.zeros_like(p) for p in net.all.parameters()]
    for _ in range(4):
        with torch.autocast(place, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(net(x), torch.arange(4, device=place))
        net.all.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p, momentum in zip(net.all.parameters(), momenta):
                momentum.mul_(0.9).add_(p.grad)
                p.sub_(momentum, alpha=0.1)
        losses.append(loss.item())
    return losses, [value.detach().float().cpu().numpy() for value in net.all.state_dict().values()]


@pytest.mark.parametrize("last", [False, True])
def test_training_a_residual_network_is_the_cpus(last: bool) -> None:
    (ours, states), (theirs, others) = trained("cuda", last), trained("cpu", last)
    np.testing.assert_allclose(ours, theirs, rtol=3e-2)
    for a, b in zip(states, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=0.1, atol=0.06)


def test_a_block_takes_few_launches_and_no_ops_of_arrays(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a convolution, batch norm and ReLU, forward and backward; nothing of the activations' size is in f32."""
    import distcompile as torch

    nn = torch.nn
    blocks = (nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()) for _ in range(3))
    net, x = nn.Sequential(*blocks).cuda(), torch.randn(4, 16, 16, 16, device="cuda")
    run, ops = on_device._run, list[tuple[str, Any]]()

    def watched(op: Any, arrays: Any, attrs: Any, number: int) -> Any:
        ops.append((op.name, run(op, arrays, attrs, number)))
        return ops[-1][1]

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            out = net(x)
        out.backward(torch.ones_like(out))

    step()
    asked.clear()
    monkeypatch.setattr(on_device, "_run", watched)
    step()
    each = "channel_parts channel_finish channel_norm channel_moved channel_slopes channel_sums channel_backward"
    each += " forward backward turn_narrow turn_wide join sum_down add_down add_number"
    sums = 5 * 3  # of gradients, and what they are added to: of two parameters each of a convolution and a norm, and x
    proof = {"join_any": 4}  # of sums of f32, which the first step had none of
    assert Counter(asked) == {**dict.fromkeys(each.split(), 3), "join": 3 + sums, "narrow": 1 + 3, "turn": 3, **proof}
    assert not [name for name, made in ops if made.dtype == np.float32 and made.size >= x.numel()]


def _written(place: Any) -> Any:
    def write(o: Any) -> Any:
        place(o)
        return o

    return write


USES = {  # of what a convolution leaves, which says that it lies row-major, and does not
    "a view of all": _written(lambda o: o.view(-1)[5].fill_(100)),
    "a part": _written(lambda o: o[:, 0].fill_(3)),
    "in place": _written(lambda o: o.add_(1).mul_(o.float().mean().item())),
    "strides": _written(lambda o: o.as_strided((3, 2), (5, 2), 1).fill_(7)),
    "bits": lambda o: o.view(o.dtype).untyped_storage().nbytes(),
    "told strides": lambda o: list(o.stride()),
    "flat": lambda o: o.flatten(1),
    "rows": lambda o: o.permute(0, 2, 3, 1).reshape(-1, 8),
    "pickled": lambda o: pickle.loads(pickle.dumps(o)),
    "list": lambda o: o.float().tolist(),
    "gate": lambda o: o * o.mean((2, 3), keepdim=True),
    "slices": lambda o: o[1:, 1:5:2, ::2] * 2,
    "tail": lambda o: o[1:].relu(),
    "sums": lambda o: o.sum(1),
    "largest": lambda o: o.argmax(1),
    "softmax": lambda o: o.softmax(1),
    "sorted": lambda o: o.sort(1)[0],
    "chosen": lambda o: o[o > 0],
    "last": lambda o: o.clone() + 1,
}


@pytest.mark.parametrize("use", USES)
def test_what_is_done_with_a_result_is_as_on_the_cpu(use: str) -> None:
    import distcompile as torch

    found = []
    for place in ("cuda", "cpu"):
        x = torch.linspace(-2, 3, 2 * 4 * 6 * 7).reshape(2, 4, 6, 7).sin().to(place).to(torch.bfloat16)
        w = torch.linspace(-1, 1, 8 * 4 * 3 * 3).reshape(8, 4, 3, 3).to(place).to(torch.bfloat16)
        made = USES[use](torch.nn.functional.conv2d(x, w, padding=1))
        found.append(made.float().cpu().numpy() if hasattr(made, "cpu") else np.array(made))
    assert found[0].shape == found[1].shape
    np.testing.assert_allclose(*found, rtol=3e-2, atol=6e-2)


def test_weights_of_other_dims_are_left_to_the_composition() -> None:
    """Before they are cast: those of one spatial dim."""
    definition = COMPOSITES["lowered_convolution"].on_device()
    x, w = there(np.ones((2, 4, 9), np.float16)), there(np.ones((3, 4, 3), np.float32))
    replayed = list[Any]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(device_convolution, "_lower", lambda *of: replayed.append(of))
        assert definition.forward(x, w, None, stride=(1,), low=(0,), high=(0,), dilation=(1,), groups=1) is None
    assert not replayed
