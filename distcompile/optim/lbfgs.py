"""L-BFGS: quasi-Newton steps from the last `history_size` gradients. Defaults, iterates and state keys are torch's.

In: a closure that recomputes loss and gradients. Out: updated parameters; state, all of it at the first parameter:
"func_evals", "n_iter", "d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss".
One `step` makes up to `max_iter` iterations: direction d = -H·g by the two-loop recursion, then p ← p + t·d.
The vectors are on the parameters' device where that is one, and theirs is a dtype that its products take (f32, f64);
else on the host. Numbers that decide (slopes, norms) are waited for, as in torch.
Sources: Liu, Nocedal 1989; Nocedal, Wright 2006, algorithm 7.4. Limit: one parameter group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from compiler_core import cuda
from compiler_core.breaking import breaks_graph
from compiler_core.device import Device, cpu
from compiler_core.dtype import float32, float64
from compiler_core.ops.registry import Array
from compiler_core.tensor.tensor import Tensor
from distcompile.errors import ArgumentError
from distcompile.optim.checks import check_not_negative
from distcompile.optim.line_search import Point, strong_wolfe
from distcompile.optim.optimizer import Optimizer, run_closure


class LBFGS(Optimizer):
    """Quasi-Newton steps: the inverse Hessian, as the last changes of the gradient tell it.

        d = -H·g, by the two-loop recursion over the last history_size moves
        p ← p + t·d, up to max_iter times in one `step`

    Args:
        lr: t, or where a line search starts; at the very first iteration min(1, 1/‖g‖₁)·lr.
        max_iter: iterations in a step.
        max_eval: calls of the closure in a step; None: max_iter·5 // 4.
        tolerance_grad: stop when max|g| is at most this.
        tolerance_change: stop when the largest move is at most this, or the loss changes by less.
        history_size: how many moves H is made of; each keeps two vectors as long as all parameters.
        line_search_fn: None: steps of length lr; "strong_wolfe": search t between Wolfe's conditions.

    `step` needs a closure that clears gradients, computes the loss, calls backward and returns the loss.
    Limits: one parameter group, no complex parameters.
    Source: Liu, Nocedal 1989 (Math. Program. 45); Nocedal, Wright 2006, algorithms 7.4, 3.5 and 3.6.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([3.0, -2.0]))
        >>> optimizer = torch.optim.LBFGS([w], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = ((w - torch.tensor([1.0, 2.0])) ** 2).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure)
        tensor(20., grad_fn=<SumBackward0>)
        >>> w.detach()
        tensor([1.0000, 2.0000])
    """

    takes_complex = False

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_not_negative({"learning rate": lr})
        if line_search_fn not in (None, "strong_wolfe"):
            raise ArgumentError("only 'strong_wolfe' is supported", got=str(line_search_fn))
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ArgumentError("LBFGS doesn't support per-parameter options (parameter groups)")

    @breaks_graph("LBFGS.step() looks at the losses that it asks for", "compile the closure, and step outside")
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Up to max_iter iterations. Returns the first loss. Raises: ArgumentError without a closure; GraphBreak."""
        if closure is None:
            raise ArgumentError("LBFGS.step needs a closure that computes loss and gradients")
        state = self.state[self.param_groups[0]["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = run_closure(closure)
        state["func_evals"] += 1
        closure = as_called(closure, self._place())
        with self._place().working():
            gradient = self._gradient()
            if float(abs(gradient).max()) > self.param_groups[0]["tolerance_grad"]:
                _Run(self, closure, state).iterate(float(first), gradient)
        return first

    def _place(self) -> Device:
        """Where the vectors are."""
        parameters = self.param_groups[0]["params"]
        devices = {p.device for p in parameters}
        is_plain = all(p.dtype in (float32, float64) for p in parameters)
        return devices.pop() if len(devices) == 1 and is_plain else cpu

    def _gradient(self) -> Array:
        """All gradients as one vector; zeros where there is none."""
        place = self._place()
        parts = [
            place.zeros((p.numel(),), p.dtype.numpy)
            if p.grad is None
            else place.put(p.grad.to_dense()._own_array("step()")).reshape(-1)
            for p in self.param_groups[0]["params"]
        ]
        return place.xp.concatenate(parts)  # type: ignore[no-any-return]

    def _values(self) -> list[Array]:
        place = self._place()
        return [place.put(p._own_array("step()")) for p in self.param_groups[0]["params"]]

    def _move(self, values: list[Array], t: float, direction: Array) -> None:
        """Parameters ← values + t·direction."""
        start = 0
        for parameter, value in zip(self.param_groups[0]["params"], values, strict=True):
            end = start + value.size
            change = direction[start:end].reshape(value.shape) * direction.dtype.type(t)
            parameter._cell.write(parameter.device.put(self._place().xp.asarray(value + change, value.dtype)))
            start = end


def as_called(closure: Callable[[], Any], place: Device) -> Callable[[], Any]:
    """`closure`, which sees the device that is current now, also where that of `place` is."""
    if not place.is_gpu:
        return closure
    number = cuda.current()

    def call() -> Any:
        with cuda.on(number):
            return closure()

    return call


class _Run:
    """The iterations of one step."""

    def __init__(self, optimizer: LBFGS, closure: Callable[[], Any], state: dict[str, Any]) -> None:
        self.optimizer, self.closure, self.state = optimizer, closure, state
        self.group = optimizer.param_groups[0]
        self.evaluations = 1
        self.changes = [self._vector(tensor) for tensor in state.get("old_dirs") or ()]  # of the gradient
        self.moves = [self._vector(tensor) for tensor in state.get("old_stps") or ()]
        self.inverse = [float(number) for number in state.get("ro") or ()]  # 1/(change·move)
        self.scale = float(state.get("H_diag", 1.0))
        self.t = float(state.get("t") or 0.0)
        self.direction = self._vector(state["d"]) if state.get("d") is not None else None
        self.last_gradient = self._vector(state["prev_flat_grad"]) if state.get("d") is not None else None
        self.last_loss = float(state.get("prev_loss") or 0.0)

    def _vector(self, tensor: Tensor) -> Array:
        vector: Array = self.optimizer._place().put(tensor._own_array("step()"))
        return vector

    def iterate(self, loss: float, gradient: Array) -> None:
        """Iterate until one of the conditions holds, and keep the state."""
        for iteration in range(1, self.group["max_iter"] + 1):
            self.state["n_iter"] += 1
            self._turn(gradient)
            assert self.direction is not None
            self.last_gradient, self.last_loss = gradient, loss
            lr = float(self.group["lr"])
            is_first = self.state["n_iter"] == 1
            self.t = min(1.0, 1.0 / float(abs(gradient).sum())) * lr if is_first else lr
            slope = float(gradient @ self.direction)
            if slope > -self.group["tolerance_change"]:
                break
            loss, gradient = self._advance(loss, gradient, slope, is_last=iteration == self.group["max_iter"])
            if iteration == self.group["max_iter"] or self._is_done(loss, gradient):
                break
        self._keep()

    def _turn(self, gradient: Array) -> None:
        """Set the direction: -H·g, after adding the last move to the history; -g at first."""
        if self.state["n_iter"] == 1 or self.direction is None or self.last_gradient is None:
            self.direction = -gradient
            return
        change, move = gradient - self.last_gradient, self.direction * gradient.dtype.type(self.t)
        curvature = float(change @ move)
        if curvature > 1e-10:
            if len(self.changes) == self.group["history_size"]:
                del self.changes[0], self.moves[0], self.inverse[0]
            self.changes.append(change)
            self.moves.append(move)
            self.inverse.append(1.0 / curvature)
            self.scale = curvature / float(change @ change)
        self.direction = self._two_loops(gradient)

    def _two_loops(self, gradient: Array) -> Array:
        scalar = gradient.dtype.type
        q: Array = -gradient
        weights: list[float] = []
        history = list(zip(self.changes, self.moves, self.inverse, strict=True))
        for change, move, inverse in reversed(history):
            weights.append(float(move @ q) * inverse)
            q = q - change * scalar(weights[-1])
        r: Array = q * scalar(self.scale)
        for (change, move, inverse), weight in zip(history, reversed(weights), strict=True):
            r = r + move * scalar(weight - float(change @ r) * inverse)
        return r

    def _advance(self, loss: float, gradient: Array, slope: float, *, is_last: bool) -> tuple[float, Array]:
        """Move the parameters along the direction. (loss, gradient) there; the old ones after the last iteration."""
        assert self.direction is not None
        values, direction = self.optimizer._values(), self.direction
        if self.group["line_search_fn"] is not None:
            longest = float(abs(direction).max())
            start, budget = Point(0.0, loss, gradient, slope), self.group["max_eval"] - self.evaluations
            end, count = strong_wolfe(
                lambda t: self._evaluate(values, t, direction), start, self.t, longest, max_steps=budget
            )
            self.t = end.t
            self.optimizer._move(values, self.t, direction)
            loss, gradient = end.value, end.gradient
        else:
            self.optimizer._move(values, self.t, direction)
            count = 0 if is_last else 1  # nobody would use the loss after the last iteration
            if not is_last:
                loss, gradient = float(run_closure(self.closure)), self.optimizer._gradient()
        self.evaluations += count
        self.state["func_evals"] += count
        return loss, gradient

    def _evaluate(self, values: list[Array], t: float, direction: Array) -> Point:
        self.optimizer._move(values, t, direction)
        loss = float(run_closure(self.closure))
        gradient = self.optimizer._gradient()
        return Point(t, loss, gradient, float(gradient @ direction))

    def _is_done(self, loss: float, gradient: Array) -> bool:
        assert self.direction is not None
        least: float = self.group["tolerance_change"]
        is_done: bool = (
            self.evaluations >= self.group["max_eval"]
            or float(abs(gradient).max()) <= self.group["tolerance_grad"]
            or float(abs(self.direction).max()) * self.t <= least
            or abs(loss - self.last_loss) < least
        )
        return is_done

    def _keep(self) -> None:
        wrap = Tensor._wrap
        self.state.update(
            d=wrap(self.direction),
            t=self.t,
            old_dirs=[wrap(change) for change in self.changes],
            old_stps=[wrap(move) for move in self.moves],
            ro=list(self.inverse),
            H_diag=self.scale,
            prev_flat_grad=wrap(self.last_gradient),
            prev_loss=self.last_loss,
        )
