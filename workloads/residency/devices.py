"""What lies on every device while a schedule is planned, and how it gets there and leaves."""

from __future__ import annotations

from collections.abc import Sequence

from hwmodels.errors import DoesNotFit
from hwmodels.server import Server
from workloads.residency.emit import Emitter
from workloads.residency.homes import Homes
from workloads.residency.lookahead import Lookahead
from workloads.residency.policy import Policy
from workloads.residency.rooms import Rooms
from workloads.schedule import Place, Tensor
from workloads.tasks import Task

_PERSISTENT = frozenset({"weight", "state"})
_OWN_HOST = frozenset({"weight", "state", "gradient"})


class Devices:
    """Memory of GPUs and hosts; every change emits the op that makes it.

    Attributes
    ----------
    resident : dict
        For each device and tensor there the last op of each stream that touched it; least
        recently used first.
    valid : list of dict
        For each tensor the devices with a valid copy, and the op that made it so (-1: before the
        first op).
    persistent, own_host : list of bool
        Whether a tensor outlives the iteration; whether it belongs in host memory, so that
        another GPU fetches it from there and not from a GPU.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        server: Server,
        policy: Policy,
        look: Lookahead,
        homes: Homes,
        *,
        peer: bool,
    ) -> None:
        self.tensors = list(tensors)
        self.policy = policy
        self.eager = policy.evict == "eager"
        self.on_demand = policy.swap_in == "on_demand"
        self.lru = policy.evict == "pressure"
        self.peer = peer
        self.look = look
        self.homes = homes
        self.size = [tensor.nbytes for tensor in tensors]
        self.persistent = [tensor.kind in _PERSISTENT for tensor in tensors]
        self.own_host = [tensor.kind in _OWN_HOST for tensor in tensors]
        self.out = Emitter()
        self.hosts = frozenset(server.hosts)
        self.capacity = {place: server.memory(place) for place in (*server.gpus, *server.hosts)}
        self.rooms = {place: Rooms(place, size) for place, size in self.capacity.items()}
        self.resident: dict[str, dict[int, dict[str, int]]] = {d: {} for d in self.capacity}
        self.valid: list[dict[str, int]] = [{} for _ in tensors]
        self.last_compute: dict[str, int] = {}
        self._left: dict[str, dict[int, int]] = {d: {} for d in self.capacity}
        self._scratch: dict[int, int] = {}

    def name(self, tensor: int) -> str:
        """Readable name of a tensor."""
        return self.tensors[tensor].name

    def scratch(self, nbytes: int) -> int:
        """Tensor id of a workspace of ``nbytes``; it lives for one op only."""
        found = self._scratch.get(nbytes)
        if found is None:
            found = self._scratch[nbytes] = len(self.tensors)
            name = f"workspace {nbytes / 1e6:.3f} MB"
            self.tensors.append(Tensor(found, "workspace", name, nbytes))
        return found

    def place(self, tensor: int, device: str) -> None:
        """Put a tensor where it lies before the first op."""
        self.rooms[device].take(-1, self.size[tensor], self.out.grants, [])
        self.resident[device][tensor] = {}
        self.valid[tensor][device] = -1

    def host_with_room(self, tensor: int, when: str) -> str:
        """Home of a tensor, or the first other host memory that has room for it."""
        need, home = self.size[tensor], self.homes.of(tensor)
        if tensor in self.resident[home] or self.rooms[home].free >= need:
            return home
        for host in self.homes.hosts:
            if self.rooms[host].free >= need:
                self.homes.move(tensor, host)
                return host
        room = sum(self.capacity[host] for host in self.homes.hosts)
        raise DoesNotFit(
            f"does not fit: host memory has {size(room)} in all and no room left for "
            f"{self.name(tensor)} ({size(need)}) {when} under {self.policy.name}"
        )

    # what ops do to tensors --------------------------------------------------------------------

    def touch(self, tensors: Sequence[int], device: str, stream: str, op: int) -> None:
        """Note that ``op`` on ``stream`` reads the tensors on ``device``."""
        here = self.resident[device]
        if not self.lru:
            for tensor in tensors:
                here[tensor][stream] = op
            return
        for tensor in tensors:
            here[tensor] = touched = here.pop(tensor)
            touched[stream] = op

    def write(self, tensors: Sequence[int], device: str, stream: str, op: int) -> None:
        """Note that ``op`` writes the tensors on ``device``, which has the only valid copy now."""
        here = self.resident[device]
        for tensor in tensors:
            touched = here.pop(tensor, None)
            if touched is None:
                here[tensor] = {stream: op}
            else:
                touched[stream] = op
                here[tensor] = touched
            valid = self.valid[tensor]
            if valid and (len(valid) > 1 or device not in valid):
                self._invalidate(tensor, device)
            valid[device] = op

    def _invalidate(self, tensor: int, writer: str) -> None:
        """Every other copy is stale: GPUs free theirs, a host keeps its buffer for the way back."""
        valid = self.valid[tensor]
        for other in [place for place in valid if place != writer]:
            del valid[other]
            if other not in self.hosts:
                self.free(tensor, other)

    def free(self, tensor: int, device: str) -> None:
        """Free a tensor on one device once all its uses there have ended."""
        touched = self.resident[device].pop(tensor)
        self.valid[tensor].pop(device, None)
        op = self._left[device][tensor] = self.out.free((tensor, device), touched)
        self.rooms[device].give(op, self.size[tensor])

    def take(self, op: int, tensor: int, device: str, waits: list[int]) -> None:
        """Give a tensor room on a device, once what it was there before has left."""
        left = self._left[device].get(tensor)
        if left is not None:
            waits.append(left)
        self.rooms[device].take(op, self.size[tensor], self.out.grants, waits)

    # copies ----------------------------------------------------------------------------------

    def fetch(self, tensor: int, device: str, pinned: set[int], task: Task) -> None:
        """Make ``tensor`` valid on ``device``, evicting others if needed."""
        valid = self.valid[tensor]
        if device in valid:
            return
        if not self.reachable(tensor):
            self.swap_out(tensor, next(iter(valid)))
        self.make_room(device, self.size[tensor], pinned, task)
        self.copy(tensor, self.source(tensor), device, on_demand=self.on_demand)

    def reachable(self, tensor: int) -> bool:
        """Whether a single copy can bring the tensor to another GPU."""
        if self.peer and not self.own_host[tensor]:
            return True
        return any(place in self.hosts for place in self.valid[tensor])

    def source(self, tensor: int) -> str:
        """Where to copy from: a GPU for activations if peers may, otherwise host memory."""
        valid = self.valid[tensor]
        if self.peer and not self.own_host[tensor]:
            return next((place for place in valid if place not in self.hosts), next(iter(valid)))
        return next(place for place in valid if place in self.hosts)

    def copy(self, tensor: int, source: str, device: str, *, on_demand: bool) -> None:
        """Copy to a GPU that has room; on demand only after its previous compute op."""
        waits = [self.valid[tensor][source]]
        if on_demand and device in self.last_compute:
            waits.append(self.last_compute[device])
        if source in self.hosts:
            stream, phase = device + ".h2d", "swap_in"
        else:
            stream, phase = f"{source}>{device}", "peer"
        op = self.out.next_id
        self.take(op, tensor, device, waits)
        self.out.emit(
            "copy", stream, source, phase, waits, nbytes=self.size[tensor],
            peer=device, reads=(tensor,), allocs=((tensor, device),),
        )  # fmt: skip
        self.touch((tensor,), source, stream, op)
        self.resident[device][tensor] = {stream: op}
        self.valid[tensor][device] = op
        if source in self.hosts:
            if self.policy.host_copy == "exclusive":
                self.free(tensor, source)
        elif self.eager or self.look.next_use(tensor, source) == self.look.never:
            self.free(tensor, source)

    def swap_out(self, tensor: int, device: str) -> None:
        """Copy to host memory and free on ``device``; the copy waits for every earlier use."""
        host = self.host_with_room(tensor, "when it is swapped out")
        touched = self.resident[device].pop(tensor)
        waits = [self.valid[tensor].pop(device), *touched.values()]
        if self.on_demand and device in self.last_compute:
            waits.append(self.last_compute[device])
        stream = device + ".d2h"
        op = self.out.next_id
        allocs: tuple[Place, ...] = ()
        there = self.resident[host]
        if tensor in there:
            waits.extend(there[tensor].values())
        else:
            self.take(op, tensor, host, waits)
            allocs = ((tensor, host),)
        self.out.emit(
            "copy", stream, device, "swap_out", waits,
            nbytes=self.size[tensor], peer=host, reads=(tensor,), allocs=allocs,
            frees=((tensor, device),),
        )  # fmt: skip
        there[tensor] = {stream: op}
        self.valid[tensor][host] = self._left[device][tensor] = op
        self.rooms[device].give(op, self.size[tensor])

    def to_host(self, tensor: int, host: str) -> None:
        """Make a tensor valid in host memory."""
        valid = self.valid[tensor]
        if host not in valid:
            self.swap_out(tensor, next(iter(valid)))

    def evict(self, tensor: int, device: str) -> None:
        """Drop a tensor that is valid elsewhere; write back one that is not."""
        if len(self.valid[tensor]) > 1:
            self.free(tensor, device)
        else:
            self.swap_out(tensor, device)

    # room ------------------------------------------------------------------------------------

    def make_room(self, device: str, nbytes: int, pinned: set[int], task: Task) -> None:
        """Evict until ``nbytes`` are free, sparing ``pinned``; DoesNotFit if nothing is left."""
        rooms = self.rooms[device]
        while rooms.free < nbytes:
            victim = None if self.policy.evict == "never" else self._victim(device, pinned)
            if victim is None:
                layer = f"layers {task.layers[0]}-{task.layers[1]}"
                samples = task.span[1] - task.span[0]
                raise self.does_not_fit(
                    device, nbytes, f"for {task.phase} of {layer} with microbatch {samples}"
                )
            self.evict(victim, device)

    def _victim(self, device: str, pinned: set[int]) -> int | None:
        candidates = (
            tensor for tensor in self.resident[device] if tensor not in pinned and self.size[tensor]
        )
        if self.policy.victim == "lru":
            return next(candidates, None)
        return max(candidates, key=lambda t: (self.look.next_use(t, device), -t), default=None)

    def does_not_fit(self, device: str, nbytes: int, what: str) -> DoesNotFit:
        """Say what needs how much, and what is in the way."""
        rooms = self.rooms[device]
        largest = sorted(self.resident[device], key=lambda t: (-self.size[t], t))[:3]
        held = ", ".join(f"{self.name(t)} {size(self.size[t])}" for t in largest)
        return DoesNotFit(
            f"does not fit: {device} has {size(rooms.capacity)} usable and {size(rooms.free)} free "
            f"but needs {size(nbytes)} {what}, {size(nbytes - rooms.free)} too much under "
            f"{self.policy.name}" + (f" (largest there: {held})" if held else "")
        )


def size(nbytes: int) -> str:
    """Bytes for a message: four digits in the largest unit that is not below 1."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.4g} {unit}"
    return f"{nbytes} B"
