"""Phases of layers on a GPU: alone, and while copies or collectives run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Literal, cast

from hwmodels.compute import Phase
from hwmodels.routes import ADAM_BYTES
from validate.bench.collectives import job as collective
from validate.bench.copies import SHARED, Rig, jobs, load
from validate.bench.layers import Case, number_format
from validate.bench.timing import Job, alone, busy, done_on, opened
from validate.measurements import Compute
from validate.optimizer import adam_
from workloads.model import OPTIMIZERS

if TYPE_CHECKING:
    from torch import Tensor

Beside = Literal["", "copies", "collective"]


def phases(case: Case) -> tuple[Phase, ...]:
    """Phases that depend on the microbatch; no backward where there is no gradient to compute."""
    if _wanted(case, case.inputs):
        return "forward", "recompute", "backward"
    return ("forward",)


def params(case: Case) -> int:
    """Trained values of a layer."""
    return sum(parameter.numel() for parameter in case.layer.parameters())


def _wanted(case: Case, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Tensors whose gradient a backward computes: parameters, and the input unless it is first."""
    wanted: list[Tensor] = [each for each in case.layer.parameters() if each.requires_grad]
    if not case.first and inputs[0].is_floating_point():
        wanted.append(inputs[0])
    return wanted


def _inputs(case: Case) -> tuple[Tensor, ...]:
    """Give the inputs of a forward that saves for backward."""
    x, *rest = case.inputs
    needs = not case.first and x.is_floating_point()
    return (x.detach().requires_grad_(needs), *rest)


def _forward(case: Case) -> object:
    import torch

    with torch.no_grad():
        return case.layer(*case.inputs)


def _recompute(case: Case) -> object:
    return case.layer(*_inputs(case))


def _backward(case: Case) -> Callable[[], object]:
    """Backward of a graph that is kept, so that it can run again and again; adds to gradients."""
    import torch

    inputs = _inputs(case)
    output = case.layer(*inputs)
    given = torch.randn_like(output)
    wanted = _wanted(case, inputs)
    sums = [torch.zeros_like(each) for each in wanted if isinstance(each, torch.nn.Parameter)]

    def work() -> None:
        # torch's stubs forget that an unused input has no gradient
        found = cast(
            "Sequence[Tensor | None]",
            torch.autograd.grad(output, wanted, given, retain_graph=True, allow_unused=True),
        )
        for total, gradient in zip(sums, found, strict=False):  # parameters come first
            if gradient is not None:
                total.add_(gradient)

    return work


def phase_work(case: Case, phase: Phase) -> Callable[[], object]:
    """Work of one phase of a layer.

    ``forward`` saves nothing, ``recompute`` saves for backward, ``backward`` starts from what was
    saved, ``update`` is an Adam step on one flat fp32 buffer of the layer's size.
    """
    if phase == "forward":
        return partial(_forward, case)
    if phase == "recompute":
        return partial(_recompute, case)
    if phase == "backward":
        return _backward(case)
    return partial(adam_, *adam_buffers(params(case), case.inputs[0].device), 1)


def adam_buffers(size: int, place: object) -> list[Tensor]:
    """Weights, gradients and moments, at random: the last is not negative."""
    import torch

    return [torch.rand(size, device=torch.device(str(place))) for _ in range(4)]


def _beside(rig: Rig, gpu: str, beside: Beside) -> list[Job]:
    """Make what runs meanwhile: copies in both directions, or an all-reduce of all GPUs."""
    if beside == "copies":
        return jobs(rig, load(rig.machine, (gpu,)))
    return [collective(rig.devices, "all_reduce", SHARED)[0]] if beside else []


def measure(rig: Rig, case: Case, phase: Phase, beside: Beside, until: float) -> Compute:
    """Measure one phase of one layer.

    Parameters
    ----------
    rig : Rig
    case : Case
        Layer and inputs.
    phase : str
        As in ``Compute``.
    beside : str
        What runs meanwhile.
    until : float
        As in ``repeat``.
    """
    from validate.bench.work import count

    with closing(rig.devices.stream(case.gpu)) as stream:
        work = done_on(stream, partial(phase_work, case, phase))
        counted = done_on(stream, partial(count, work))
        peak = 0 if beside else done_on(stream, partial(rig.devices.peak, case.gpu, work))
        with opened(_beside(rig, case.gpu, beside)) as others, busy(others):
            sample = alone((stream, work), until)
    update = phase == "update"
    size = params(case) if update else 0
    return Compute(
        gpu=case.gpu,
        layer=case.row,
        phase=phase,
        samples=1 if update else case.samples,
        flops=size * OPTIMIZERS["adam"].flops if update else counted.flops,
        bytes=size * ADAM_BYTES if update else counted.nbytes,
        dtype="fp32" if update else number_format(case),
        kernels=counted.kernels,
        seconds=sample.seconds[0],
        spread=sample.spread,
        beside=beside,
        peak_bytes=peak,
    )
