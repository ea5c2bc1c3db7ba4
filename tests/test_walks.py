"""Random histories of a model, held against training from scratch by the slow solver after every call.

`ISVM_WALKS` sets their number; beyond the default they are new ones each time."""
import os

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from histories import ACTIONS, KERNELS, KINDS, Walk, assert_few_events, certificate, differing, signs, snapshot
from isvm import IncrementalSVC
from isvm.engine.core import PathError

WALKS = int(os.environ.get("ISVM_WALKS", 60))
many = settings(max_examples=WALKS, derandomize="ISVM_WALKS" not in os.environ, deadline=None, database=None,
                print_blob=True, suppress_health_check=list(HealthCheck))

seeds, sizes = st.integers(0, 2**32 - 1), st.integers(1, 24)
plans = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 12)), min_size=3, max_size=11)
costs = st.sampled_from([1e-3, 0.05, 1.0, 10.0, 100.0, 1e5])


def go(walk, plan):
    "Every call exact, in few events; the decision function is that of the oracle, wherever the oracle has one."
    for action, m in plan:
        held = len(walk.data)
        walk.act(action, m)
        assert_few_events(walk.model, held + m)
        assert walk.residual() <= 1.0, action
        try: gap = walk.gap()
        except PathError: continue
        assert gap <= 1.0, action


@many
@given(st.sampled_from(list(KERNELS)), st.sampled_from(KINDS), costs, seeds, sizes, plans)
def test_any_history_ends_where_training_afresh_does(kernel, kind, C, seed, first, plan):
    go(Walk(kernel, kind, C, seed), [("add", first), *plan])


@many
@given(st.sampled_from(list(KERNELS)), st.sampled_from(KINDS), costs, seeds, sizes, plans)
def test_with_balanced_classes_every_bound_moves_along(kernel, kind, C, seed, first, plan):
    go(Walk(kernel, kind, C, seed, balanced=True), [("add", first), *plan])


@many
@given(st.sampled_from(list(KERNELS)), st.sampled_from(KINDS), costs, seeds, sizes, plans, st.booleans())
def test_given_kernel_values_do_as_well(kernel, kind, C, seed, first, plan, balanced):
    go(Walk(kernel, kind, C, seed, balanced, precomputed=True), [("add", first), *plan])


@many
@given(st.floats(0.05, 3.0), st.floats(-2.0, 2.0), costs, seeds, st.lists(st.integers(1, 15), min_size=1, max_size=5))
def test_an_indefinite_kernel_is_noticed_or_harmless_and_never_loops(gamma, coef0, C, seed, sizes):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(10 + sum(sizes), 2)), rng.integers(0, 2, 10 + sum(sizes))
    K = np.tanh(gamma * np.einsum("id,jd->ij", X, X) + coef0)
    model, end = IncrementalSVC(C=C, kernel="sigmoid", gamma=gamma, coef0=coef0), 1
    try: model.partial_fit(X[:1], y[:1])
    except PathError: return
    for m in sizes:
        before, events = snapshot(model), 0
        try:
            for _ in model.steps(X[end:end + m], y[end:end + m], ids=range(end, end + m)): events += 1
        except PathError:
            assert differing(before, snapshot(model)) == []
            break
        finally: assert events <= 20 * (1000 + 200 * (end + m)), "the limit on events was passed"
        end += m
        worst, allowed = certificate(model.alpha_, model.intercept_[0], K[:end, :end], signs(model, y[:end]), np.full(end, C))
        assert worst <= allowed
