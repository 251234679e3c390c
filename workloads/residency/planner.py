"""The residency planner: from an order of tasks to a schedule with every copy in its place.

It walks the tasks once, in an order in which they could run one by one, and keeps for every
device what is there and which op put it there. Rules (reference: the rules that every swap
schedule obeys):

* a tensor's memory is taken before the op that fills it and given back after its last reader;
* a copy in needs a valid source; a write makes every other copy invalid;
* a tensor that is valid elsewhere is dropped, otherwise it is written back;
* a tensor without a further reader is freed, never written back.

What differs between systems is in the ``Policy``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwmodels.errors import DoesNotFit
from hwmodels.server import Server
from workloads.residency.emit import Emitter
from workloads.residency.lookahead import HOST, Lookahead
from workloads.residency.policy import Policy
from workloads.residency.rooms import Rooms
from workloads.schedule import Grant, Op, Place, Tensor
from workloads.tasks import Task

_PERSISTENT = frozenset({"weight", "state"})
_OWN_HOST = frozenset({"weight", "state", "gradient"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner hands to ``Schedule``."""

    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    grants: tuple[Grant, ...]
    initial: tuple[Place, ...]
    final: tuple[Place, ...]
    capacity: dict[str, int]


def plan(
    tasks: Sequence[Task],
    tensors: Sequence[Tensor],
    on_host: Sequence[int],
    server: Server,
    policy: Policy,
    *,
    peer: bool = True,
) -> Plan:
    """Add swaps, drops, peer copies and frees to an order of tasks.

    Parameters
    ----------
    tasks : sequence of Task
        In an order in which they could run one by one.
    tensors : sequence of Tensor
        Indexed by id.
    on_host : sequence of int
        Tensors that exist before the iteration (weights, optimizer state, model input).
    server : Server
        Gives devices and their usable memory.
    policy : Policy
    peer : bool
        Hand activations from GPU to GPU directly; otherwise through host memory.

    Raises
    ------
    DoesNotFit
        If one task alone needs more than its device has, or host memory overflows.
    """
    return _Planner(tasks, tensors, on_host, server, policy, peer=peer).run()


class _Planner:
    def __init__(
        self,
        tasks: Sequence[Task],
        tensors: Sequence[Tensor],
        on_host: Sequence[int],
        server: Server,
        policy: Policy,
        *,
        peer: bool,
    ) -> None:
        self.tasks = tasks
        self.tensors = list(tensors)
        self.policy = policy
        self.eager = policy.evict == "eager"
        self.on_demand = policy.swap_in == "on_demand"
        self.lru = policy.evict == "pressure"
        self.peer = peer
        self.server = server
        self.size = [tensor.nbytes for tensor in tensors]
        self.persistent = [tensor.kind in _PERSISTENT for tensor in tensors]
        self.own_host = [tensor.kind in _OWN_HOST for tensor in tensors]
        self.out = Emitter()
        self.capacity = {place: server.memory(place) for place in (*server.gpus, *server.hosts)}
        self.rooms = {place: Rooms(place, size) for place, size in self.capacity.items()}
        # resident[device][tensor] = last op of each stream that touched it there; in LRU order
        self.resident: dict[str, dict[int, dict[str, int]]] = {d: {} for d in self.capacity}
        # valid[tensor][device] = op that made it valid there (-1: before the first op)
        self.valid: list[dict[str, int]] = [{} for _ in tensors]
        self.last_compute: dict[str, int] = {}
        self.scratch: dict[int, int] = {}
        self.hosts = frozenset(server.hosts)
        self.look = Lookahead(tasks, self.size, server.gpus)
        self.near = {gpu: server.host_of(gpu) for gpu in server.gpus}
        self.home = self._host_of_updates()
        self.initial = tuple(self._place_initial(on_host))

    # where tensors live ----------------------------------------------------------------------

    def _host_of_updates(self) -> dict[int, str]:
        """Weights, states and gradients of a CPU update lie together, in a host with room."""
        homes: dict[int, str] = {}
        room = {host: self.capacity[host] for host in self.server.hosts}
        for task in self.tasks:
            if task.kind == "host":
                need = sum(self.size[tensor] for tensor in task.reads)
                near = self._near(task.reads[0])
                order = sorted(room, key=lambda host: host != near)  # stable: near first
                home = next((host for host in order if room[host] >= need), near)
                room[home] -= need
                homes.update(dict.fromkeys(task.reads, home))
        return homes

    def _near(self, tensor: int) -> str:
        """Host memory nearest to the GPUs that use a tensor; spread over several NUMA nodes."""
        users = [device for device in self.look.uses[tensor] if device in self.near]
        found = sorted({self.near[device] for device in users}, key=self.server.hosts.index)
        return found[tensor % len(found)] if found else self.server.hosts[0]

    def _home(self, tensor: int) -> str:
        home = self.home.get(tensor)
        if home is None:
            home = self.home[tensor] = self._near(tensor)
        return home

    def _place_initial(self, on_host: Sequence[int]) -> list[Place]:
        used = [tensor for tensor in on_host if self.look.uses[tensor]]
        if self.policy.home == "gpu":
            self._check_static(used)
        places: list[Place] = []
        for tensor in used:
            if self.policy.home == "gpu" and self.persistent[tensor]:
                device = next(iter(self.look.uses[tensor]))
            else:
                device = self._host_with_room(tensor, "at the start of the iteration")
            self.rooms[device].take(-1, self.size[tensor], self.out.grants, [])
            self.resident[device][tensor] = {}
            self.valid[tensor][device] = -1
            places.append((tensor, device))
        return places

    def _check_static(self, used: Sequence[int]) -> None:
        need = dict.fromkeys(self.server.gpus, 0)
        for tensor in used:
            if self.persistent[tensor]:
                need[next(iter(self.look.uses[tensor]))] += self.size[tensor]
        for device, nbytes in need.items():
            if nbytes > self.capacity[device]:
                raise self._does_not_fit(device, nbytes, "for weights and optimizer state alone")

    def _host_with_room(self, tensor: int, when: str) -> str:
        """Home of a tensor, or the first other host memory that has room for it."""
        size = self.size[tensor]
        home = self._home(tensor)
        if tensor in self.resident[home] or self.rooms[home].free >= size:
            return home
        for host in self.server.hosts:
            if self.rooms[host].free >= size:
                self.home[tensor] = host
                return host
        raise self._does_not_fit(home, size, f"to hold {self._name(tensor)} {when}")

    def _name(self, tensor: int) -> str:
        return self.tensors[tensor].name

    def _scratch(self, nbytes: int) -> int:
        """Tensor id of a workspace of ``nbytes``; it lives for one op only."""
        found = self.scratch.get(nbytes)
        if found is None:
            found = self.scratch[nbytes] = len(self.tensors)
            name = f"workspace {nbytes / 1e6:.3f} MB"
            self.tensors.append(Tensor(found, "workspace", name, nbytes))
        return found

    # the walk --------------------------------------------------------------------------------

    def run(self) -> Plan:
        ahead = not self.on_demand
        for index, task in enumerate(self.tasks):
            self.look.start(index, task)
            if task.kind == "collective":
                self._collective(task)
            elif task.kind == "host":
                self._host_task(task)
            else:
                self._compute(task)
            self._settle(index, task)
            if ahead and task.kind == "compute":
                self._prefetch(task.device)
        final = self._flush()
        return Plan(
            self.out.ops(), tuple(self.tensors), tuple(self.out.grants), self.initial, final,
            self.capacity,
        )  # fmt: skip

    def _compute(self, task: Task) -> None:
        device = task.device
        here = self.resident[device]
        waits: list[int] = []
        pinned: set[int] = set()
        for tensor in task.reads:
            made = self.valid[tensor].get(device)
            if made is None:
                pinned = pinned or {*task.reads, *task.writes}
                self._fetch(tensor, device, pinned, task)
                made = self.valid[tensor][device]
            waits.append(made)
        need = task.workspace
        allocs: list[Place] = []
        for tensor in task.writes:
            if tensor not in here:
                need += self.size[tensor]
                allocs.append((tensor, device))
        if self.rooms[device].free < need:
            self._make_room(device, need, pinned or {*task.reads, *task.writes}, task)
        if len(allocs) < len(task.writes):
            for tensor in task.writes:
                if tensor in here:
                    waits.extend(here[tensor].values())
        op = self.out.next_id
        self.rooms[device].take(op, need, self.out.grants, waits)
        frees: tuple[Place, ...] = ()
        if task.workspace:
            frees = ((self._scratch(task.workspace), device),)
            allocs += frees
        stream = device + ".compute"
        self.out.emit(
            "compute", stream, device, task.phase, waits, task.layers, task.span, task.work, 0,
            "", (), task.reads, task.writes, tuple(allocs), frees,
        )  # fmt: skip
        if task.workspace:
            self.rooms[device].give(op, task.workspace)
        self.last_compute[device] = op
        self._touch(task.reads, device, stream, op)
        self._write(task.writes, device, stream, op)

    def _host_task(self, task: Task) -> None:
        host = self._home(task.reads[0])
        self._check_together(task, host)
        stream = f"{host}.{task.group[0]}"
        waits: list[int] = []
        for tensor in task.reads:
            self._to_host(tensor, host)
            waits.append(self.valid[tensor][host])
        for tensor in task.writes:
            waits.extend(self.resident[host][tensor].values())
        op = self.out.emit(
            "host", stream, host, task.phase, waits, task.layers,
            task.span, task.work, task.nbytes, "", (), task.reads, task.writes,
        )  # fmt: skip
        self._touch(task.reads, host, stream, op)
        self._write(task.writes, host, stream, op)

    def _check_together(self, task: Task, host: str) -> None:
        """Refuse a CPU update whose tensors had to be spread over several host memories."""
        for tensor in task.reads:
            if self._home(tensor) != host:
                raise self._does_not_fit(
                    host, self.size[tensor], f"to keep {self._name(tensor)} beside its weights"
                )

    def _collective(self, task: Task) -> None:
        stream = "collective:" + ",".join(task.group)
        waits: list[int] = []
        for tensor, device in zip(task.reads, task.group, strict=True):
            self._fetch(tensor, device, {tensor}, task)
            waits.extend(self.resident[device][tensor].values())
            waits.append(self.valid[tensor][device])
        op = self.out.emit(
            "collective", stream, task.device, task.phase, waits,
            task.layers, task.span, None, task.nbytes, "", task.group, task.reads, task.writes,
        )  # fmt: skip
        for tensor, device in zip(task.reads, task.group, strict=True):
            self._touch((tensor,), device, stream, op)
            self._write((tensor,), device, stream, op)

    def _touch(self, tensors: Sequence[int], device: str, stream: str, op: int) -> None:
        here = self.resident[device]
        if self.lru:
            for tensor in tensors:
                here[tensor] = here.pop(tensor)
        for tensor in tensors:
            here[tensor][stream] = op

    def _write(self, tensors: Sequence[int], device: str, stream: str, op: int) -> None:
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
                self._free(tensor, other)

    def _free(self, tensor: int, device: str) -> None:
        touched = self.resident[device].pop(tensor)
        self.valid[tensor].pop(device, None)
        self.rooms[device].give(self.out.free((tensor, device), touched), self.size[tensor])

    # copies ----------------------------------------------------------------------------------

    def _fetch(self, tensor: int, device: str, pinned: set[int], task: Task) -> None:
        """Make ``tensor`` valid on ``device``, evicting others if needed."""
        valid = self.valid[tensor]
        if device in valid:
            return
        if not self._reachable(tensor):
            self._swap_out(tensor, next(iter(valid)))
        self._make_room(device, self.size[tensor], pinned, task)
        self._copy(tensor, self._source(tensor), device, on_demand=self.on_demand)

    def _reachable(self, tensor: int) -> bool:
        """Whether a single copy can bring the tensor to another GPU."""
        if self.peer and not self.own_host[tensor]:
            return True
        return any(place in self.hosts for place in self.valid[tensor])

    def _source(self, tensor: int) -> str:
        """Where to copy from: a GPU for activations if peers may, otherwise host memory."""
        valid = self.valid[tensor]
        if self.peer and not self.own_host[tensor]:
            return next((place for place in valid if place not in self.hosts), next(iter(valid)))
        return next(place for place in valid if place in self.hosts)

    def _copy(self, tensor: int, source: str, device: str, *, on_demand: bool) -> None:
        waits = [self.valid[tensor][source]]
        if on_demand and device in self.last_compute:
            waits.append(self.last_compute[device])
        if source in self.hosts:
            stream, phase = device + ".h2d", "swap_in"
        else:
            stream, phase = f"{source}>{device}", "peer"
        op = self.out.next_id
        self.rooms[device].take(op, self.size[tensor], self.out.grants, waits)
        self.out.emit(
            "copy", stream, source, phase, waits, nbytes=self.size[tensor],
            peer=device, reads=(tensor,), allocs=((tensor, device),),
        )  # fmt: skip
        self._touch((tensor,), source, stream, op)
        self.resident[device][tensor] = {stream: op}
        self.valid[tensor][device] = op
        if source in self.hosts:
            if self.policy.host_copy == "exclusive":
                self._free(tensor, source)
        elif self.eager or source not in self.look.uses[tensor]:
            self._free(tensor, source)

    def _swap_out(self, tensor: int, device: str) -> None:
        """Copy to host memory and free on ``device``; the copy waits for every earlier use."""
        host = self._host_with_room(tensor, "swapped out")
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
            self.rooms[host].take(op, self.size[tensor], self.out.grants, waits)
            allocs = ((tensor, host),)
        self.out.emit(
            "copy", stream, device, "swap_out", waits,
            nbytes=self.size[tensor], peer=host, reads=(tensor,), allocs=allocs,
            frees=((tensor, device),),
        )  # fmt: skip
        there[tensor] = {stream: op}
        self.valid[tensor][host] = op
        self.rooms[device].give(op, self.size[tensor])

    def _to_host(self, tensor: int, host: str) -> None:
        valid = self.valid[tensor]
        if host not in valid:
            self._swap_out(tensor, next(iter(valid)))

    def _evict(self, tensor: int, device: str) -> None:
        """Drop a tensor that is valid elsewhere; write back one that is not."""
        if len(self.valid[tensor]) > 1:
            self._free(tensor, device)
        else:
            self._swap_out(tensor, device)

    # room ------------------------------------------------------------------------------------

    def _make_room(self, device: str, nbytes: int, pinned: set[int], task: Task) -> None:
        rooms = self.rooms[device]
        while rooms.free < nbytes:
            victim = None if self.policy.evict == "never" else self._victim(device, pinned)
            if victim is None:
                layer = f"layers {task.layers[0]}-{task.layers[1]}"
                samples = task.span[1] - task.span[0]
                raise self._does_not_fit(
                    device, nbytes, f"for {task.phase} of {layer} with microbatch {samples}"
                )
            self._evict(victim, device)

    def _victim(self, device: str, pinned: set[int]) -> int | None:
        candidates = (
            tensor for tensor in self.resident[device] if tensor not in pinned and self.size[tensor]
        )
        if self.policy.victim == "lru":
            return next(candidates, None)
        return max(candidates, key=lambda t: (self.look.next_use(t, device), -t), default=None)

    def _does_not_fit(self, device: str, nbytes: int, what: str) -> DoesNotFit:
        rooms = self.rooms[device]
        largest = sorted(self.resident[device], key=lambda t: (-self.size[t], t))[:3]
        held = ", ".join(f"{self._name(t)} {self.size[t] / 1e9:.2f} GB" for t in largest)
        return DoesNotFit(
            f"does not fit: {device} has {rooms.capacity / 1e9:.2f} GB usable and "
            f"{rooms.free / 1e9:.2f} GB free but needs {nbytes / 1e9:.2f} GB {what}, "
            f"{(nbytes - rooms.free) / 1e9:.2f} GB too much under {self.policy.name}"
            + (f" (largest there: {held})" if held else "")
        )

    # after a task ----------------------------------------------------------------------------

    def _settle(self, index: int, task: Task) -> None:
        """Free what is dead, hand on what another GPU needs, let go what is far."""
        if task.kind == "collective":
            for tensor, device in zip(task.reads, task.group, strict=True):
                self._settle_one(tensor, device)
            return
        device = HOST if task.kind == "host" else task.device
        for tensor in self.look.touched[index]:
            self._settle_one(tensor, device)

    def _settle_one(self, tensor: int, device: str) -> None:
        look = self.look
        look.consume(tensor, device)
        if not look.uses[tensor] and not self.persistent[tensor]:
            self._bury(tensor)
        elif device in self.valid[tensor]:
            if self.own_host[tensor]:
                if self.eager and not look.near(tensor, device, 1):
                    self._evict(tensor, device)
            elif look.uses[tensor]:
                self._pass_on(tensor, device, *look.following(tensor))

    def _pass_on(self, tensor: int, device: str, follower: int, user: str) -> None:
        """Push an activation to the GPU that uses it next, or out if its use is far."""
        if self.eager and self.look.near(tensor, device, 0):
            return
        handed = (
            self.tensors[tensor].kind == "activation_gradient"
            or self.tasks[follower].phase == "forward"
            or not self.eager
        )
        if self.peer and user != device and handed:
            self._push(tensor, device, user)
        elif self.eager:
            self._evict(tensor, device)

    def _push(self, tensor: int, device: str, user: str) -> None:
        if user in self.valid[tensor]:
            return
        reserve = 0 if self.policy.evict == "never" else self.look.slack(user, self.resident[user])
        if self.rooms[user].free >= self.size[tensor] + reserve:
            self._copy(tensor, device, user, on_demand=False)

    def _bury(self, tensor: int) -> None:
        for device, here in self.resident.items():
            if tensor in here:
                self._free(tensor, device)

    def _prefetch(self, device: str) -> None:
        here = self.resident[device]
        for tensor in self.look.wanted(device):
            if tensor in here or not self.valid[tensor] or not self._reachable(tensor):
                continue
            source = self._source(tensor)
            if source not in self.hosts and self.look.following(tensor)[1] != device:
                continue  # another GPU needs it first and would have to fetch it back
            if self.rooms[device].free < self.size[tensor] + self.look.slack(device, here):
                return
            self._copy(tensor, source, device, on_demand=False)

    def _flush(self) -> tuple[Place, ...]:
        """Bring weights and states home."""
        final: list[Place] = []
        for tensor, start in self.initial:
            if not self.persistent[tensor]:
                continue
            if start in self.hosts:
                for device in [d for d in self.valid[tensor] if d not in self.hosts]:
                    self._evict(tensor, device)
                final.append((tensor, next(iter(self.valid[tensor]))))
            else:
                final.append((tensor, start))
        return tuple(final)
