"""Which device each value of a graph under construction is on: a graph has one device.

In: tensors from outside as they are lifted, nodes as ops make them, moves. Out: `device`, the graph's; `place_of`, for
`tensor.device` in captured code. A graph that reads a tensor of a CUDA device is that device's. Numbers of the CPU (0-d
tensors, or such expanded) may stand in it, as in eager code, and so may what the code makes on the CPU without reading
a tensor from there: it is computed where the graph is, and brought back if it is a result.
Raises: GraphBreak where one graph would need two devices, for tensors of two, or moves from one to the other; eager
code does that between two graphs. DeviceError for tensors of two devices in one op, as eager code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compiler_core.device import Device, cpu
from compiler_core.errors import DeviceError, GraphBreak
from compiler_core.graph.ir import Call, GraphBuilder, Node
from compiler_core.location import user_location
from compiler_core.ops import prims
from compiler_core.ops.registry import Value
from compiler_core.ops.rules import is_elementwise
from compiler_core.tensor.making.placement import place_of
from compiler_core.tensor.memory.sized import SizedValue

if TYPE_CHECKING:
    from compiler_core.tensor.memory.cell import Cell
    from compiler_core.tensor.tensor import Tensor

_KEEP_NUMBERS = ("expand", "cast", "reshape", "detach")  # what one of these makes of a number is still one


class PlacedBuilder(GraphBuilder):
    """A graph builder that knows where its values are.

    devices: of the values of which it is known; constants that ops need are anywhere. reads_cpu: whether a tensor of
    the CPU that is no number is an input.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.devices: dict[Node, Device] = {}
        self.reads_cpu = False

    def place_of(self, node: Value) -> Device:
        """Where a value is: what nothing is known of counts as made on the CPU."""
        return node.place if type(node) is SizedValue else self.devices.get(node, cpu)

    def note_made(self, node: Value, place: Device) -> None:
        """The code made this value here."""
        if isinstance(node, Node):
            if place.type == "cuda":
                self._take(place)
            self.devices[node] = place

    def check_lifted(self, cell: Cell) -> Device:
        """Where a tensor from outside is, of which the graph is about to read the value. Raises GraphBreak."""
        place = place_of(cell.raw)
        if place.type == "cuda":
            self._take(place)
        elif any(cell.strides()):
            if self.device != "cpu":
                raise _two_devices(self.device, "cpu")
            self.reads_cpu = True
        return place

    def _take(self, place: Device) -> None:
        """The graph is this device's. Raises GraphBreak if it is another's."""
        other = "cpu" if self.reads_cpu else self.device
        if self.reads_cpu or self.device not in ("cpu", str(place)):
            raise _two_devices(other, str(place))
        self.device = str(place)

    def place_call(self, node: Call) -> None:
        """A call is where its operands are. Raises DeviceError for operands of two devices."""
        known = [(arg, self.devices[arg]) for arg in node.args if arg in self.devices]
        if not known:
            return
        place = next((place for _, place in known if place is not cpu), cpu)
        self.devices[node] = place
        if place is not cpu:
            self._check(node, [arg for arg, where in known if where is cpu], place)

    def _is_number(self, node: Node) -> bool:
        """Whether it is one number, repeated or not: what elementwise ops make of numbers, and of constants that are
        anywhere, is one."""
        todo, seen = [node], {node}
        while todo:
            one = todo.pop()
            if not one.shape or (isinstance(one, Call) and not one.args and one not in self.devices):
                continue
            if not (isinstance(one, Call) and (one.op.name in _KEEP_NUMBERS or is_elementwise(one.op.lower))):
                return False
            todo += [arg for arg in one.args if arg not in seen]
            seen.update(one.args)
        return True

    def _check(self, node: Call, others: Sequence[Node], place: Device) -> None:
        if not all(map(self._is_number, others)):
            raise DeviceError(
                f"Expected all tensors to be on the same device, but found at least two devices, {place} and cpu!",
                got=", ".join(f"{self.place_of(arg)}{list(arg.shape)}" for arg in node.args),
                where=node.location,
                remedy="move them with .to(device)",
            )

    def placed(self, tensor: Tensor, place: Device) -> Tensor:
        """`tensor`, a constant, a number or what the code made elsewhere, as it is written into one of `place`."""
        if tensor.device is place:
            return tensor
        if tensor._cell.is_external or tensor._read() in self.devices:
            is_number = self._is_number(tensor._read())  # which it is to stay
            tensor = prims.expand(tensor, tensor.shape) if is_number else prims.cast(tensor, tensor.dtype)
        self.note_made(tensor._read(), place)
        return tensor

    def move(self, tensor: Tensor, place: Device) -> Tensor:
        """`tensor`, which the code made on the CPU, on the graph's device. Raises GraphBreak for other moves."""
        before = tensor.device
        if tensor._cell.is_external or before is not cpu or place.type != "cuda":
            what = f"a tensor is moved from {before} to {place} in the compiled function"
            raise GraphBreak(what, where=user_location(), remedy="move it before the call, or after it")
        self._take(place)
        moved: Tensor = prims.cast(tensor, tensor.dtype)
        self.devices[moved._read()] = place
        return moved


def _two_devices(first: str, second: str) -> GraphBreak:
    return GraphBreak(
        f"the compiled function reads tensors of two devices, {first} and {second}",
        where=user_location(),
        remedy="move them to one device before the call",
    )
