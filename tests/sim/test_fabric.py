"""Sharing of bandwidth: rates per flow, not only when the last one ends."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from sim.fabric import Use, alone, max_min, shares

INF = math.inf


@st.composite
def fabrics(draw, most_flows=7):
    """Usages, caps and capacities of a few flows over a few links."""
    links = [f"l{i}" for i in range(draw(st.integers(1, 5)))]
    capacities = {link: draw(st.sampled_from([1.0, 2.0, 3.5, 7.0, 10.0, 40.0])) for link in links}
    usages, caps = [], []
    for _ in range(draw(st.integers(1, most_flows))):
        used = draw(st.lists(st.sampled_from(links), min_size=1, unique=True))
        usages.append(tuple((link, draw(st.sampled_from([1.0, 1.0, 2.0, 3.0]))) for link in used))
        caps.append(draw(st.sampled_from([INF, INF, 0.7, 2.5, 9.0])))
    return usages, caps, capacities


def by_linear_programs(usages, caps, capacities):
    """Lexicographic max-min: raise the lowest rate as far as it goes, fix who cannot rise."""
    count, links = len(usages), list(capacities)
    load = np.array([[dict(usage).get(link, 0.0) for usage in usages] for link in links])
    room = np.array([capacities[link] for link in links])
    fixed = {}
    while len(fixed) < count:
        bounds = [(fixed[i], fixed[i]) if i in fixed else (0, caps[i]) for i in range(count)]
        bounds = [(low, None if high == INF else high) for low, high in bounds]
        rows = [[-float(i == j) for j in range(count)] + [1.0] for i in range(count)]
        rows = [row for i, row in enumerate(rows) if i not in fixed]
        a = np.vstack([np.hstack([load, np.zeros((len(links), 1))]), rows])
        b = np.concatenate([room, np.zeros(len(rows))])
        level = linprog([0.0] * count + [-1.0], a, b, bounds=[*bounds, (0, None)]).x[-1]
        floor = [
            (fixed[i] if i in fixed else level - 1e-9, high) for i, (_, high) in enumerate(bounds)
        ]
        for i in range(count):
            if i not in fixed:
                goal = [-float(i == j) for j in range(count)]
                if -linprog(goal, load, room, bounds=floor).fun <= level * (1 + 1e-6):
                    fixed[i] = level
    return [fixed[i] for i in range(count)]


def equal_split(usages, caps, capacities):
    """Each link is cut into equal parts; a flow gets the smallest part on its way."""
    load = {
        link: sum(m for usage in usages for name, m in usage if name == link) for link in capacities
    }
    return [
        min([cap] + [capacities[link] / load[link] for link, _ in usage])
        for usage, cap in zip(usages, caps, strict=True)
    ]


def test_a_flow_held_elsewhere_leaves_its_part_to_others():
    # b holds the second flow at 2; the first takes the other 8 of a's 10
    usages = [(("a", 1.0),), (("a", 1.0), ("b", 1.0))]
    assert max_min(usages, [INF, INF], {"a": 10.0, "b": 2.0}) == [8.0, 2.0]


def test_equal_split_is_another_rule():
    usages = [(("a", 1.0),), (("a", 1.0), ("b", 1.0))]
    capacities = {"a": 10.0, "b": 2.0}
    assert equal_split(usages, [INF, INF], capacities) == [5.0, 2.0]
    fair = by_linear_programs(usages, [INF, INF], capacities)
    assert fair == pytest.approx([8.0, 2.0], rel=1e-6)
    assert equal_split(usages, [INF, INF], capacities) != pytest.approx(fair, rel=0.3)


def test_three_links_in_a_row():
    # One long flow over a, b, c and one short flow on each. a (capacity 3) fills first at 1.5 each;
    # then b: 4 - 1.5, c: 10 - 1.5.
    usages = [(("a", 1.0), ("b", 1.0), ("c", 1.0)), (("a", 1.0),), (("b", 1.0),), (("c", 1.0),)]
    rates = max_min(usages, [INF] * 4, {"a": 3.0, "b": 4.0, "c": 10.0})
    assert rates == pytest.approx([1.5, 1.5, 2.5, 8.5], rel=1e-12)


def test_multiplicity_counts_bytes_not_flows():
    # the staged flow takes 2 from the memory per byte: x + 2x = 9
    rates = max_min([(("dram", 1.0),), (("dram", 2.0),)], [INF, INF], {"dram": 9.0})
    assert rates == [3.0, 3.0]


def test_a_cap_leaves_room_for_others():
    rates = max_min([(("a", 1.0),)] * 3, [1.0, INF, INF], {"a": 9.0})
    assert rates == [1.0, 4.0, 4.0]


def test_a_flow_without_links_is_held_by_its_cap_only():
    assert max_min([(), ()], [5.0, INF], {}) == [5.0, INF]
    assert max_min([], [], {}) == []


def test_extreme_capacities():
    usages = [(("slow", 1.0), ("fast", 1.0)), (("fast", 1.0),)]
    rates = max_min(usages, [INF, INF], {"slow": 1.0, "fast": 1e15})
    assert rates == pytest.approx([1.0, 1e15 - 1.0], rel=1e-15)


@settings(deadline=None, max_examples=60)
@given(fabrics())
def test_rates_agree_with_linear_programs_flow_by_flow(fabric):
    # HiGHS keeps constraints to 1e-7, so that is the precision of the oracle
    assert max_min(*fabric) == pytest.approx(by_linear_programs(*fabric), rel=1e-5)


@settings(deadline=None, max_examples=300)
@given(fabrics(12))
def test_every_flow_has_a_bottleneck(fabric):
    """The certificate of max-min fairness: a full link on which nobody gets more, or the cap."""
    usages, caps, capacities = fabric
    rates = max_min(usages, caps, capacities)
    load = dict.fromkeys(capacities, 0.0)
    for usage, rate in zip(usages, rates, strict=True):
        for link, multiplicity in usage:
            load[link] += multiplicity * rate
    for link, total in load.items():
        assert total <= capacities[link] * (1 + 1e-9)
    for usage, cap, rate in zip(usages, caps, rates, strict=True):
        assert rate <= cap
        held = rate >= cap * (1 - 1e-9)
        for link, _ in usage:
            full = load[link] >= capacities[link] * (1 - 1e-9)
            most = max(r for u, r in zip(usages, rates, strict=True) if link in dict(u))
            held = held or (full and rate >= most * (1 - 1e-9))
        assert held


@settings(deadline=None, max_examples=200)
@given(fabrics(8), st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(fabric, random):
    usages, caps, capacities = fabric
    rates = max_min(usages, caps, capacities)
    order = random.sample(range(len(usages)), len(usages))
    links = random.sample(list(capacities), len(capacities))
    new = {link: f"z{i}" for i, link in enumerate(links)}
    again = max_min(
        [tuple((new[link], m) for link, m in reversed(usages[i])) for i in order],
        [caps[i] for i in order],
        {new[link]: capacities[link] for link in links},
    )
    assert again == pytest.approx([rates[i] for i in order], rel=1e-12)


@settings(deadline=None, max_examples=150)
@given(fabrics(6), st.data())
def test_pools_give_the_rates_of_the_whole_fabric(fabric, data):
    """Leaving out links that cannot fill, and splitting the rest, changes no rate."""
    usages, caps, capacities = fabric
    uses = [Use(*pair) for pair in zip(usages, caps, strict=True)]
    owners = [data.draw(st.integers(0, 3)) for _ in uses]
    found = shares(owners, uses, capacities)
    flows_of = [[None, *(i for i in range(len(uses)) if owners[i] == o)] for o in range(4)]
    for choice in product(*flows_of):
        active = [i for i in choice if i is not None]
        whole = max_min([usages[i] for i in active], [caps[i] for i in active], capacities)
        parts = {}
        for pool in {found[i].pool for i in active}:
            inside = [i for i in active if found[i].pool == pool]
            rates = max_min(
                [found[i].usage for i in inside], [found[i].limit for i in inside], capacities
            )
            parts |= dict(zip(inside, rates, strict=True))
        assert [parts[i] for i in active] == pytest.approx(whole, rel=1e-9)


def test_a_wide_memory_does_not_join_what_narrow_links_keep_apart():
    # Four flows through two uplinks of 10: together at most 20 of the memory's 25
    uses = [Use(((f"up{i % 2}", 1.0), ("dram", 1.0), (f"port{i}", 1.0)), INF) for i in range(4)]
    capacities = {"up0": 10.0, "up1": 10.0, "dram": 25.0} | {f"port{i}": 8.0 for i in range(4)}
    found = shares(range(4), uses, capacities)
    assert [share.pool for share in found] == [0, 1, 0, 1]
    assert [dict(share.usage) for share in found] == [{"up0": 1.0}, {"up1": 1.0}] * 2
    narrow = shares(range(4), uses, capacities | {"dram": 15.0})
    assert len({share.pool for share in narrow}) == 1


def test_two_links_in_a_row_do_not_vouch_for_each_other():
    uses = [Use((("a", 1.0), ("b", 1.0)), INF)] * 2
    found = shares([0, 1], uses, {"a": 4.0, "b": 4.0})
    assert [len(share.usage) for share in found] == [1, 1]
    assert found[0].pool == found[1].pool


def test_flows_of_one_owner_have_no_rivals():
    uses = [Use((("a", 1.0),), INF), Use((("a", 2.0),), 3.0)]
    found = shares([7, 7], uses, {"a": 10.0})
    assert [share.usage for share in found] == [(), ()]
    assert [share.limit for share in found] == [10.0, 3.0]
    assert alone(uses[1], {"a": 4.0}) == 2.0
