"""Which packs and microbatches Harmony uses when the caller does not say."""

from __future__ import annotations

from hwmodels.errors import InvalidInput
from workloads.model import Model
from workloads.packing import balance
from workloads.tasks import Pack
from workloads.training import layer_cost

_FEWEST = 16
"""Packs at least where every GPU runs all (our choice): the load of the first pack and the update
of the last one are exposed, so that few large packs cost time; many small ones stash more."""

_ROUNDS, _MOST_ROUNDS = 2, 5
"""Backward packs per GPU where they go round-robin: with one, GPUs idle until the last is done;
with many, each microbatch of each pack is stashed and handed over once more (our choice)."""


def parse(text: str, layers: int, knob: str) -> tuple[Pack, ...]:
    """Read packs such as ``0-5,6-12,13``.

    Raises
    ------
    InvalidInput
        If the packs do not follow each other or leave the model.
    """
    found: list[Pack] = []
    for word in text.split(","):
        ends = word.strip().split("-")
        if not all(end.isdigit() for end in ends) or len(ends) > 2:
            raise InvalidInput(
                f"knob {knob}: {word.strip()!r} is not a pack; write first-last layers such as "
                "0-5,6-12"
            )
        pack = (int(ends[0]), int(ends[-1]))
        if pack[0] != (found[-1][1] + 1 if found else 0) or pack[1] < pack[0]:
            raise InvalidInput(
                f"knob {knob}: pack {word.strip()!r} does not follow the one before; packs must "
                "cover the layers in order, such as 0-5,6-12"
            )
        found.append(pack)
    if found[-1][1] >= layers:
        raise InvalidInput(
            f"knob {knob}: layer {found[-1][1]} is past the end; the model's last layer is "
            f"{layers - 1}"
        )
    return tuple(found)


def layer_costs(model: Model, samples: int) -> tuple[list[float], list[float]]:
    """Relative times of the forward and of the backward (without recompute) of each layer."""
    layers = range(len(model.layers))
    forward = [layer_cost(model, "forward", i, samples) for i in layers]
    return forward, [layer_cost(model, "backward", i, samples) for i in layers]


def working_set(model: Model, pack: Pack, samples: int, *, gpu_update: bool) -> int:
    """Bytes that a backward pack needs.

    Its W twice (the next pack loads meanwhile), dW, then either one microbatch's activations and
    stash, or K for the update.
    """
    held = {w.name: w for i in range(pack[0], pack[1] + 1) for w in model.layers[i].weights}
    weights = sum(model.weight_bytes(w) for w in held.values())
    gradients = sum(model.gradient_bytes(w) for w in held.values())
    states = sum(model.state_bytes(w) for w in held.values()) if gpu_update else 0
    inside = sum(
        model.layers[i].stash_bytes + 2 * model.layers[i].output_bytes
        for i in range(pack[0], pack[1] + 1)
    )
    scratch = max(model.layers[i].workspace_bytes for i in range(pack[0], pack[1] + 1))
    edge = 2 * model.layer_input_bytes(pack[0])
    moving = (inside + scratch + edge) * samples
    return 2 * weights + gradients + max(moving, states)


def choose(
    model: Model, gpus: int, capacity: int, samples: int, *, gpu_update: bool, round_robin: bool
) -> tuple[Pack, ...]:
    """Balanced packs that fit.

    Where every GPU runs all packs, the fewest, but at least sixteen, so that little of the first
    load and the last update shows. Where packs go round-robin, the number between
    two and five for each GPU with the least load on the busiest GPU.

    Parameters
    ----------
    model : Model
    gpus : int
        Number of GPUs.
    capacity : int
        Usable bytes of the smallest GPU.
    samples : int
        Backward microbatch size.
    gpu_update : bool
        Whether optimizer states visit the GPU.
    round_robin : bool
        Whether packs are placed round-robin.
    """
    layers = len(model.layers)
    forward, backward = layer_costs(model, samples)
    both = [ahead + back for ahead, back in zip(forward, backward, strict=True)]

    def fits(packs: tuple[Pack, ...]) -> bool:
        need = (working_set(model, pack, samples, gpu_update=gpu_update) for pack in packs)
        return max(need) <= capacity

    count = min(layers, _ROUNDS * gpus if round_robin else _FEWEST)
    while count < layers and not fits(balance(both, count)):
        count += 1
    if not round_robin:
        return balance(both, count)
    most = max(count, min(layers, _MOST_ROUNDS * gpus))
    found = [balance(both, number) for number in range(count, most + 1)]
    return min(found, key=lambda packs: _busiest(packs, forward, both, gpus))


def _busiest(packs: tuple[Pack, ...], forward: list[float], both: list[float], gpus: int) -> float:
    """Load of the busiest GPU; the last pack's forward is part of its backward visit."""
    visits = [sum(forward[first : last + 1]) for first, last in packs[:-1]]
    visits += [sum(both[first : last + 1]) for first, last in reversed(packs)]
    return max(sum(visits[gpu::gpus]) for gpu in range(gpus))
