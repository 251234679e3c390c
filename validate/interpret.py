"""What each operation of a schedule does to real tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, cast

from hwmodels.errors import InvalidInput, InvalidSchedule
from validate.graph import Graph, Key, Tape, enter
from validate.network import Network, formats
from validate.optimizer import Settings, step
from validate.places import Places
from validate.start import Batch, Start
from validate.storage import Content, Storage, name
from workloads.schedule import Op, Schedule, TensorKind

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.graph import GradientEdge

Part = tuple[str, int]
"""A parameter: its block, and where it starts there."""

BACKWARDS = frozenset({"backward", "backward_input", "backward_weight"})
"""Phases that use the graph of a forward."""


class Home(NamedTuple):
    """A block inside a flat buffer: tensor of the schedule, first value, number of values."""

    tensor: int
    offset: int
    size: int


class Interpreter:
    """Runs operations one by one, in any order that respects the schedule's edges.

    Parameters
    ----------
    schedule : Schedule
    network : Network
        Layers and their values at the start.
    batches : sequence of Batch
        One for each iteration.
    settings : Settings
        Of the optimizer.
    machine : Places
        Where each GPU and host memory of the schedule is.

    Attributes
    ----------
    storage : Storage
    losses : dict of (int, int) to Tensor
        Mean loss of the samples by iteration and first sample.
    """

    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        batches: Sequence[Batch],
        settings: Settings,
        machine: Places,
    ) -> None:
        start = Start(schedule, network, batches, machine)
        self.schedule = schedule
        self.storage = Storage(schedule)
        self.losses: dict[tuple[int, int], Tensor] = {}
        self._network = network
        self._formats = formats(network.model.precision)
        self._batches = batches
        self._settings = settings
        self._machine = machine
        self._start = start
        self._length = (len(schedule.ops) + 1) // schedule.iterations
        # calling a layer puts parameters into it, so each device needs its own
        used = {op.device for op in schedule.ops if op.kind == "compute"}
        self._modules = {device: network.empty_layers() for device in sorted(used)}
        self._kept = _kept(schedule)
        self._graphs: dict[tuple[tuple[int, int], tuple[int, int]], Graph] = {}
        self._sizes = {weight.name: weight.params for weight in network.model.weights}
        for place in schedule.initial:
            self.storage.take(place, "the start")
            self.storage.write(place, start.content(place, 0), "the start")

    # one operation ---------------------------------------------------------------------------

    def begin(self, op: Op) -> None:
        """Take the memory that an operation allocates."""
        for place in op.allocs:
            self.storage.take(place, name(op))

    def act(self, op: Op) -> None:
        """Do what the operation says."""
        if op.kind == "copy":
            self._copy(op)
        elif op.kind == "collective":
            self._all_reduce(op)
        elif op.phase == "update":
            self._update(op)
        elif op.phase in BACKWARDS:
            self._backward(op)
        elif op.phase in ("forward", "recompute"):
            self._forward(op)
        elif op.phase == "barrier":
            for place in op.allocs:
                content = self._start.content(place, op.id // self._length + 1)
                self.storage.write(place, content, name(op))
        elif op.kind != "free":
            raise InvalidSchedule(f"{name(op)}: nobody knows how to run a {op.phase}")

    def end(self, op: Op) -> None:
        """Give back the memory that an operation frees."""
        for place in op.frees:
            self.storage.release(place, name(op))

    # results ---------------------------------------------------------------------------------

    def weights(self) -> dict[str, tuple[Tensor, ...]]:
        """Flat values of each block, one for each tensor that holds it where the schedule ends."""
        found: dict[str, list[Tensor]] = {}
        seen: set[int] = set()
        for place in self.schedule.final:
            tensor = self.schedule.tensors[place[0]]
            if tensor.kind == "weight" and tensor.id not in seen:
                seen.add(tensor.id)
                flat = self.storage.read(place, "the end")[0]
                for block, home in self._homes([tensor.id]).items():
                    found.setdefault(block, []).append(flat[home.offset : home.offset + home.size])
        return {block: tuple(copies) for block, copies in found.items()}

    def mean_losses(self) -> tuple[float, ...]:
        """Mean loss of each iteration's minibatch."""
        edges: dict[int, list[int]] = {}
        for iteration, sample in sorted(self.losses):
            edges.setdefault(iteration, []).append(sample)
        total = self.schedule.minibatch
        return tuple(
            sum(
                float(self.losses[(iteration, low)]) * (high - low) / total
                for low, high in pairwise([*samples, total])
            )
            for iteration, samples in edges.items()
        )

    # contents --------------------------------------------------------------------------------

    def _of(self, op: Op, kind: TensorKind, ids: Sequence[int]) -> list[int]:
        return [tensor for tensor in ids if self.schedule.tensors[tensor].kind == kind]

    def _homes(self, tensors: Sequence[int]) -> dict[str, Home]:
        """Where each block lies in the flat buffers of these tensors."""
        found: dict[str, Home] = {}
        for tensor in tensors:
            offset = 0
            for block in self.schedule.tensors[tensor].weights:
                found[block] = Home(tensor, offset, self._sizes[block])
                offset += self._sizes[block]
        return found

    def _input(self, op: Op) -> Tensor:
        """Input of a pack: one piece, or several put together."""
        import torch

        layer = op.layers[0]
        pieces = [
            self.storage.read((tensor, op.device), name(op))[0]
            for tensor in self._of(op, "activation", op.reads)
            if self.schedule.tensors[tensor].layer == layer
        ]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    # compute ---------------------------------------------------------------------------------

    def _forward(self, op: Op) -> None:
        """Run a pack: with a graph if its backward uses this very run, else without."""
        import torch

        data, weights = self._input(op), self._parameters(op)
        if op.id in self._kept:
            out = self._taped(op, data, weights)
        else:
            with torch.no_grad():
                out = self._layers(op, data, weights)
        if op.phase == "forward" and op.layers[1] == self.schedule.num_layers - 1:
            self.losses[(op.id // self._length, op.span[0])] = out.detach()

    def _taped(self, op: Op, data: Tensor, weights: Mapping[Part, Tensor]) -> Tensor:
        """Run a pack and keep its graph; what the graph needs goes into the stash."""
        import torch
        from torch.autograd.graph import get_gradient_edge

        known: dict[int, Key] = {data.untyped_storage().data_ptr(): ("input", -1, -1)}
        homes = self._homes(self._of(op, "weight", op.reads))
        for (block, _), view in weights.items():
            known[view.untyped_storage().data_ptr()] = ("weight", homes[block].tensor, 0)
        tape = Tape(known)
        entered = {part: enter(view) for part, view in weights.items()}
        begin = edge = None
        if op.layers[0] > 0:
            data, begin = enter(data)
        with tape.watch(), torch.enable_grad():
            out = self._layers(op, data, {part: found for part, (found, _) in entered.items()})
        if out.requires_grad:
            edge = get_gradient_edge(out)
        stash = self._of(op, "stash", op.writes)
        handed_on = self._of(op, "activation", op.writes)
        held = tape.stash([out] if handed_on else [])
        if stash:
            self._keep(op, stash[0], held)
        elif held:
            raise InvalidSchedule(
                f"{name(op)} saves {sum(part.nbytes for part in held)} bytes for backward and none "
                "are planned; the model does not describe the layers that run"
            )
        edges = {part: found for part, (_, found) in entered.items()}
        self._graphs[(op.layers, op.span)] = Graph(tape, edge, begin, edges)
        return out

    def _keep(self, op: Op, tensor: int, held: Content) -> None:
        """Put a stash in its place, filled up to the planned bytes."""
        import torch

        planned = self.schedule.tensors[tensor].nbytes
        spare = planned - sum(part.nbytes for part in held)
        if spare > 0:
            device = self._machine.devices[op.device]
            held = [*held, torch.empty(spare, dtype=torch.uint8, device=device)]
        self.storage.write((tensor, op.device), held, name(op))

    def _layers(self, op: Op, data: Tensor, weights: Mapping[Part, Tensor]) -> Tensor:
        """Call the layers of a pack; the inputs of those that start a pack are handed on."""
        from torch.func import functional_call

        handed_on: dict[int, list[int]] = {}
        for tensor in self._of(op, "activation", op.writes):
            handed_on.setdefault(self.schedule.tensors[tensor].layer, []).append(tensor)
        for layer in range(op.layers[0], op.layers[1] + 1):
            module = self._modules[op.device][layer]
            own = {
                slot.name: weights[(slot.block, slot.offset)] for slot in self._network.slots[layer]
            }
            own |= self._carried(op, layer)
            arguments = (data,)
            if layer == self.schedule.num_layers - 1:
                target = self._batches[op.id // self._length][1][slice(*op.span)]
                arguments = (data, target.to(data.device))
            version = data._version
            data = functional_call(module, own, arguments, strict=False)
            if arguments[0]._version != version:
                raise InvalidInput(
                    f"layer {layer} ({type(module).__name__}) changes its input in place, which "
                    "other operations still need; let it make a new tensor"
                )
            for tensor in handed_on.get(layer + 1, ()):
                self._hand_on(op, tensor, data.detach(), arguments[0])
        return data

    def _hand_on(self, op: Op, tensor: int, data: Tensor, source: Tensor) -> None:
        """Put one piece of an output in its place."""
        low, high = self.schedule.tensors[tensor].span
        piece = data[low - op.span[0] : high - op.span[0]]
        self.storage.write((tensor, op.device), [_apart(piece, source)], name(op))

    def _parameters(self, op: Op) -> dict[Part, Tensor]:
        """Parameters that a pack reads, by block and offset: views of the flat buffers."""
        homes = self._homes(self._of(op, "weight", op.reads))
        found: dict[Part, Tensor] = {}
        for layer in range(op.layers[0], op.layers[1] + 1):
            for slot in self._network.slots[layer]:
                home = homes[slot.block]
                flat = self.storage.read((home.tensor, op.device), name(op))[0]
                begin = home.offset + slot.offset
                view = flat[begin : begin + slot.size].view(slot.shape)
                found[(slot.block, slot.offset)] = view
        return found

    def _carried(self, op: Op, layer: int) -> dict[str, Tensor]:
        """Buffers and frozen parameters of a layer; they lie behind the flat parameters."""
        found: dict[str, Tensor] = {}
        for tensor in self._of(op, "weight", op.reads):
            held = iter(self.storage.read((tensor, op.device), name(op))[1:])
            for block in self.schedule.tensors[tensor].weights:
                for each in self._network.fixed.get(block, ()):
                    part = next(held)
                    if each.layer == layer:
                        found[each.name] = part
        return found

    def _backward(self, op: Op) -> None:
        """Add to the gradients of a pack's weights, write that of its input, or do half of it."""
        import torch

        graph = self._graphs[(op.layers, op.span)]
        if op.phase != "backward_input":
            del self._graphs[(op.layers, op.span)]
        gradients = self._homes(self._of(op, "gradient", op.writes))
        started = set(self._of(op, "gradient", op.reads))
        for tensor in dict.fromkeys(home.tensor for home in gradients.values()):
            if tensor not in started:
                count = sum(home.size for home in gradients.values() if home.tensor == tensor)
                device = self._machine.devices[op.device]
                fresh = torch.zeros(count, dtype=self._formats.gradient, device=device)
                self.storage.write((tensor, op.device), [fresh], name(op))
        if graph.root is None:
            return
        parts = [] if op.phase == "backward_input" else list(graph.weights)
        inputs: list[GradientEdge] = [graph.weights[part] for part in parts]
        if graph.input is not None and op.phase != "backward_weight":
            inputs.append(graph.input)
        if not inputs:
            return
        graph.tape.resolve(lambda key: self._saved(op, key))
        seed = self._seed(op)
        # torch's stubs forget that an unused input has no gradient
        found = cast(
            "Sequence[Tensor | None]",
            torch.autograd.grad(
                [graph.root],
                inputs,
                [seed],
                retain_graph=op.phase == "backward_input",
                allow_unused=True,
            ),
        )
        graph.tape.resolve(None)
        for (block, offset), gradient in zip(parts, found[: len(parts)], strict=True):
            if gradient is not None:
                home = gradients[block]
                flat = self.storage.read((home.tensor, op.device), name(op))[0]
                begin = home.offset + offset
                flat[begin : begin + gradient.numel()].add_(gradient.reshape(-1))
        for tensor in self._of(op, "activation_gradient", op.writes):
            gradient = found[-1]
            if gradient is None:  # nothing depends on the input
                gradient = torch.zeros_like(self._input(op))
            self.storage.write((tensor, op.device), [_apart(gradient, seed)], name(op))

    def _seed(self, op: Op) -> Tensor:
        """Gradient of the output; of the loss its share in the mean over the minibatch."""
        import torch

        if op.layers[1] == self.schedule.num_layers - 1:
            share = (op.span[1] - op.span[0]) / self.schedule.minibatch
            loss = self.losses[(op.id // self._length, op.span[0])]
            return torch.full_like(loss, share)
        wanted = op.layers[1] + 1
        for tensor in self._of(op, "activation_gradient", op.reads):
            if self.schedule.tensors[tensor].layer == wanted:
                return self.storage.read((tensor, op.device), name(op))[0]
        raise InvalidSchedule(f"{name(op)} reads no gradient of its output")

    def _saved(self, op: Op, key: Key) -> Tensor:
        """Find what a graph asks for where it lies now."""
        kind, tensor, part = key
        if kind == "input":
            return self._input(op)
        if kind == "weight":
            return self.storage.read((tensor, op.device), name(op))[part]
        (stash,) = self._of(op, "stash", op.reads)
        return self.storage.read((stash, op.device), name(op))[part]

    # the rest --------------------------------------------------------------------------------

    def _copy(self, op: Op) -> None:
        """Copy a tensor; over what the destination holds, or into new storage."""
        (tensor,) = op.reads
        source = self.storage.read((tensor, op.device), name(op))
        target = self.storage.find((tensor, op.peer))
        if target is None:
            target = [self._machine.like(part, op.peer) for part in source]
        for into, part in zip(target, source, strict=True):
            self._machine.copy(part, into, op.device, op.peer)
        self.storage.write((tensor, op.peer), target, name(op))
        kind = self.schedule.tensors[tensor].kind
        nbytes = sum(part.nbytes for part in source)
        self.storage.count(kind, op.device, op.peer, nbytes)

    def _all_reduce(self, op: Op) -> None:
        """Sum in rank order, then give every rank the sum."""
        if op.phase != "all_reduce":
            raise InvalidSchedule(f"{name(op)}: nobody knows how to run a {op.phase}")
        flats = [
            self.storage.read(place, name(op))[0] for place in zip(op.reads, op.group, strict=True)
        ]
        total = flats[0]
        for flat in flats[1:]:
            total.add_(flat.to(total.device))
        for flat in flats[1:]:
            flat.copy_(total)

    def _update(self, op: Op) -> None:
        """Optimizer step of one unit."""
        (weight,) = self._of(op, "weight", op.reads)
        (gradient,) = self._of(op, "gradient", op.reads)
        states = self._of(op, "state", op.reads)
        values = self.storage.read((weight, op.device), name(op))[0]
        change = self.storage.read((gradient, op.device), name(op))[0]
        held = self.storage.read((states[0], op.device), name(op)) if states else []
        target = values
        if self._formats.master is not None:
            target, held = held[0], held[1:]
        count = op.id // self._length + 1
        kind = self._network.model.optimizer.name
        step(kind, target, change.to(target.dtype), held, count, self._settings)
        if target is not values:
            values.copy_(target)


def _apart(data: Tensor, source: Tensor) -> Tensor:
    """Give a result a storage of its own, shared neither with others nor with ``source``."""
    import torch

    storage = data.untyped_storage()
    whole = data.is_contiguous() and storage.nbytes() == data.nbytes
    if whole and storage.data_ptr() != source.untyped_storage().data_ptr():
        return data
    return data.clone(memory_format=torch.contiguous_format)


def _kept(schedule: Schedule) -> frozenset[int]:
    """Operations whose graph a backward uses: the last that ran its pack for its samples."""
    last: dict[tuple[tuple[int, int], tuple[int, int]], int] = {}
    found: set[int] = set()
    for op in schedule.ops:
        if op.phase in ("forward", "recompute"):
            last[(op.layers, op.span)] = op.id
        elif op.phase in BACKWARDS:
            if (op.layers, op.span) not in last:
                raise InvalidSchedule(f"{name(op)} follows no forward of its layers and samples")
            found.add(last[(op.layers, op.span)])
    return frozenset(found)
