"""Vision transformers: patches of an image as tokens (arXiv 2010.11929, table 1)."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodels.errors import InvalidInput
from workloads.model import Layer, Model, Optimizer, Precision, Weight
from workloads.models.costs import Setting
from workloads.models.shape import Family, Shape
from workloads.models.tape import loss
from workloads.models.transformer import blocks, final_norm

CLASSES, PIXELS = 1000, 224

VIT = Family(
    "vit", layer_norm=True, gated=False, qkv_bias=True, out_bias=True, mlp_bias=True,
    learned_positions=True, causal=False, half=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vit:
    """Sizes of a vision transformer.

    Attributes
    ----------
    layers, hidden, ffn, heads : int
        Blocks, width, width of the MLP, attention heads.
    patch : int
        Width and height of a patch in pixels.
    """

    layers: int
    hidden: int
    ffn: int
    heads: int
    patch: int


VITS = {
    "vit-b-16": Vit(12, 768, 3072, 12, 16),
    "vit-l-16": Vit(24, 1024, 4096, 16, 16),
    "vit-h-14": Vit(32, 1280, 5120, 16, 14),
}
"""Base, large and huge by name."""


def vit(
    name: str,
    precision: Precision,
    optimizer: Optimizer,
    *,
    pixels: int = PIXELS,
    flash: bool = True,
    dropout: bool = False,
) -> Model:
    """Build a vision transformer for 1000 classes.

    Layers: patches with class token and positions, blocks, final norm, classifier of the class
    token, loss. The table of positions fits the image.

    Raises
    ------
    InvalidInput
        If the image is no whole number of patches wide.
    """
    net = VITS[name]
    if pixels < net.patch or pixels % net.patch:
        raise InvalidInput(
            f"pixels is {pixels}; {name} takes a multiple of its patches of {net.patch} pixels."
        )
    tokens = (pixels // net.patch) ** 2 + 1
    shape = Shape(
        family=VIT, layers=net.layers, hidden=net.hidden, ffn=net.ffn, heads=net.heads,
        kv_heads=net.heads, head_dim=net.hidden // net.heads, vocab=0, positions=tokens, tied=False,
    )  # fmt: skip
    setting = Setting(tokens, precision.activation, flash, dropout, half=False)
    image = 3 * pixels * pixels * setting.element
    layers = [
        _patches(net, setting, image),
        *blocks(shape, setting),
        final_norm(shape, setting),
        _classifier(net.hidden, setting),
        loss(CLASSES, setting.element),
    ]
    kind = "fused attention" if flash else "unfused attention"
    masks = "dropout masks" if dropout else "no dropout"
    note = (
        f"{pixels} x {pixels} pixels make {tokens - 1} patches and a class token; "
        f"attention FLOPs counted in full; activations: {kind}, {masks}."
    )
    return Model(name, tuple(layers), image, 1, precision, optimizer, notes=(note,))


def _patches(net: Vit, setting: Setting, image: int) -> Layer:
    """Product of each patch with one matrix; then class token and positions (3 kernels).

    Forward writes the product, copies it behind the token and adds; backward reads the image and
    copies the gradient of the product.
    """
    edge = setting.tokens * net.hidden * setting.element
    inputs = 3 * net.patch**2
    flops = 2.0 * (setting.tokens - 1) * inputs * net.hidden
    return Layer(
        name="patches",
        kind="patches",
        weights=(
            Weight("patches", inputs * net.hidden + net.hidden),
            Weight("positions", net.hidden * (1 + setting.tokens)),
        ),
        output_bytes=edge,
        stash_bytes=setting.tokens * net.hidden if setting.dropout else 0,
        workspace_bytes=edge,
        forward_flops=flops,
        backward_flops=flops,
        forward_bytes=float(image + 5 * edge),
        backward_bytes=float(image + 2 * edge),
        forward_kernels=4 if setting.dropout else 3,
        backward_kernels=4 if setting.dropout else 3,
        weight_share=1.0,
    )


def _classifier(hidden: int, setting: Setting) -> Layer:
    """Linear layer on the class token; its backward fills the other tokens' gradients with 0."""
    edge = setting.tokens * hidden * setting.element
    row, made = hidden * setting.element, CLASSES * setting.element
    flops = 2.0 * hidden * CLASSES
    return Layer(
        name="classifier",
        kind="classifier",
        weights=(Weight("classifier", CLASSES * hidden + CLASSES),),
        output_bytes=made,
        forward_flops=flops,
        backward_flops=2.0 * flops,
        forward_bytes=float(row + made),
        backward_bytes=float(edge + row + made),
        backward_kernels=3,
    )
