"""What lies where before the first operation, and the next input batch at each barrier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hwmodels.errors import InvalidInput, InvalidSchedule
from validate.network import Network, formats
from validate.places import Places
from validate.storage import Content
from workloads.schedule import Place, Schedule

if TYPE_CHECKING:
    from torch import Tensor

Batch = tuple["Tensor", "Tensor"]
"""Input and target of one iteration, samples first."""


@dataclass(frozen=True, eq=False)
class Start:
    """Makes inputs, weights and optimizer states.

    Attributes
    ----------
    schedule : Schedule
    network : Network
        Values of the weights.
    batches : sequence of Batch
        One for each iteration.
    machine : Places

    Raises
    ------
    InvalidInput
        If network or batches are not those of the schedule.
    """

    schedule: Schedule
    network: Network
    batches: Sequence[Batch]
    machine: Places

    def __post_init__(self) -> None:
        _check_batches(self.schedule, self.network, self.batches)

    def content(self, place: Place, iteration: int) -> Content:
        """Make what lies in a place before it is used for the first time."""
        import torch

        kinds = formats(self.network.model.precision)
        found, own = self.schedule.tensors[place[0]], self.machine.own
        if found.kind == "activation":
            samples = self.batches[iteration][0][slice(*found.span)]
            return [own(samples, place[1])]
        values = torch.cat(
            [
                torch.empty(0, dtype=kinds.weight),  # of a unit that has only buffers
                *(
                    parameter.detach().reshape(-1)
                    for block in found.weights
                    for parameter in self.network.parameters.get(block, ())
                ),
            ]
        )
        if found.kind == "weight":
            carried = [
                own(each.values.detach(), place[1])
                for block in found.weights
                for each in self.network.fixed.get(block, ())
            ]
            return [own(values.to(kinds.weight), place[1]), *carried]
        if found.kind != "state":
            raise InvalidSchedule(f"{found.name} is there before the first operation")
        kept = [] if kinds.master is None else [values.to(kinds.master)]
        states = self.network.model.optimizer.states
        kept += [torch.zeros_like(values, dtype=kinds.state) for _ in range(states)]
        return [own(part, place[1]) for part in kept]


def _check_batches(schedule: Schedule, network: Network, batches: Sequence[Batch]) -> None:
    if schedule.num_layers != len(network.layers):
        raise InvalidInput(
            f"the schedule of {schedule.model} has {schedule.num_layers} layers and the network "
            f"{len(network.layers)}; build the schedule from the network's model"
        )
    if len(batches) != schedule.iterations:
        raise InvalidInput(
            f"{len(batches)} batches were passed for {schedule.iterations} iterations; pass one "
            "for each"
        )
    for number, (data, target) in enumerate(batches):
        for what, found in (("input", data), ("target", target)):
            if len(found) != schedule.minibatch:
                raise InvalidInput(
                    f"batch {number}: the {what} has {len(found)} samples; the minibatch is "
                    f"{schedule.minibatch}"
                )
