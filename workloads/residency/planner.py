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
from dataclasses import dataclass, field

from hwmodels.server import Server
from workloads.residency.devices import Devices
from workloads.residency.homes import Homes
from workloads.residency.lookahead import HOST, Lookahead
from workloads.residency.policy import Policy
from workloads.schedule import Grant, Op, Place, Tensor
from workloads.tasks import Task


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


_OPENING = 2
"""Tasks of the next visit whose inputs are fetched during the running one; where everything stays
resident, and room must last for the stash, tasks whose inputs are fetched at all (double
buffering)."""

_RETRIED = 4
"""Tasks whose inputs were not there yet that are looked at again: they come in order."""


@dataclass(slots=True)
class _Ahead:
    """How far ahead the inputs of one GPU's tasks have been fetched: positions in its lane."""

    seen: int = 0
    late: list[int] = field(default_factory=list[int])


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
        size = [tensor.nbytes for tensor in tensors]
        self.tasks = tasks
        self.server = server
        self.policy = policy
        self.look = Lookahead(tasks, size, server.gpus)
        homes = Homes(tasks, size, server, self.look)
        self.at = Devices(tensors, server, policy, self.look, homes, peer=peer)
        self.initial = tuple(self._place_initial(on_host))
        self.ahead = {gpu: _Ahead() for gpu in server.gpus}
        self.held: list[int] = []

    def _place_initial(self, on_host: Sequence[int]) -> list[Place]:
        used = [tensor for tensor in on_host if self.look.uses[tensor]]
        if self.policy.home == "gpu":
            self._check_static(used)
        places: list[Place] = []
        for tensor in used:
            if self.policy.home == "gpu" and self.at.persistent[tensor]:
                device = self.look.uses[tensor][0][1]
            else:
                device = self.at.host_with_room(tensor, "at the start of the iteration")
            self.at.place(tensor, device)
            places.append((tensor, device))
        return places

    def _check_static(self, used: Sequence[int]) -> None:
        need = dict.fromkeys(self.server.gpus, 0)
        for tensor in used:
            if self.at.persistent[tensor]:
                need[self.look.uses[tensor][0][1]] += self.at.size[tensor]
        for device, nbytes in need.items():
            if nbytes > self.at.capacity[device]:
                raise self.at.does_not_fit(device, nbytes, "for weights and optimizer state alone")

    def run(self) -> Plan:
        ahead = not self.at.on_demand
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
        at = self.at
        return Plan(
            at.out.ops(), tuple(at.tensors), tuple(at.out.grants), self.initial, final, at.capacity
        )

    def _compute(self, task: Task) -> None:
        at, valid = self.at, self.at.valid
        _, device, phase, layers, span, reads, writes, _, work, scratch, _, _, _ = task
        here, room = at.resident[device], at.rooms[device]
        waits: list[int] = []
        pinned: set[int] = set()
        for tensor in reads:
            made = valid[tensor].get(device)
            if made is None:
                pinned = pinned or {*reads, *writes}
                at.fetch(tensor, device, pinned, task)
                made = valid[tensor][device]
            waits.append(made)
        need = scratch
        allocs: list[Place] = []
        for tensor in writes:
            if tensor in here:
                waits += here[tensor].values()
            else:
                need += at.size[tensor]
                allocs.append((tensor, device))
        if room.free < need:
            at.make_room(device, need, pinned or {*reads, *writes}, task)
        op = at.out.next_id
        room.take(op, need, at.out.grants, waits)
        frees: tuple[Place, ...] = ()
        if scratch:
            frees = ((at.scratch(scratch), device),)
            allocs += frees
            room.give(op, scratch)
        stream = device + ".compute"
        at.out.emit(
            "compute", stream, device, phase, waits, layers, span, work, 0,
            "", (), reads, writes, tuple(allocs), frees,
        )  # fmt: skip
        at.last_compute[device] = op
        at.touch(reads, device, stream, op)
        at.write(writes, device, stream, op)

    def _host_task(self, task: Task) -> None:
        host = self.at.homes.of(task.reads[0])
        self._check_together(task, host)
        stream = f"{host}.{task.group[0]}"
        waits: list[int] = []
        for tensor in task.reads:
            self.at.to_host(tensor, host)
            waits.append(self.at.valid[tensor][host])
        for tensor in task.writes:
            waits.extend(self.at.resident[host][tensor].values())
        op = self.at.out.emit(
            "host", stream, host, task.phase, waits, task.layers,
            task.span, task.work, task.nbytes, "", (), task.reads, task.writes,
        )  # fmt: skip
        self.at.touch(task.reads, host, stream, op)
        self.at.write(task.writes, host, stream, op)

    def _check_together(self, task: Task, host: str) -> None:
        """Refuse a CPU update whose tensors had to be spread over several host memories."""
        for tensor in task.reads:
            if self.at.homes.of(tensor) != host:
                raise self.at.does_not_fit(
                    host, self.at.size[tensor], f"to keep {self.at.name(tensor)} beside its weights"
                )

    def _collective(self, task: Task) -> None:
        stream = "collective:" + ",".join(task.group)
        waits: list[int] = []
        for tensor, device in zip(task.reads, task.group, strict=True):
            self.at.fetch(tensor, device, {tensor}, task)
            waits.extend(self.at.resident[device][tensor].values())
            waits.append(self.at.valid[tensor][device])
        op = self.at.out.emit(
            "collective", stream, task.device, task.phase, waits,
            task.layers, task.span, None, task.nbytes, "", task.group, task.reads, task.writes,
        )  # fmt: skip
        for tensor, device in zip(task.reads, task.group, strict=True):
            self.at.touch((tensor,), device, stream, op)
            self.at.write((tensor,), device, stream, op)

    def _settle(self, index: int, task: Task) -> None:
        """Free what is dead, hand on what another GPU needs, let go what is far."""
        if task.kind == "collective":
            for tensor, device in zip(task.reads, task.group, strict=True):
                self._settle_one(tensor, device)
            return
        device = HOST if task.kind == "host" else task.device
        persistent, eager = self.at.persistent, self.at.eager
        for tensor in self.look.touched[index]:
            if task.joined and tensor in task.writes and self.look.elsewhere(tensor, device):
                self.held.append(tensor)
            elif eager or not persistent[tensor]:
                self._settle_one(tensor, device)
        if self.held and not task.joined:
            self._release(device)

    def _release(self, device: str) -> None:
        """Hand on what joined tasks made, now that the last of them has ended."""
        at = self.at
        for tensor in self.held:
            if device in at.valid[tensor]:  # not evicted meanwhile
                at.write((tensor,), device, device + ".compute", at.last_compute[device])
            self._settle_one(tensor, device)
        self.held.clear()

    def _settle_one(self, tensor: int, device: str) -> None:
        at, look = self.at, self.look
        further = look.uses[tensor]
        further.pop()
        if not further and not at.persistent[tensor]:
            self._bury(tensor)
        elif device in at.valid[tensor]:
            if at.own_host[tensor]:
                if at.eager and not look.near(tensor, device, 1):
                    at.evict(tensor, device)
            elif further and (at.eager or look.elsewhere(tensor, device)):
                self._pass_on(tensor, device, *further[-1])

    def _pass_on(self, tensor: int, device: str, follower: int, user: str) -> None:
        """Push an activation to the GPU that uses it next, or out if its use is far."""
        if self.at.eager and self.look.near(tensor, device, 0):
            return
        handed = (
            self.at.tensors[tensor].kind == "activation_gradient"
            or self.tasks[follower].phase == "forward"
            or not self.at.eager
        )
        if self.at.peer and user != device and handed:
            self._push(tensor, device, user)
        elif self.at.eager:
            self.at.evict(tensor, device)

    def _push(self, tensor: int, device: str, user: str) -> None:
        if user in self.at.valid[tensor]:
            return
        reserve = (
            0 if self.policy.evict == "never" else self.look.slack(user, self.at.resident[user])
        )
        if self.at.rooms[user].free >= self.at.size[tensor] + reserve:
            self.at.copy(tensor, device, user, on_demand=False)

    def _bury(self, tensor: int) -> None:
        for device in tuple(self.at.valid[tensor]):
            self.at.free(tensor, device)
        for host in self.server.hosts:  # a stale buffer
            if tensor in self.at.resident[host]:
                self.at.free(tensor, host)

    def _prefetch(self, device: str) -> None:
        """Fetch inputs in order of need, while room lasts: of this visit, then of the next.

        The next visit's weights come after all inputs of the running one that there are, so that
        they never make one wait that is needed before.
        """
        ahead, late = self.ahead[device], self.ahead[device].late
        lane, begin, end = self.look.visit_tasks(device)
        while late and late[0] < begin:
            del late[0]
        for position in late[:_RETRIED]:
            missing = self._provide(device, self.tasks[lane[position]].reads)
            if missing is None:
                return
            if not missing:
                late.remove(position)
        last = min(len(lane), (end if self.at.eager else begin) + _OPENING)
        for position in range(max(ahead.seen, begin), last):
            missing = self._provide(device, self.tasks[lane[position]].reads)
            if missing is None:
                return
            if missing:
                late.append(position)
            ahead.seen = position + 1

    def _provide(self, device: str, tensors: Sequence[int]) -> int | None:
        """Copy to a GPU what can come now; says how many cannot yet, or None if room is out."""
        at, here, later = self.at, self.at.resident[device], 0
        for tensor in tensors:
            if tensor in here:
                continue
            if not at.valid[tensor] or not at.reachable(tensor):
                later += 1
                continue
            source = at.source(tensor)
            if source not in at.hosts and self.look.uses[tensor][-1][1] != device:
                later += 1  # another GPU needs it first and would have to fetch it back
                continue
            if at.rooms[device].free < at.size[tensor] + self.look.slack(device, here):
                return None
            at.copy(tensor, source, device, on_demand=False)
        return later

    def _flush(self) -> tuple[Place, ...]:
        """Bring weights and states home."""
        final: list[Place] = []
        for tensor, start in self.initial:
            if not self.at.persistent[tensor]:
                continue
            if start in self.at.hosts:
                for device in [d for d in self.at.valid[tensor] if d not in self.at.hosts]:
                    self.at.evict(tensor, device)
                final.append((tensor, next(iter(self.at.valid[tensor]))))
            else:
                final.append((tensor, start))
        return tuple(final)
