"""Which host memory every tensor belongs to."""

from __future__ import annotations

from collections.abc import Sequence

from hwmodels.server import Server
from workloads.residency.lookahead import Lookahead
from workloads.tasks import Task


class Homes:
    """Host memory (NUMA node) of every tensor.

    Nearest to the GPU that uses it; spread over the nodes where GPUs of several do. Weights,
    states and gradients of a CPU update lie together, in a node with room for them.
    """

    def __init__(
        self, tasks: Sequence[Task], size: Sequence[int], server: Server, look: Lookahead
    ) -> None:
        self.hosts = server.hosts
        self._look = look
        self._nearest = {gpu: server.host_of(gpu) for gpu in server.gpus}
        self._home: dict[int, str] = {}
        room = {host: server.memory(host) for host in server.hosts}
        for task in tasks:
            if task.kind == "host":
                need = sum(size[tensor] for tensor in task.reads)
                near = self._near(task.reads[0])
                order = sorted(room, key=lambda host: host != near)  # stable: near first
                home = next((host for host in order if room[host] >= need), near)
                room[home] -= need
                self._home.update(dict.fromkeys(task.reads, home))

    def of(self, tensor: int) -> str:
        """Home of one tensor."""
        home = self._home.get(tensor)
        if home is None:
            home = self._home[tensor] = self._near(tensor)
        return home

    def move(self, tensor: int, host: str) -> None:
        """Give a tensor another home."""
        self._home[tensor] = host

    def _near(self, tensor: int) -> str:
        users = {user for _, user in self._look.uses[tensor]}
        near = {self._nearest[gpu] for gpu in users if gpu in self._nearest}
        found = sorted(near, key=self.hosts.index)
        return found[tensor % len(found)] if found else self.hosts[0]
