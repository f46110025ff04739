"""autocast and GradScaler against torch's: dtypes of results, training, state, errors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import distcompile as dc
from collectives import Communicator, run_ranks
from distcompile.distributed import destroy_process_group, use_communicator
from distcompile.nn.parallel import DistributedDataParallel
from distcompile.utils.checkpoint import checkpoint

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# name -> call; x, y: [4, 4], v: [4], i: [2, 3, 8, 8], w: [5, 3, 3, 3], b: [2, 4, 4], k: i64[4] classes
CALLS = {
    "matmul": "x @ y", "mm": "t.mm(x, y)", "bmm": "t.bmm(b, b)", "mv": "t.mv(x, v)", "dot": "t.dot(v, v)",
    "vector": "x @ v", "addmm": "t.addmm(x, x, y)", "baddbmm": "t.baddbmm(b, b, b)", "addbmm": "t.addbmm(x, b, b)",
    "addmv": "t.addmv(v, x, v)", "linear": "F.linear(x, y, v)", "bilinear": "F.bilinear(x, y, b.repeat(2, 1, 1), v)",
    "conv2d": "F.conv2d(i, w)", "conv1d": "F.conv1d(b, b)", "transposed": "F.conv_transpose2d(i, w.transpose(0, 1))",
    "attention": "F.scaled_dot_product_attention(b, b, b)", "vecdot": "t.linalg.vecdot(x, y)",
    "einsum": "t.einsum('ij,kj->ik', x, y)", "einsum without a sum": "t.einsum('ij,ij->ij', x, y)",
    "tensordot": "t.tensordot(x, y, 1)", "tensordot of all": "t.tensordot(x, y, 2)", "inner": "t.inner(x, y)",
    "inner of vectors": "t.inner(v, v)", "vdot": "t.vdot(v, v)", "multi_dot": "t.linalg.multi_dot([x, y, x])",
    "prelu": "F.prelu(x, v)", "embedding_bag": "F.embedding_bag(k[None], x)",
    "softmax": "F.softmax(x, -1)", "gelu": "F.gelu(x)", "exp": "x.exp()", "sum": "x.sum()", "pow": "x ** 2",
    "layer_norm": "F.layer_norm(x, (4,))", "group_norm": "F.group_norm(i, 3)", "mean": "x.mean(0)", "add": "x + y",
    "cross_entropy": "F.cross_entropy(x, k)", "nll": "F.nll_loss(x, k)", "mse": "F.mse_loss(x, y)",
    "l1": "F.l1_loss(x, y)", "smooth_l1": "F.smooth_l1_loss(x, y)", "huber": "F.huber_loss(x, y)",
    "bce": "F.binary_cross_entropy(x.sigmoid(), y.sigmoid())", "kl": "F.kl_div(x, y)",
    "bce with logits": "F.binary_cross_entropy_with_logits(x, y.sigmoid())",
    "poisson": "F.poisson_nll_loss(x, y)", "hinge": "F.hinge_embedding_loss(x, y)",
    "triplet": "F.triplet_margin_loss(x, y, x)", "margin": "F.multi_margin_loss(x, k)", "prod": "x.prod()",
    "cdist": "t.cdist(x, y)", "trace": "t.trace(x)", "quantile": "t.quantile(x, 0.5)", "cumsum": "x.cumsum(0)",
    "reflect": "F.pad(i, (1, 1, 1, 1), 'reflect')", "replicate": "F.pad(i, (1, 1, 1, 1), 'replicate')",
    "zeros around": "F.pad(i, (1, 1))", "avg_pool2d": "F.avg_pool2d(i, 2)", "max_pool2d": "F.max_pool2d(i, 2)",
    "avg_pool3d": "F.avg_pool3d(i, 2)", "max_pool3d": "F.max_pool3d(i, 2)",
    "max_pool3d with places": "F.max_pool3d(i, 2, return_indices=True)[0]",
    "adaptive3d": "F.adaptive_avg_pool3d(i, 1)", "adaptive2d": "F.adaptive_avg_pool2d(i, 1)",
    "inv": "t.linalg.inv(x + 9 * t.eye(4))", "cat": "t.cat([x, y.bfloat16()])", "cat alike": "t.cat([x @ y, x @ y])",
    "stack": "t.stack([x.bfloat16(), y])", "where": "t.where(x > 0, x, y.bfloat16())",
    "double": "x.double() @ y.double()",
    "grid_sample": "F.grid_sample(i, t.zeros(2, 2, 2, 2))", "mixed product": "x.bfloat16() @ y",
    "stft": "t.stft(v, 4, return_complex=True, window=t.ones(4)).real", "fft": "t.fft.fft(v).real",
}  # fmt: skip


def operands(t: Any, low: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"x": (4, 4), "y": (4, 4), "v": (4,), "i": (2, 3, 8, 8), "w": (5, 3, 3, 3), "b": (2, 4, 4)}
    made = {n: t.tensor(rng.standard_normal(s).astype(np.float32)) for n, s in shapes.items()}
    made = {n: v.bfloat16() for n, v in made.items()} if low else made
    return {**made, "k": t.tensor([0, 1, 2, 3]), "t": t, "F": t.nn.functional}


def kind(tensor: Any) -> str:
    return str(tensor.dtype).split(".")[1]


@pytest.mark.parametrize("low", [False, True], ids=["f32", "bf16"])
def test_dtypes_of_results_are_torchs(low: bool) -> None:
    found, wanted = {}, {}
    for name, text in CALLS.items():
        for t, table in ((dc, found), (torch, wanted)):
            values = operands(t, low)
            with t.autocast("cpu", dtype=t.bfloat16):
                try:
                    table[name] = kind(eval(text, values))
                except RuntimeError:
                    table[name] = "an error"
    for name, theirs in list(wanted.items()):
        if theirs == "an error":  # torch has no kernel for bfloat16
            wanted.pop(name), found.pop(name)
    assert found == wanted
    assert {"bfloat16", "float32"} <= set(wanted.values())


def test_layers_are_torchs_in_dtype_and_value() -> None:
    nn, x = torch.nn, torch.randn(3, 2, 4)
    for make in (
        lambda nn: nn.LSTM(4, 6), lambda nn: nn.GRU(4, 6), lambda nn: nn.RNN(4, 6, bidirectional=True),
        lambda nn: nn.LSTM(4, 6, proj_size=2), lambda nn: nn.MultiheadAttention(4, 2),
        lambda nn: nn.TransformerEncoderLayer(4, 2, 8, 0.0),
    ):  # fmt: skip
        theirs, ours = make(nn), make(dc.nn)
        ours.load_state_dict({n: dc.tensor(p.detach().numpy()) for n, p in theirs.state_dict().items()})
        args = (x,) * (3 if isinstance(theirs, nn.MultiheadAttention) else 1)
        try:
            with torch.autocast("cpu"):
                want = theirs(*args)
        except RuntimeError as error:
            if "primitive descriptor for the LSTM" not in str(error):
                raise
            continue  # oneDNN, by which torch runs it, has none in bfloat16 for processors without AVX-512
        with dc.autocast("cpu"):
            got = ours(*(dc.tensor(a.numpy()) for a in args))
        want, got = (r[0] if isinstance(r, tuple) else r for r in (want, got))
        assert kind(got) == kind(want), type(theirs)
        np.testing.assert_allclose(got.detach().float().numpy(), want.detach().float().numpy(), atol=0.02)


def net(t: Any) -> Any:
    class Net(t.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.up = t.nn.Conv2d(3, 8, 3, padding=1), t.nn.Linear(8, 16)
            self.norm, self.down = t.nn.LayerNorm(16), t.nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            x = t.relu(self.conv(x)).mean((2, 3))
            return self.down(t.nn.functional.gelu(self.norm(self.up(x))))

    return Net()


def train(t: Any, start: dict[str, np.ndarray[Any, Any]], run: Any, scaler: Any = None, dtype: str = "bfloat16") -> Any:
    """Losses and parameters of five steps, whose gradients must have the parameters' dtype."""
    model = net(t)
    model.load_state_dict({name: t.tensor(value) for name, value in start.items()})
    optimizer = t.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    rng, losses = np.random.default_rng(1), []
    x = t.tensor(rng.standard_normal((16, 3, 6, 6)).astype(np.float32))
    y, scaler = t.tensor(np.arange(16) % 4), scaler or t.amp.GradScaler("cpu", enabled=False)
    forward = run(model)
    for _ in range(5):
        optimizer.zero_grad()
        with t.autocast("cpu", dtype=getattr(t, dtype)):
            loss = t.nn.functional.cross_entropy(forward(x), y)
        assert kind(loss) == "float32"
        scaler.scale(loss).backward()
        assert all(kind(p.grad) == "float32" for p in model.parameters())
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses, {name: p.detach().numpy() for name, p in model.named_parameters()}


RUNS = ["eager", "compiled", "checkpointed", "reentrant"]


@pytest.mark.parametrize(
    ("run", "dtype"), [*((run, "bfloat16") for run in RUNS), *((run, "float16") for run in RUNS[:2])]
)
def test_training_is_torchs(run: str, dtype: str) -> None:
    torch.manual_seed(0)
    start = {name: p.detach().numpy().copy() for name, p in net(torch).named_parameters()}
    runs: dict[str, Any] = {
        "eager": lambda model: model,
        "compiled": dc.compile,
        "checkpointed": lambda model: lambda x: checkpoint(model, x, use_reentrant=False),
        "reentrant": lambda model: lambda x: checkpoint(model, x.requires_grad_(), use_reentrant=True),
    }
    want, theirs = train(torch, start, lambda model: model, torch.amp.GradScaler("cpu"), dtype)
    got, ours = train(dc, start, runs[run], dc.amp.GradScaler("cpu"), dtype)
    np.testing.assert_allclose(got, want, rtol=0.01)
    for name, value in theirs.items():
        assert np.linalg.norm(ours[name] - value) < 0.05 * np.linalg.norm(value - start[name]), name


def test_casts_of_weights_are_kept_within_the_outermost_region() -> None:
    def told(t: Any) -> list[Any]:
        x, w = t.ones(3, 3), t.ones(3, 3, requires_grad=True)
        with t.autocast("cpu", dtype=t.bfloat16):
            with t.autocast("cpu", dtype=t.bfloat16):
                first = t.mm(x, w).grad_fn.next_functions[1][0]
            second = t.mm(x, w).grad_fn.next_functions[1][0]
            with t.autocast("cpu", dtype=t.bfloat16, cache_enabled=False):
                third = t.mm(x, w).grad_fn.next_functions[1][0]
        with t.autocast("cpu", dtype=t.bfloat16):
            fourth = t.mm(x, w).grad_fn.next_functions[1][0]
        return [first is second, first is third, first is fourth]

    assert told(dc) == told(torch) == [True, False, False]


def test_a_weight_that_changed_is_cast_again() -> None:
    w = dc.ones(2, 2, requires_grad=True)
    with dc.autocast("cpu"):
        before = dc.mm(w, w)
        with dc.no_grad():
            w.mul_(2)
            quiet = dc.mm(w, w)
        assert (quiet == 4 * before).all()
        assert not quiet.requires_grad
        assert dc.mm(w, w).requires_grad


def test_state_is_torchs() -> None:
    def told(t: Any) -> list[Any]:
        out: list[Any] = []

        def look() -> None:
            out.extend([t.is_autocast_enabled("cpu"), t.is_autocast_enabled(), str(t.get_autocast_dtype("cpu"))[-8:],
                        str(t.get_autocast_dtype("cuda"))[-7:], t.is_autocast_cache_enabled()])  # fmt: skip

        look()
        with t.autocast("cpu", dtype=t.float16, cache_enabled=False):
            look()
            with t.autocast("cpu", enabled=False):
                look()
                out.append(kind(t.ones(2, 2) @ t.ones(2, 2)))
            look()

        @t.autocast("cpu")
        def product(x: Any) -> Any:
            """Doc."""
            look()
            return x @ x

        out += [kind(product(t.ones(2, 2))), product.__doc__, t.amp.is_autocast_available("cpu")]
        t.set_autocast_enabled("cpu", True)
        t.set_autocast_dtype("cpu", t.float16)
        look()
        out.append(kind(t.ones(2, 2) @ t.ones(2, 2)))
        t.set_autocast_enabled("cpu", False)
        t.set_autocast_dtype("cpu", t.bfloat16)
        look()
        return out

    assert told(dc) == told(torch)


def test_what_cannot_act_warns_or_is_refused_as_in_torch() -> None:
    for t in (dc, torch):
        with pytest.warns(UserWarning, match="CUDA is not available"), t.autocast("cuda"):
            assert kind(t.ones(2, 2) @ t.ones(2, 2)) == "float32"
        with pytest.warns(UserWarning, match="target dtype is not supported"), t.autocast("cpu", dtype=t.float64):
            assert not t.is_autocast_enabled("cpu")
        with pytest.raises(RuntimeError, match="abacus"):
            t.autocast("abacus")
        with pytest.raises(ValueError, match="type"):
            t.autocast(3)
        with pytest.warns(UserWarning, match=r"GradScaler is enabled, but"):
            assert not t.amp.GradScaler().is_enabled()
    with dc.cpu.amp.autocast(dtype=dc.float16):
        assert kind(dc.ones(2, 2) @ dc.ones(2, 2)) == "float16"
    assert dc.cpu.amp.GradScaler().is_enabled()
    assert dc.cpu.is_available()
    assert dc.cpu.device_count() == 1
    assert dc.cpu.current_device() == "cpu"


def test_functions_of_ones_own() -> None:
    def told(t: Any) -> list[Any]:
        out: list[Any] = []

        def define(cast: Any) -> Any:
            class Double(t.autograd.Function):  # type: ignore[misc]
                @staticmethod
                @t.amp.custom_fwd(device_type="cpu", cast_inputs=cast)
                def forward(ctx: Any, x: Any) -> Any:
                    out.append((kind(x), t.is_autocast_enabled("cpu"), kind(x @ x)))
                    return x * 2

                @staticmethod
                @t.amp.custom_bwd(device_type="cpu")
                def backward(ctx: Any, g: Any) -> Any:
                    out.append((t.is_autocast_enabled("cpu"), kind(g)))
                    return g * 2

            return Double

        for cast in (None, t.float16):
            x = t.ones(2, 2, requires_grad=True)
            with t.autocast("cpu"):
                y = define(cast).apply(x)
            y.sum().backward()
            out += [kind(y), kind(x.grad)]
            out.append(kind(define(cast).apply(x)))
        return out

    assert told(dc) == told(torch)


def test_compiled_code_is_made_anew_for_another_mode() -> None:
    f = dc.compile(lambda x: x @ x, fullgraph=True)
    x = dc.ones(3, 3)
    assert kind(f(x)) == "float32"
    with dc.autocast("cpu"):
        assert kind(f(x)) == "bfloat16"
    with dc.autocast("cpu", dtype=dc.float16):
        assert kind(f(x)) == "float16"
    assert kind(f(x)) == "float32"

    @dc.compile(fullgraph=True)
    def inside(x: dc.Tensor, w: dc.Tensor) -> tuple[dc.Tensor, ...]:
        with dc.autocast("cpu"):
            a = x @ w
            with dc.autocast("cpu", enabled=False):
                b = x @ w
        return a, b, x @ w

    w = dc.ones(3, 3, requires_grad=True)
    results = inside(x, w)
    assert [kind(r) for r in results] == ["bfloat16", "float32", "float32"]
    sum(r.float().sum() for r in results).backward()
    assert w.grad is not None
    assert kind(w.grad) == "float32"
    assert (w.grad == 9).all()


def test_backward_inside_the_region_computes_as_outside() -> None:
    w = dc.randn(4, 4, requires_grad=True)
    with dc.autocast("cpu"):
        (dc.linalg.inv(w) ** 2).sum().backward(create_graph=False)
    inside, w.grad = w.grad, None
    with dc.autocast("cpu"):
        loss = (dc.linalg.inv(w) ** 2).sum()
    loss.backward()
    assert inside is not None
    assert (inside == w.grad).all()


def test_a_scaler_is_torchs() -> None:
    def told(t: Any) -> list[Any]:
        out: list[Any] = []
        w = t.ones(3, requires_grad=True)
        optimizer = t.optim.SGD([w], lr=0.5)
        scaler = t.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        for factor in (1.0, 1.0, float("inf"), 1.0, float("nan"), 1.0, 1.0):
            optimizer.zero_grad()
            scaler.scale((w * factor).sum()).backward()
            if factor == 1.0:
                scaler.unscale_(optimizer)
                out.append(w.grad.tolist())
            scaler.step(optimizer)
            scaler.update()
            out += [w.tolist(), scaler.get_scale(), scaler._get_growth_tracker()]
        out.append([x.tolist() for x in scaler.scale([t.ones(2), t.ones(1)])])
        other = t.amp.GradScaler("cpu")
        other.load_state_dict(scaler.state_dict())
        other.set_growth_factor(3.0), other.set_backoff_factor(0.25), other.set_growth_interval(7)
        out += [sorted(other.state_dict().items()), other.get_growth_factor(), other.get_backoff_factor(),
                other.get_growth_interval(), pickle.loads(pickle.dumps(other)).get_scale()]  # fmt: skip
        other.scale(t.ones(1))
        other.update(4.0)
        out.append(other.get_scale())
        off = t.amp.GradScaler("cpu", enabled=False)
        out += [off.state_dict(), off.get_scale(), off.scale(t.ones(1)).item()]
        return out

    ours = told(dc)
    assert ours == told(torch)
    assert ours[2] == 8.0


def test_a_scalers_errors_are_torchs() -> None:
    def told(t: Any) -> list[Any]:
        out = []
        w = t.ones(2, requires_grad=True)
        optimizer, scaler = t.optim.SGD([w], lr=1.0), t.amp.GradScaler("cpu")
        half = t.ones(2, dtype=t.float16, requires_grad=True)

        def step(parameter: Any) -> None:
            other = t.optim.SGD([parameter], lr=1.0)
            scaler.scale(parameter.float().sum()).backward()
            scaler.step(other)

        def twice(first: Any, second: Any) -> None:
            scaler.update()
            scaler.scale(w.sum()).backward()
            first(optimizer)
            second(optimizer)

        for attempt in (
            lambda: t.amp.GradScaler("cpu", growth_factor=1.0), lambda: t.amp.GradScaler("cpu", backoff_factor=1.0),
            lambda: scaler.scale(3), lambda: step(half),
            lambda: (scaler.scale(t.ones(1)), scaler.step(t.optim.SGD([t.ones(1, requires_grad=True)], lr=1.0))),
            lambda: scaler.step(optimizer, closure=lambda: None), lambda: scaler.update(),
            lambda: (scaler.scale(w.sum()).backward(), scaler.step(optimizer), scaler.unscale_(optimizer)),
            lambda: twice(scaler.unscale_, scaler.unscale_), lambda: twice(scaler.step, scaler.step),
            lambda: pickle.dumps(scaler), lambda: scaler.load_state_dict({}),
        ):  # fmt: skip
            with pytest.raises((ValueError, RuntimeError, AssertionError)) as caught:
                attempt()
            out.append((isinstance(caught.value, ValueError), " ".join(str(caught.value).split()[:4])))
        return out

    assert told(dc) == told(torch)


def ddp_case(comm: Communicator) -> None:
    with use_communicator(comm):
        for compiled in (False, True):
            dc.manual_seed(0)
            model = DistributedDataParallel(net(dc), bucket_cap_mb=0.001)
            run, optimizer = dc.compile(model) if compiled else model, dc.optim.SGD(model.parameters(), lr=0.1)
            scaler, x = dc.amp.GradScaler("cpu", init_scale=16.0), dc.randn(4, 3, 6, 6)
            for bad in (False, True, False):
                optimizer.zero_grad()
                with dc.autocast("cpu", dtype=dc.bfloat16):
                    loss = run(x).float().square().mean()
                scaler.scale(loss * (float("inf") if bad and comm.rank == comm.world_size - 1 else 1.0)).backward()
                before = [p.detach().clone() for p in model.parameters()]
                scaler.step(optimizer)
                scaler.update()
                same = [bool((a == b).all()) for a, b in zip(before, model.parameters())]
                assert all(same) if bad else not any(same[:2])
                assert all(kind(p.grad) == "float32" for p in model.parameters())
            assert scaler.get_scale() == 8.0  # an infinite gradient of one rank is everyone's once it is averaged
            values = comm.all_gather_object([p.detach().numpy().tobytes() for p in model.parameters()])
            assert all(other == values[0] for other in values)
        destroy_process_group()


def test_on_two_ranks_an_infinity_of_one_stops_both() -> None:
    run_ranks(2, ddp_case, timeout_s=120)


def test_calls_with_out_are_left_alone() -> None:
    def told(t: Any) -> list[Any]:
        a, b = t.arange(12.0).reshape(3, 4) / 7, t.arange(20.0).reshape(4, 5) / 3
        with t.no_grad(), t.autocast("cpu", dtype=t.bfloat16):
            made = [
                t.mm(a, b, out=t.empty(3, 5)),
                t.matmul(a, b, out=t.empty(3, 5)),
                t.addmm(t.ones(3, 5), a, b, out=t.empty(3, 5)),
                t.bmm(a[None], b[None], out=t.empty(1, 3, 5)),
            ]
            assert kind(t.mm(a, b)) == "bfloat16", "what follows is cast"
        exact = [a @ b, a @ b, 1 + a @ b, (a @ b)[None]]
        return [*map(kind, made), *[bool(t.allclose(x, y)) for x, y in zip(made, exact)]]

    assert told(dc) == told(torch)
