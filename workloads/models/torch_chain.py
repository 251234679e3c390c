"""Torch modules cut into chains of layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from hwmodels.errors import InvalidInput
from workloads.models.torch_blocks import Holding, layer_names
from workloads.models.torch_run import (
    Chain,
    Enter,
    Inputs,
    explained,
    not_a_tensor,
    read_by,
    record,
)


def chain_of_layers(layers: Sequence[nn.Module]) -> Chain:
    """Chain of modules that are called one after another; the last one also takes the target."""

    def run(inputs: Inputs, enter: Enter) -> object:
        value: object = inputs[0]
        for index, layer in enumerate(layers):
            if not isinstance(value, Tensor):
                raise not_a_tensor(layer_names(layers)[index - 1], value)
            given = enter(value)
            value = layer(given, *inputs[1:]) if index == len(layers) - 1 else layer(given)
        return value

    shared = _several({id(p) for p in layer.parameters()} for layer in layers)
    return Chain(layer_names(layers), tuple(map(_kind, layers)), run, layers, layers, shared)


def _several(reads: Iterable[set[int]]) -> frozenset[int]:
    """Tell what is in more than one of the sets."""
    times = Counter(each for read in reads for each in read)
    return frozenset(each for each, count in times.items() if count > 1)


def largest_list(module: nn.Module) -> tuple[str, nn.Module] | None:
    """Name and list of the ModuleList or Sequential inside a module with most parameters.

    Of two with equal parameters the one with more children, then the outer one.
    """
    lists = [
        (name, each)
        for name, each in module.named_modules()
        if isinstance(each, nn.ModuleList | nn.Sequential) and len(each)
    ]
    sizes = [(sum(p.numel() for p in each.parameters()), len(each)) for _, each in lists]
    return lists[sizes.index(max(sizes))] if lists else None


def chain_of_module(module: nn.Module, inputs: Inputs) -> Chain:
    """Chain of the calls of the children of a module's largest list.

    What runs before the first call is the layer ``input``, after the last one ``output``; what
    runs between two calls belongs to the earlier one. Call in `torch_run.fake`.
    """
    found = largest_list(module)
    if found is None:
        return chain_of_layers([module])
    calls = _calls(module, found, inputs)
    kinds = ("input", *(_kind(child) for child in calls), "output")
    names = ("input", *layer_names(calls), "output")
    parts = (None, *calls, None)
    whole = Chain(names, kinds, _runner(module, found[1], len(calls), True, True), parts, [module])
    recorder, _, leaves = record(whole, inputs)
    first, *_, last = (segment.forward.kernels > 0 for segment in recorder.segments)
    kept = slice(0 if first else 1, None if last else -1)
    run = _runner(module, found[1], len(calls), first, last)
    shared = _several(read_by(recorder, segment, leaves) for segment in recorder.segments)
    return Chain(names[kept], kinds[kept], run, parts[kept], [module], shared)


def _calls(module: nn.Module, found: tuple[str, nn.Module], inputs: Inputs) -> list[nn.Module]:
    """Children of a list in the order in which the module calls them."""
    where, children = found
    calls: list[nn.Module] = []

    def note(child: nn.Module, _: object) -> None:
        calls.append(child)

    hooks = [child.register_forward_pre_hook(note) for child in children.children()]
    try:
        with explained(lambda: type(module).__name__, len(inputs[0])):
            module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    if not calls:
        raise InvalidInput(
            f"{type(module).__name__} never calls the children of {where!r}, its largest list, so "
            "it cannot be split there; hand in a list of its layers."
        )
    return calls


def _runner(
    module: nn.Module, children: nn.Module, calls: int, first: bool, last: bool
) -> Callable[[Inputs, Enter], object]:
    """Run of a module that enters a layer at each call of a child."""

    def run(inputs: Inputs, enter: Enter) -> object:
        entered: list[nn.Module] = []

        def before(child: nn.Module, args: Any, kwargs: Any) -> Any:
            entered.append(child)
            return _with_input(child, args, kwargs, enter)

        def after(child: nn.Module, _: object, out: object) -> object:
            if not isinstance(out, Tensor):
                raise not_a_tensor(layer_names(entered)[-1], out)
            return enter(out) if last and len(entered) == calls else out

        hooks = [
            hook
            for child in children.children()
            for hook in (
                child.register_forward_pre_hook(before, with_kwargs=True),
                child.register_forward_hook(after),
            )
        ]
        try:
            return module(enter(inputs[0]) if first else inputs[0], *inputs[1:])
        finally:
            for hook in hooks:
                hook.remove()

    return run


def _with_input(child: nn.Module, args: Any, kwargs: Any, enter: Enter) -> tuple[Any, Any]:
    """Arguments of a call with its first tensor, the activation, replaced by the entered one."""
    if args and isinstance(args[0], Tensor):
        return (enter(args[0]), *args[1:]), kwargs
    for name, value in kwargs.items():
        if isinstance(value, Tensor):
            return args, {**kwargs, name: enter(value)}
    raise InvalidInput(
        f"Layer {type(child).__name__} is called without a tensor as its first argument, so its "
        "input is unknown; hand in a list of layers that take one tensor."
    )


def _kind(layer: nn.Module) -> str:
    return type(layer).__name__.lower()


def held_by(chain: Chain, read: Sequence[set[int]]) -> tuple[list[Holding], list[str]]:
    """Tell what each layer of a module holds, and the names of what none does.

    A child of the list holds all its parameters and buffers, and every layer what it reads.
    """
    (module,) = chain.modules
    named = list(module.named_parameters(remove_duplicate=False))
    frozen = [(name, each) for name, each in named if not each.requires_grad]
    fixed = [*module.named_buffers(), *frozen]
    held: list[Holding] = []
    everything: set[int] = set()
    for name, part, seen in zip(chain.names, chain.parts, read, strict=True):
        own = () if part is None else (*part.parameters(), *part.buffers())
        ids = seen | {id(each) for each in own}
        trained = tuple((key, p) for key, p in named if p.requires_grad and id(p) in ids)
        held.append(Holding(name, trained, tuple(each for _, each in fixed if id(each) in ids)))
        everything |= ids
    whole = (*module.named_parameters(), *module.named_buffers())
    return held, [name for name, each in whole if id(each) not in everything]
