"""What a schedule is called, where it comes from, and which knobs it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hwmodels.server import Server
from workloads.model import Model
from workloads.schedule import Schedule

KnobValue = bool | int | str | None


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of a schedule.

    Attributes
    ----------
    default : bool, int, str or None
        None means that the schedule chooses.
    help : str
        One line.
    kind : type
        Type of the value.
    choices : tuple of str
        Allowed words of a text knob; empty if free.
    """

    default: KnobValue
    help: str
    kind: type
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be trained on what: the arguments of every family.

    Attributes
    ----------
    name : str
        Name of the schedule.
    model : Model
    server : Server
    minibatch : int
        Samples per iteration on the whole server (D).
    microbatch : int
        Samples per microbatch (u).
    """

    name: str
    model: Model
    server: Server
    minibatch: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """An entry of the list of schedules.

    Attributes
    ----------
    name, summary, source : str
        Name, one line, and the paper or code that describes it.
    replicated : bool
        Whether every GPU runs the whole model on its share of the minibatch.
    pipeline : bool
        Whether each GPU holds one stage, so that few microbatches leave a bubble.
    knobs : mapping of str to Knob
    build : callable
        ``build(job, **knobs) -> Schedule``.
    usual : bool
        Whether a comparison tries it unless asked for others: a choice that leaves out most
        variants of the newer pipelines, so that a table can be read.
    """

    name: str
    summary: str
    source: str
    replicated: bool
    pipeline: bool
    build: Callable[..., Schedule]
    knobs: Mapping[str, Knob] = field(default_factory=dict[str, Knob])
    usual: bool = True
