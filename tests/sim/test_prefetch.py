"""FAILS on 18e4dd4: next visit's weights must not hold up inputs of the running visit."""

from __future__ import annotations

import pytest
from toys import build, chain, ideal

from sim.engine import execute


@pytest.mark.parametrize("m", [2, 3, 4, 6])
@pytest.mark.parametrize("packs", [2, 4, 8])
def test_a_load_that_fits_in_the_visit_before_it_is_hidden(m, packs):
    """Compute-bound Harmony on one GPU: first load + all compute + last gradient."""
    weight, layers, forward, backward = 60, 8, 3.0, 6.0
    pack = layers // packs
    visit = m * forward * pack
    rate = pack * weight / visit  # the next load takes exactly one forward visit
    server = ideal(1, host=rate, memory=100 * weight)
    model = chain(layers, weight, 1, 0, times=[(forward, backward)] * layers)
    plan = build("harmony-dp", model, server, m, pack=pack, update="cpu")
    compute = m * layers * (forward + backward) + m * (layers - pack) * forward
    edge = pack * weight / rate
    expected = edge + compute + edge
    assert execute(plan, server).end.max() == pytest.approx(expected, rel=1e-9)
