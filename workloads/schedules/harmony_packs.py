"""Which packs and microbatches Harmony uses when the caller does not say."""

from __future__ import annotations

from hwmodels.errors import InvalidInput
from workloads.model import Model
from workloads.order import weight
from workloads.packing import balance
from workloads.tasks import Pack, Training

_ROUNDS = 2
"""Backward packs per GPU at least: with one, the first pack's GPU idles until the last is done."""


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


def layer_costs(model: Model, samples: int) -> list[float]:
    """Relative time of forward, recompute and backward of each layer."""
    layers = range(len(model.layers))
    training = Training(model, layers, layers, [(0, samples)])
    return [
        sum(
            weight(training.work(phase, (i, i), samples), model.profile)
            for phase in ("forward", "backward")
        )
        for i in layers
    ]


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
    model: Model, gpus: int, capacity: int, samples: int, *, gpu_update: bool
) -> tuple[Pack, ...]:
    """Fewest balanced packs that fit, at least two for each GPU.

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
    """
    layers = len(model.layers)
    costs = layer_costs(model, samples)
    count = min(layers, _ROUNDS * gpus)
    while True:
        packs = balance(costs, count)
        worst = max(working_set(model, pack, samples, gpu_update=gpu_update) for pack in packs)
        if worst <= capacity or count == layers:
            return packs
        count = min(layers, count + gpus)
