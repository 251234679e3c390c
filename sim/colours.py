"""Colours and words of phases and kinds of tensors, the same in every picture and page."""

from __future__ import annotations

PHASES = {
    "forward": ("#0072B2", "forward"),
    "recompute": ("#56B4E9", "recompute"),
    "backward": ("#D55E00", "backward"),
    "backward_input": ("#F2A07B", "backward dX"),
    "backward_weight": ("#8A3A00", "backward dW"),
    "update": ("#CC79A7", "update"),
    "swap_in": ("#009E73", "swap in"),
    "swap_out": ("#E69F00", "swap out"),
    "peer": ("#000000", "peer copy"),
    "collective": ("#F0E442", "collective"),
}
"""Colour and word of each phase. Palette for colour-blind readers: Okabe and Ito, "Color universal
design" (2008); the halves of a backward are its colour, lighter and darker."""

KINDS = {
    "weight": ("#0072B2", "weights W"),
    "gradient": ("#D55E00", "gradients dW"),
    "state": ("#CC79A7", "optimizer states K"),
    "activation": ("#009E73", "activations X"),
    "stash": ("#56B4E9", "stash"),
    "activation_gradient": ("#E69F00", "activation gradients dX"),
    "workspace": ("#999999", "workspace"),
}
"""Colour and word of each kind of tensor, in the order of stacking."""
