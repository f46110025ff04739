"""Exported programs are the modules they were made of: run, saved, loaded, compiled; and what cannot be is said."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from exported_programs import AUTO, PROGRAMS, Counting, Of, Tied

import distcompile as torch
from compiler_core.errors import (
    CannotExport,
    ConstraintViolationError,
    DTypeError,
    GraphBreak,
    ShapeError,
)
from compiler_core.graph.verify import verify
from compiler_core.ops.rules import Decomposed
from compiler_core.tensor.making.random_state import set_shard
from distcompile import nn
from distcompile.errors import ArgumentError, CheckpointError, NotSupportedError
from distcompile.export import Dim, ExportedProgram, export, load, save
from distcompile.export.files import DIGEST, KEY
from distcompile.serialization import digest_of, read_tensors, write_tensors
from distcompile.testing import assert_close
from distcompile.utils._pytree import tree_flatten, tree_map


def _copied(tree: Any) -> Any:
    return tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, tree)


def assert_same(a: Any, b: Any) -> None:
    (some, form), (others, other_form) = tree_flatten(a), tree_flatten(b)
    assert form == other_form
    for x, y in zip(some, others, strict=True):
        assert type(x) is type(y) or isinstance(x, torch.Tensor)
        if isinstance(x, torch.Tensor):
            assert_close(x, y, atol=1e-5, rtol=1e-5)
        else:
            assert x == y


def made(module: nn.Module, *args: Any, dynamic_shapes: Any = None) -> ExportedProgram:
    return export(module, args, dynamic_shapes=dynamic_shapes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_the_module_also_when_it_was_saved(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    it = PROGRAMS[name]()
    before = {name: value.clone() for name, value in it.module.state_dict().items()}
    arguments = _copied((it.args, it.kwargs))
    program = export(it.module, it.args, it.kwargs, dynamic_shapes=it.dynamic_shapes)
    assert_same(arguments, (it.args, it.kwargs))
    assert_same(before, dict(it.module.state_dict()))  # nothing has happened
    verify(program.dc_graph)
    save(program, tmp_path / "m.dcpt")
    loaded = load(tmp_path / "m.dcpt")
    assert str(loaded) == str(program)
    eager = copy.deepcopy(it.module)
    modules = [copy.deepcopy(program.module()), loaded.module()]
    for args, kwargs in [(it.args, it.kwargs), *((args, it.kwargs) for args in it.more)]:
        given = _copied((args, kwargs))
        expected = eager(*given[0], **given[1])
        for module in modules:
            own = _copied((args, kwargs))
            assert_same(expected, module(*own[0], **own[1]))
            assert_same(given, own)  # what was written to arguments
            assert_same(dict(eager.state_dict()), dict(module.state_dict()))


@pytest.mark.parametrize("name", ["transformer", "losses", "tied_weights", "batch_norm_in_training", "no_grad_inside"])
def test_gradients_flow_through_it_and_compile_captures_it(name: str) -> None:
    it = PROGRAMS[name]()
    found = []
    program = export(it.module, it.args, it.kwargs, dynamic_shapes=it.dynamic_shapes)
    for module in (it.module, program.module(), torch.compile(program.module(), fullgraph=True)):
        for parameter in it.module.parameters():
            parameter.grad = None
        out = tree_flatten(module(*_copied(it.args)))[0][0]
        (out * out).sum().backward()
        found.append([parameter.grad.clone() for parameter in it.module.parameters()])
    assert_same(found[0], found[1])
    assert_same(found[0], found[2])


def test_the_signature_says_what_inputs_and_outputs_are() -> None:
    program = made(Counting(), torch.randn(3, 2))
    signature = program.graph_signature
    assert signature.buffers == ["seen", "sums"]
    assert signature.non_persistent_buffers == {"sums"}
    assert signature.user_inputs == ("x",)
    assert set(signature.buffers_to_mutate.values()) == {"seen", "sums"}
    assert list(program.state_dict) == ["seen"]
    assert list(program.constants) == ["sums"]
    tied = made(Tied(), torch.randint(0, 10, (2, 3)))
    assert tied.graph_signature.parameters == ["embed.weight"]
    assert tied.module().out.weight is tied.module().embed.weight


def test_dropout_in_training_draws_at_every_call(tmp_path: Path) -> None:
    program = made(nn.Dropout(0.5), torch.ones(1000))
    save(program, tmp_path / "m.dcpt")
    module = load(tmp_path / "m.dcpt").module()
    first, second = module(torch.ones(1000)), module(torch.ones(1000))
    assert 350 < (first == 0).sum().item() < 650
    assert not torch.equal(first, second)


def test_a_break_is_an_error_at_the_users_line() -> None:
    def prints(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        print("here")
        return x

    with pytest.raises(GraphBreak, match=r"print\(\)") as caught:
        made(Of(prints), torch.ones(2))
    assert Path(__file__).name in caught.value.where
    with pytest.raises(GraphBreak, match="needs the data"):
        made(Of(lambda self, x: x if x.sum() > 0 else -x), torch.ones(2))


def test_what_the_program_raises_is_raised() -> None:
    def fails(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        made(Of(fails), torch.ones(2))


def test_what_is_no_program_of_tensors_is_said() -> None:
    def keeps(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.cache = x * 2
        return x

    with pytest.raises(CannotExport, match="'cache'"):
        made(Of(keeps), torch.ones(2))
    with pytest.raises(CannotExport, match="depends on data"):
        made(Of(lambda self, x: x[x > 0]), torch.ones(2))
    with pytest.raises(CannotExport, match="computed of sizes"):
        made(One(lambda x: (x, x.shape[0] / 2)), torch.ones(4), dynamic_shapes=({0: AUTO},))
    with pytest.raises(CannotExport, match="type object"):
        made(Of(lambda self, x: (x, object())), torch.ones(2))
    with pytest.raises(ArgumentError, match="layout"):
        made(nn.Identity(), torch.eye(3).to_sparse())
    with pytest.raises(ArgumentError, match=r"nn\.Module"):
        export(lambda x: x, (torch.ones(2),))  # type: ignore[arg-type]


def test_numbers_that_the_call_changes_are_left_as_they_are_and_said() -> None:
    def counts(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.calls

    module = Of(counts, calls=0)
    with pytest.warns(UserWarning, match="does not change the Of"):
        program = made(module, torch.ones(2))
    assert module.calls == 0
    assert_same(program.module()(torch.ones(2)), torch.ones(2) * 2)


def test_numbers_that_the_call_puts_back_are_not_told(recwarn: pytest.WarningsRecorder) -> None:
    class Flag:
        on = False

    flag = Flag()
    flag.on = False

    def flips(self: Any, x: torch.Tensor) -> torch.Tensor:
        flag.on = True
        doubled = x * 2 if flag.on else x
        flag.on = False
        return doubled

    assert_same(made(Of(flips), torch.ones(2)).module()(torch.ones(2)), torch.ones(2) * 2)
    assert not [warning for warning in recwarn if "does not change" in str(warning.message)]


class Two(nn.Module):
    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return self.run(x, y)


class One(nn.Module):
    def __init__(self, run: Any) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: torch.Tensor) -> Any:
        return self.run(x)


def test_a_declared_size_that_the_code_fixes_is_an_error_at_the_line_that_asked() -> None:
    module = One(lambda x: x.view(4, -1) if x.shape[0] == 8 else x)
    for dim in (Dim("b"), Dim.DYNAMIC):
        with pytest.raises(ConstraintViolationError, match="one number alone") as caught:
            made(module, torch.ones(8, 2), dynamic_shapes=({0: dim},))
        assert Path(__file__).name in caught.value.where
    program = made(module, torch.ones(8, 2), dynamic_shapes=({0: AUTO},))
    assert program.range_constraints == {"s0": (8, 8)}


def test_a_declared_size_that_the_code_narrows_is_an_error() -> None:
    module = One(lambda x: x.sum() if x.shape[0] > 4 else x.mean())
    with pytest.raises(ConstraintViolationError, match="some of its sizes") as caught:
        made(module, torch.ones(8, 2), dynamic_shapes=({0: Dim("b")},))
    assert "4 < " in caught.value.got
    program = made(module, torch.ones(8, 2), dynamic_shapes=({0: AUTO},))
    assert program.range_constraints["s0"].lower == 5
    with pytest.raises(ShapeError, match=r"in \[5, inf\]"):
        program.module()(torch.ones(3, 2))


def test_sizes_of_two_names_that_the_code_takes_to_be_equal_are_an_error() -> None:
    module = Two(lambda x, y: x + y)
    with pytest.raises(ConstraintViolationError, match="a and b are declared"):
        made(module, torch.ones(8), torch.ones(8), dynamic_shapes=({0: Dim("a")}, {0: Dim("b")}))
    program = made(module, torch.ones(8), torch.ones(8), dynamic_shapes=({0: AUTO}, {0: AUTO}))
    with pytest.raises(ShapeError, match=r"s0 == s1|s1 == s0"):
        program.module()(torch.ones(3), torch.ones(4))


def test_sizes_of_one_name_are_one_also_where_the_code_asks_nothing(tmp_path: Path) -> None:
    dim = Dim("d")
    program = made(Two(lambda x, y: (x, y)), torch.ones(8), torch.ones(8), dynamic_shapes=({0: dim}, {0: dim}))
    save(program, tmp_path / "m.dcpt")
    for one in (program, load(tmp_path / "m.dcpt")):
        with pytest.raises(ShapeError, match="s1 == d"):
            one.module()(torch.ones(3), torch.ones(4))


def test_what_dynamic_shapes_says_must_fit() -> None:
    module, x = One(lambda x: x), torch.ones(8, 2)
    with pytest.raises(ArgumentError, match="as long as"):
        made(module, x, dynamic_shapes=({0: AUTO}, None))
    with pytest.raises(ArgumentError, match="there is no 'y'"):
        made(module, x, dynamic_shapes={"y": None})
    with pytest.raises(ArgumentError, match="has 2 dims"):
        made(module, x, dynamic_shapes=({2: AUTO},))
    with pytest.raises(ArgumentError, match="whose size is 8"):
        made(module, x, dynamic_shapes=({0: 7},))
    with pytest.raises(ConstraintViolationError, match="is 8 in the example"):
        made(module, x, dynamic_shapes=({0: Dim("b", max=4)},))
    with pytest.raises(ArgumentError, match="identifier"):
        Dim("no name")


def test_a_call_unlike_the_exported_one_is_an_error() -> None:
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> torch.Tensor:
            return x * n

    program = export(Scaled(), (torch.ones(2, 3), 2), dynamic_shapes={"x": {0: Dim("b", max=4)}})
    module = program.module()
    with pytest.raises(ArgumentError, match="another form"):
        module(torch.ones(2, 3))
    with pytest.raises(ArgumentError, match="n is a constant"):
        module(torch.ones(2, 3), 3)
    with pytest.raises(ShapeError, match="x: the program"):
        module(torch.ones(2, 4), 2)
    with pytest.raises(ShapeError, match=r"in \[1, 4\]"):
        module(torch.ones(5, 3), 2)
    with pytest.raises(DTypeError, match="x: the program"):
        module(torch.ones(2, 3, dtype=torch.float64), 2)
    with pytest.raises(NotSupportedError):
        module.eval()
    with pytest.raises(NotSupportedError):
        program(torch.ones(2, 3), 2)


def _changed(path: Path, change: Any) -> None:
    tensors, metadata = read_tensors(path)
    said = json.loads(metadata[KEY])
    change(said)
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    text = json.dumps(said)
    write_tensors(path, arrays, {KEY: text, DIGEST: digest_of(text, arrays)})


def test_files_that_are_none_damaged_or_newer_are_said(tmp_path: Path) -> None:
    program, path = made(nn.Linear(3, 2), torch.ones(4, 3)), tmp_path / "m.dcpt"
    save(program, path, extra_files={"note": "mine"})
    extra: dict[str, Any] = {"note": ""}
    load(path, extra_files=extra)
    assert extra == {"note": "mine"}
    whole = path.read_bytes()
    path.write_bytes(whole[:-3] + b"abc")
    with pytest.raises(CheckpointError, match="damaged"):
        load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(CheckpointError):
        load(path)
    path.write_bytes(whole)
    _changed(path, lambda said: said.update(version=99))
    with pytest.raises(CheckpointError, match="newer format"):
        load(path)
    path.write_bytes(whole)
    _changed(path, lambda said: said.update(graph=said["graph"].replace("matmul(", "os_system(")))
    with pytest.raises(CheckpointError, match="cannot read"):
        load(path)


def test_its_graph_is_one_of_fx() -> None:
    program = made(nn.Linear(3, 2), torch.ones(4, 3), dynamic_shapes=({0: Dim("b")},))
    names = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    assert names == ["p_weight", "p_bias", "input_1"]
    x = torch.randn(5, 3)
    (found,) = program.graph_module(*program.parameters(), x)
    assert_same(found, program.module()(x))


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.sum() / x.numel(),
        lambda x: x / x.shape[0] ** 0.5,
        lambda x: x * (1.0 / x.shape[0]),
        lambda x: x + torch.full((2, 1), x.shape[0] / 3).sum(),
        lambda x: x * torch.tensor(x.shape[0] / 4),
        lambda x: x.clamp(max=x.shape[0] - 4),
        lambda x: torch.where(x > 0, x.shape[0], 0.0),
        lambda x: x.add(x, alpha=x.shape[0]),
        lambda x: torch.linspace(0, 1, x.shape[0]),
        lambda x: x.to(torch.int64) * len(x),
    ],
)
def test_numbers_of_sizes_are_computed_by_the_graph(run: Any) -> None:
    module = made(One(run), torch.ones(4, 3), dynamic_shapes=({0: Dim("n")},)).module()
    for n in (2, 4, 7):
        x = torch.ones(n, 3)
        assert_same(module(x), run(x))


@pytest.mark.parametrize(
    "run",
    [lambda x: x * math.sqrt(x.shape[0]), lambda x: x * max(x.shape[0], 3), lambda x: [1, 2, 3, 4][len(x) - 1] * x],
)
def test_what_it_cannot_compute_of_sizes_fixes_or_narrows_them(run: Any) -> None:
    with pytest.raises(ConstraintViolationError, match="n"):
        made(One(run), torch.ones(4, 3), dynamic_shapes=({0: Dim("n")},))
    module = made(One(run), torch.ones(4, 3), dynamic_shapes=({0: AUTO},)).module()
    assert_same(module(torch.ones(4, 3)), run(torch.ones(4, 3)))
    with pytest.raises(ShapeError):
        module(torch.ones(2, 3))


def test_a_buffer_that_is_replaced_is_written() -> None:
    class Replaced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> Any:
            self.state = self.state + x
            return self.state

    module = Replaced()
    program = made(module, torch.ones(3))
    assert program.graph_signature.buffers_to_mutate == {program.dc_graph.outputs[0].name: "state"}
    run = program.module()
    first, second = run(torch.ones(3)), run(torch.ones(3))
    assert_same([first, second, run.state], [torch.ones(3), torch.ones(3) * 2, torch.ones(3) * 2])


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_written_with_the_core_set(name: str) -> None:
    it = PROGRAMS[name]()
    program = export(it.module, it.args, it.kwargs, dynamic_shapes=it.dynamic_shapes)
    composed = program.run_decompositions()
    assert not any(isinstance(call.op.engines, Decomposed) for call in composed.dc_graph.calls)
    for args in (it.args, *it.more):
        modules = [copy.deepcopy(one.module()) for one in (program, composed)]
        assert_same(*(module(*_copied(args), **it.kwargs) for module in modules))


def test_code_can_ask_whether_it_is_exported() -> None:
    def asks(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.compiler.is_exporting() else x

    assert_same(made(Of(asks), torch.ones(2)).module()(torch.ones(2)), torch.ones(2) * 2)
    assert_same(torch.compile(Of(asks))(torch.ones(2)), torch.ones(2))


@pytest.mark.parametrize("size", [Dim("n"), Dim.AUTO])
def test_what_a_program_asks_of_layout_is_assumed(size: Any) -> None:
    """Not what our own code asks: `reshape` takes any."""
    net = One(lambda x: x.t().reshape(-1) + (1 if x.t().is_contiguous() else 2))
    module = export(net, (torch.ones(4, 3),), dynamic_shapes={"x": {0: size}}).module()
    assert_same(module(torch.ones(7, 3)), net(torch.ones(7, 3)))
    with pytest.raises(ShapeError):
        module(torch.ones(1, 3))
    free = export(One(lambda x: x.t().reshape(-1)), (torch.ones(4, 3),), dynamic_shapes={"x": {0: size}}).module()
    assert_same(free(torch.ones(1, 3)), torch.ones(3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_program_that_draws_is_compiled_as_its_module(dynamic: bool) -> None:
    """Its draws are the next ones of the code around it."""
    net = One(lambda x: nn.functional.dropout(x, 0.5) + torch.rand(x.shape[0], 1))
    module = export(net, (torch.ones(4, 16),), dynamic_shapes={"x": {0: Dim("n")}}).module()

    def around(f: Any) -> Any:
        return torch.compile(lambda x: (torch.rand(2), f(x), f(x)), dynamic=dynamic)

    ours, theirs = around(module), around(net)
    for n in (4, 5):
        x = torch.ones(n, 16)
        torch.manual_seed(n)
        expected = theirs(x)
        torch.manual_seed(n)
        found = ours(x)
        assert_same(found, expected)
        assert not torch.equal(found[1], found[2])


def test_a_program_that_draws_is_of_one_shard() -> None:
    module = export(nn.Dropout(0.5), (torch.ones(4),)).module()
    with set_shard(1), pytest.raises(NotSupportedError, match="another shard"):
        torch.compile(module, fullgraph=True)(torch.ones(4))
