"""What forward, recompute, backward, reduce and update read and write: written once.

A family of schedules decides the *order* of these tasks and the device of each; the planner in
``workloads.residency`` adds the copies that bring every tensor where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Literal

from hwmodels.compute import LayerWork, Phase, Work
from workloads.model import Layer, Model, Weight
from workloads.order import weight
from workloads.schedule import NEW, Tensor, TensorKind
from workloads.tasks import Pack, Span, Task, units

Sizes = Callable[[Weight], int]
"""Bytes that one kind of tensor takes for a block of parameters."""

Half = Literal["backward_input", "backward_weight"]
"""Halves of a backward: what makes the gradient of the input, and what makes those of weights."""


def layer_work(model: Model, phase: Phase, index: int, samples: int) -> LayerWork:
    """Work of layer ``index`` for one microbatch: forward, recompute or backward."""
    layer = model.layers[index]
    held = sum([model.weight_bytes(weight) for weight in layer.weights])
    row = layer.profile_row or layer.name
    dtype = model.precision.compute
    if phase == "backward":
        made = sum([model.gradient_bytes(weight) for weight in layer.weights])
        nbytes = layer.backward_bytes * samples + held + made
        flops = layer.backward_flops * samples
        return LayerWork(row, phase, samples, flops, nbytes, dtype, layer.backward_kernels)
    nbytes = layer.forward_bytes * samples + held
    flops = layer.forward_flops * samples
    return LayerWork(row, phase, samples, flops, nbytes, dtype, layer.forward_kernels)


def layer_cost(model: Model, phase: Phase, index: int, samples: int) -> float:
    """Relative duration of layer ``index`` for one microbatch, as `workloads.order.weight`."""
    return weight(Work((layer_work(model, phase, index, samples),)), model.profile)


class Training:
    """Creates tensors and tasks for one iteration of one model.

    Parameters
    ----------
    model : Model
    cuts : iterable of int
        Layers at which some pack starts; weights between two cuts move together.
    kept : iterable of int
        Layers whose input is kept for the backward pass (starts of backward packs).
    microbatches : sequence of Span
        All forward and backward microbatches. Activations at pack boundaries are cut where any
        of them starts or ends, so that forward and backward may use different sizes.
    """

    def __init__(
        self, model: Model, cuts: Iterable[int], kept: Iterable[int], microbatches: Iterable[Span]
    ) -> None:
        self.model = model
        self.tensors: list[Tensor] = []
        self.on_host: list[int] = []
        self.units, self._used = units(model, cuts)
        self._kept = frozenset(kept)
        self._ids: dict[tuple[str, int, object], int] = {}
        edges = sorted({edge for span in microbatches for edge in span})
        self._next_edge = dict(pairwise(edges))
        self._started: set[int] = set()
        self._work: dict[tuple[Phase | Half, int, int, int], Work] = {}
        self._units_of: dict[Pack, tuple[int, ...]] = {}
        self._pieces_of: dict[Span, tuple[Span, ...]] = {}
        self._inputs: dict[tuple[int, Span], tuple[int, ...]] = {}
        self._weights: dict[tuple[Pack, str], tuple[int, ...]] = {}
        self._gradients: dict[tuple[Pack, str], tuple[int, ...]] = {}
        self._stashed: dict[Pack, int] = {}
        self._scratch: dict[tuple[Phase, Pack], int] = {}

    # tensors ---------------------------------------------------------------------------------

    def _activation(self, kind: TensorKind, layer: int, span: Span, mark: str, nbytes: int) -> int:
        """Tensor id of an activation, its gradient or a stash; made when first asked for."""
        found = self._ids.get((kind, layer, span))
        if found is None:
            found = self._ids[(kind, layer, span)] = len(self.tensors)
            name = f"{mark}[{self.model.layers[layer].name}]{span[0]}:{span[1]}"
            self.tensors.append(NEW(Tensor, (found, kind, name, nbytes, layer, span, ())))
        return found

    def _block(self, kind: TensorKind, unit: int, copy: str, mark: str, sizes: Sizes) -> int:
        """Tensor id of weights, gradients or states of a unit; made when first asked for."""
        found = self._ids.get((kind, unit, copy))
        if found is None:
            found = self._ids[(kind, unit, copy)] = len(self.tensors)
            block = self.units[unit]
            names = tuple(weight.name for weight in block.weights)
            nbytes = sum(sizes(weight) for weight in block.weights)
            name = f"{mark}[{block.name}]{copy}"
            self.tensors.append(Tensor(found, kind, name, nbytes, block.layers[0], (0, 0), names))
            if kind != "gradient":
                self.on_host.append(found)
        return found

    def weight(self, unit: int, copy: str = "") -> int:
        """Tensor id of a unit's weights; they start valid in host memory."""
        return self._block("weight", unit, copy, "W", self.model.weight_bytes)

    def gradient(self, unit: int, copy: str = "") -> int:
        """Tensor id of the gradient of a unit."""
        return self._block("gradient", unit, copy, "dW", self.model.gradient_bytes)

    def state(self, unit: int, copy: str = "") -> int:
        """Tensor id of a unit's optimizer state; it starts valid in host memory."""
        return self._block("state", unit, copy, "K", self.model.state_bytes)

    def inputs(self, layer: int, span: Span) -> tuple[int, ...]:
        """Pieces of the input of ``layer`` for the samples of ``span``."""
        found = self._inputs.get((layer, span))
        if found is None:
            found = tuple(self._input(layer, piece) for piece in self._pieces(span))
            self._inputs[(layer, span)] = found
        return found

    def _input(self, layer: int, piece: Span) -> int:
        before = len(self.tensors)
        nbytes = self.model.layer_input_bytes(layer) * (piece[1] - piece[0])
        found = self._activation("activation", layer, piece, "X", nbytes)
        if layer == 0 and found == before:
            self.on_host.append(found)
        return found

    def weights(self, pack: Pack, copy: str) -> tuple[int, ...]:
        """Weights that a pack reads."""
        found = self._weights.get((pack, copy))
        if found is None:
            found = tuple(self.weight(unit, copy) for unit in self.units_of(pack))
            self._weights[(pack, copy)] = found
        return found

    def gradients(self, pack: Pack, copy: str) -> tuple[int, ...]:
        """Gradients that the backward of a pack adds to."""
        found = self._gradients.get((pack, copy))
        if found is None:
            found = tuple(self.gradient(unit, copy) for unit in self.units_of(pack))
            self._gradients[(pack, copy)] = found
        return found

    def _pieces(self, span: Span) -> tuple[Span, ...]:
        found = self._pieces_of.get(span)
        if found is None:
            low, high = span
            pieces: list[Span] = []
            while low < high:
                step = self._next_edge[low]
                pieces.append((low, step))
                low = step
            found = self._pieces_of[span] = tuple(pieces)
        return found

    def _stash(self, pack: Pack, span: Span) -> tuple[int, ...]:
        each = self._stashed.get(pack)
        if each is None:
            layers = self.model.layers
            each = sum(layers[i].stash_bytes for i in range(pack[0], pack[1] + 1))
            inner = (i for i in range(pack[0] + 1, pack[1] + 1) if i not in self._kept)
            each += sum(layers[i - 1].output_bytes for i in inner)
            self._stashed[pack] = each
        if each == 0:
            return ()
        return (self._activation("stash", pack[0], span, "stash", each * (span[1] - span[0])),)

    def _output_gradient(self, layer: int, span: Span) -> tuple[int, ...]:
        if layer in (0, len(self.model.layers)):
            return ()
        nbytes = self.model.layer_input_bytes(layer) * (span[1] - span[0])
        return (self._activation("activation_gradient", layer, span, "dX", nbytes),)

    # work ------------------------------------------------------------------------------------

    def work(self, phase: Phase | Half, pack: Pack, samples: int) -> Work:
        """Work of one pack for one microbatch (shared by all ops that do the same)."""
        key = (phase, pack[0], pack[1], samples)
        found = self._work.get(key)
        if found is None:
            layers = range(pack[0], pack[1] + 1)
            found = self._work[key] = Work(tuple(self._part(phase, i, samples) for i in layers))
        return found

    def _part(self, phase: Phase | Half, index: int, samples: int) -> LayerWork:
        if phase == "backward_input" or phase == "backward_weight":
            return self._half(phase, self.model.layers[index], samples)
        return layer_work(self.model, phase, index, samples)

    def _half(self, phase: Half, layer: Layer, samples: int) -> LayerWork:
        """Part of a backward: the input half reads the weights, the weight half writes dW.

        FLOPs, traffic and measured time are cut by the layer's ``weight_share``; the sums are those
        of the whole, but for a kernel that does part of both, which is launched twice.
        """
        late = phase == "backward_weight"
        share = layer.weight_share if late else 1.0 - layer.weight_share
        sizes = self.model.gradient_bytes if late else self.model.weight_bytes
        own = sum(sizes(weight) for weight in layer.weights)
        launches = max(1, round(layer.backward_kernels * layer.weight_share))
        kernels = launches if late else max(1, layer.backward_kernels - launches)
        return LayerWork(
            layer.profile_row or layer.name, "backward", samples,
            layer.backward_flops * samples * share, layer.backward_bytes * samples * share + own,
            self.model.precision.compute, kernels, share,
        )  # fmt: skip

    def _update_work(self, unit: int) -> Work:
        block = self.units[unit]
        names = {weight.name for weight in block.weights}
        parts: list[LayerWork] = []
        for index in range(block.layers[0], block.layers[1] + 1):
            layer = self.model.layers[index]
            own = [weight for weight in layer.weights if weight.name in names]
            names -= {weight.name for weight in own}
            params = sum(weight.params for weight in own)
            if own:
                traffic = float(sum(self.update_bytes(weight) for weight in own))
                flops = float(params * self.model.optimizer.flops)
                row = layer.profile_row or layer.name
                parts.append(LayerWork(row, "update", 1, flops, traffic, "fp32"))
        return Work(tuple(parts))

    def update_bytes(self, weight: Weight) -> int:
        """Memory traffic of one optimizer step: weights and states read and written, gradient read.

        For fp32 Adam 28 bytes a parameter: reads w, g, m, v and writes w, m, v.
        """
        precision, optimizer = self.model.precision, self.model.optimizer
        kept = precision.master + optimizer.states * precision.state
        return weight.params * (2 * precision.weight + precision.gradient + 2 * kept)

    def _working(self, phase: Phase, pack: Pack, samples: int) -> int:
        """Scratch of a pack, one layer at a time, and what lies between that layer and others.

        Of a forward that saves nothing a layer's stash; of a backward its workspace.
        """
        most = self._scratch.get((phase, pack))
        if most is None:
            layers = self.model.layers
            most = max(
                (layers[i].stash_bytes if phase == "forward" else layers[i].workspace_bytes)
                + (layers[i].output_bytes if i < pack[1] else 0)
                + (layers[i - 1].output_bytes if i > pack[0] else 0)
                for i in range(pack[0], pack[1] + 1)
            )
            self._scratch[(phase, pack)] = most
        return most * samples

    # tasks -----------------------------------------------------------------------------------

    def units_of(self, pack: Pack) -> tuple[int, ...]:
        """Units that the layers of a pack read, each once."""
        found = self._units_of.get(pack)
        if found is None:
            chain = (unit for i in range(pack[0], pack[1] + 1) for unit in self._used[i])
            found = self._units_of[pack] = tuple(dict.fromkeys(chain))
        return found

    def finished(self, pack: Pack) -> list[int]:
        """Units whose gradient is complete after the backward of ``pack`` (packs descending)."""
        return [unit for unit in self.units_of(pack) if self.units[unit].layers[0] >= pack[0]]

    def forward(
        self, device: str, pack: Pack, span: Span, copy: str = "", visit: int = 0, *, save: bool
    ) -> Task:
        """Forward of a pack: reads W and X, writes the outputs that others need.

        With ``save`` it also writes the stash, so that backward needs no recompute.
        """
        first, last = pack
        writes: list[int] = []
        for layer in range(first + 1, last + 1):
            if layer in self._kept and not save:
                writes += self.inputs(layer, span)
        if last + 1 < len(self.model.layers):
            writes += self.inputs(last + 1, span)
        if save:
            writes += self._stash(pack, span)
        samples = span[1] - span[0]
        weights = self.weights(pack, copy)
        return Task(
            "compute", device, "forward", pack, span,
            weights + self.inputs(first, span), tuple(writes), visit,
            self.work("forward", pack, samples),
            0 if save else self._working("forward", pack, samples),
        )  # fmt: skip

    def recompute(
        self, device: str, pack: Pack, span: Span, copy: str = "", visit: int = 0, *,
        phase: Phase = "recompute",
    ) -> Task:  # fmt: skip
        """Forward of a pack once more from its kept input, now writing the stash.

        The fused last pack runs its only forward this way (``phase="forward"``).
        """
        samples = span[1] - span[0]
        weights = self.weights(pack, copy)
        return Task(
            "compute", device, phase, pack, span,
            weights + self.inputs(pack[0], span), self._stash(pack, span), visit,
            self.work(phase, pack, samples),
        )  # fmt: skip

    def backward(
        self, device: str, pack: Pack, span: Span, copy: str = "", visit: int = 0, *,
        grads: str | None = None,
    ) -> Task:  # fmt: skip
        """Backward of a pack: reads W, X, stash and dY, adds to dW, writes dX.

        The first backward of a unit creates its dW; call in the order of execution.
        ``grads`` names the copy of dW (default ``copy``).
        """
        samples = span[1] - span[0]
        made = self.gradients(pack, copy if grads is None else grads)
        reads = self.weights(pack, copy) + self._saved(pack, span) + self._start(made)
        return Task(
            "compute", device, "backward", pack, span, reads,
            made + self._output_gradient(pack[0], span), visit,
            self.work("backward", pack, samples), self._working("backward", pack, samples),
        )  # fmt: skip

    def backward_input(self, device: str, pack: Pack, span: Span, copy: str = "") -> Task:
        """Half of a backward: reads W, X, stash and dY, writes dX.

        X, stash and dY stay until the weight half has read them (zero bubble, arXiv 2401.10241,
        table 1). What of the stash only this half reads could go, and the gradients inside the
        layer must stay instead: a transformer layer holds s b (34 h + 5 a s) bytes before and
        32 s b h between the halves, so the whole stash is held for both (our choice, a little too
        much), and the weight half needs no scratch memory.
        """
        samples = span[1] - span[0]
        return Task(
            "compute", device, "backward_input", pack, span,
            self.weights(pack, copy) + self._saved(pack, span),
            self._output_gradient(pack[0], span), 0,
            self.work("backward_input", pack, samples), self._working("backward", pack, samples),
        )  # fmt: skip

    def backward_weight(self, device: str, pack: Pack, span: Span, copy: str = "") -> Task:
        """Half of a backward: reads W, X, stash and dY, adds to dW; after the input half.

        It needs W to find the gradients inside the layer again, which autograd does unless an
        implementation keeps them. As for ``backward``, call in the order of execution.
        """
        made = self.gradients(pack, copy)
        return Task(
            "compute", device, "backward_weight", pack, span,
            self.weights(pack, copy) + self._saved(pack, span) + self._start(made), made, 0,
            self.work("backward_weight", pack, span[1] - span[0]),
        )  # fmt: skip

    def _saved(self, pack: Pack, span: Span) -> tuple[int, ...]:
        """Tensors that a backward reads besides weights: X, stash and dY."""
        return (
            self.inputs(pack[0], span) + self._stash(pack, span) + self.output_gradient(pack, span)
        )

    def output_gradient(self, pack: Pack, span: Span) -> tuple[int, ...]:
        """Gradient of the output of a pack, dY; none for the last one, which has the loss."""
        return self._output_gradient(pack[1] + 1, span)

    def _start(self, made: tuple[int, ...]) -> tuple[int, ...]:
        """Gradients that exist already, to be added to; from now on all of ``made`` do."""
        if self._started.issuperset(made):
            return made
        found = tuple(tensor for tensor in made if tensor in self._started)
        self._started.update(made)
        return found

    def reduce(
        self, devices: Sequence[str], unit: int, copies: Sequence[str], visit: int = 0
    ) -> Task:
        """All-reduce of one unit's gradient over its copies, in place."""
        made = tuple(self.gradient(unit, copy) for copy in copies)
        block = self.units[unit]
        nbytes = self.tensors[made[0]].nbytes
        return Task(
            "collective", devices[0], "all_reduce", block.layers, (0, 0), made, made, visit,
            None, 0, nbytes, tuple(devices),
        )  # fmt: skip

    def update(
        self, device: str, unit: int, copy: str = "", visit: int = 0, *,
        host: bool = False, grads: str | None = None,
    ) -> Task:  # fmt: skip
        """Optimizer step of one unit: on GPU ``device``, or with ``host`` on its CPU worker."""
        block = self.units[unit]
        kept = (self.weight(unit, copy),)
        if any(self.model.state_bytes(weight) for weight in block.weights):
            kept += (self.state(unit, copy),)
        made = self.gradient(unit, copy if grads is None else grads)
        nbytes = sum(self.update_bytes(weight) for weight in block.weights) if host else 0
        return Task(
            "host" if host else "compute", device, "update", block.layers, (0, 0),
            (*kept, made), kept, visit, self._update_work(unit), 0, nbytes,
            (device,) if host else (),
        )  # fmt: skip
