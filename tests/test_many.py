"""Every batch gives the model that single points and retraining give: exact, and in a bounded number of events.

Ids are row numbers of one table of points, so that three models can be compared on all of it."""
import copy

import numpy as np
import pytest

from histories import KERNELS, KINDS, assert_exact, assert_few_events, draw, monks, scaled, signs, SCALES
from isvm import IncrementalSVC
from isvm.engine.problem import Problem
from isvm.engine.reference import reference_solve


def values(model, K, y):
    "The decision function on every row of the table, and the size of the sums behind it."
    coef = np.zeros(len(y))
    coef[model.ids_.astype(int)] = signs(model, y[model.ids_.astype(int)]) * model.alpha_
    return K @ coef + model.intercept_[0], (np.abs(K) @ np.abs(coef)).max(initial=0.0)


def oracle(model, K, y):
    "The same from scratch, by a solver that shares nothing with the engine."
    at = model.ids_.astype(int)
    a, u = signs(model, y[at]), np.full(len(at), model.C)
    alpha, bias = reference_solve(a[:, None] * K[np.ix_(at, at)] * a, Problem(np.ones(len(at)), a, u, 0.0))
    return K[:, at] @ (a * alpha) + bias


def batch(model, X, y, added=(), removed=()):
    "One path: `partial_fit`, `unlearn` or `update`, whichever fits."
    added, removed = np.asarray(added, int), np.asarray(removed, int)
    if len(removed) == 0: return model.partial_fit(X[added], y[added], ids=added)
    if len(added) == 0: return model.unlearn(removed)
    return model.update(X[added], y[added], remove=removed, ids=added)


def singly(model, X, y, added=(), removed=()):
    "As many paths as there are points; how many events they took."
    events = 0
    for i in added: events += model.partial_fit(X[[i]], y[[i]], ids=[i]).n_events_
    for i in removed: events += model.unlearn([i]).n_events_
    return events


def assert_three_ways(model, X, y, K, added=(), removed=(), scratch=oracle):
    "Batch, single points and retraining agree; the batch is exact and bounded. Returns the batch and the events of both."
    many, one, held = copy.deepcopy(model), copy.deepcopy(model), len(model.ids_)
    batch(many, X, y, added, removed)
    assert sorted(many.ids_.tolist()) == sorted({*model.ids_.tolist(), *map(int, added)} - {*map(int, removed)})
    assert_exact(many, K, y)
    assert_few_events(many, held + len(added))
    events = singly(one, X, y, added, removed)
    assert_exact(one, K, y)
    f, sums = values(many, K, y)
    allowed = max(1e-8, 1e-12 * sums)
    assert np.abs(f - values(one, K, y)[0]).max() <= allowed, "batch and single points differ"
    if len(many.ids_): assert np.abs(f - scratch(many, K, y)).max() <= allowed, "batch and retraining differ"
    return many, (many.n_events_, events)


def refit(X):
    "Retraining by `fit`, where the oracle would be slow."
    def scratch(model, K, y):
        at = model.ids_.astype(int)
        fresh = IncrementalSVC(**model.get_params()).fit(X[at], y[at], ids=at)
        assert_exact(fresh, K, y)
        return values(fresh, K, y)[0]
    return scratch


@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf"])
@pytest.mark.parametrize("problem", [1, 2, 3])
def test_monks_by_fifties(problem, kernel):
    "Whole groups of points arrive at their bounds together."
    (X, y), (params, formula) = monks(problem), KERNELS[kernel]
    K, order = formula(X, X), np.random.default_rng(problem).permutation(432)
    held, new, gone = order[:200], order[200:250], order[:50]
    model = IncrementalSVC(C=10.0, **params).fit(X[held], y[held], ids=held)
    totals = np.zeros(2)
    for added, removed in ((new, ()), ((), gone), (new, gone)):
        totals += assert_three_ways(model, X, y, K, added, removed, refit(X))[1]
    assert totals[0] < totals[1]


def table(kind, kernel, n, seed):
    "Points of one kind in random order, the first two of different classes where there are two; params and kernel values."
    X, y, _ = draw(kind, n, np.random.default_rng(seed))
    params, formula = scaled(kernel, SCALES.get(kind, 1.0))
    other = np.flatnonzero(y != y[0])
    if len(other): X[[1, other[0]]], y[[1, other[0]]] = X[[other[0], 1]], y[[other[0], 1]]
    return X, y, params, formula(X, X)


@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf"])
@pytest.mark.parametrize("kind", ["plain", "grid", "duplicates", "contradictions", "separable", "one class"])
def test_batches_larger_than_the_model(kind, kernel):
    "Twenty points take in 200, 190 of these leave, and the ten that stay are exchanged for 200 others."
    X, y, params, K = table(kind, kernel, 420, 5)
    model = IncrementalSVC(C=5.0, **params).fit(X[:20], y[:20], ids=range(20))
    for added, removed in ((range(20, 220), range(0)), ((), range(10, 210)), (range(220, 420), [*range(10), *range(210, 220)])):
        held = len(model.ids_) + len(added)
        batch(model, X, y, added, removed)
        assert_exact(model, K, y)
        assert_few_events(model, held)
    assert model.ids_.tolist() == list(range(220, 420))
    assert np.abs(values(model, K, y)[0] - refit(X)(model, K, y)).max() <= max(1e-8, 1e-12 * values(model, K, y)[1])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_large_batches_three_ways(kernel):
    X, y, params, K = table("plain", kernel, 220, 1)
    model = IncrementalSVC(C=2.0, **params).fit(X[:20], y[:20], ids=range(20))
    full, _ = assert_three_ways(model, X, y, K, range(20, 220), (), refit(X))
    assert_three_ways(full, X, y, K, (), range(190), refit(X))
    half = IncrementalSVC(C=2.0, **params).fit(X[:100], y[:100], ids=range(100))
    swapped, _ = assert_three_ways(half, X, y, K, range(100, 200), range(100), refit(X))
    assert_three_ways(swapped, X, y, K, (), range(100, 200))                        # down to nothing
    assert_three_ways(copy.deepcopy(swapped).unlearn(range(100, 200)), X, y, K, range(5, 60))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf", "wide", "narrow"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "weighted"])
def test_any_batch_on_any_data(kind, kernel, seed):
    "Random batches on a model of random size, C from loose to hard, three ways each."
    rng = np.random.default_rng([seed, len(kind), len(kernel)])
    X, y, params, K = table(kind, kernel, 60, seed)
    C = (0.05, 2.0, 50.0)[seed] if kind != "huge" or "gamma" in params else 1.0
    n = int(rng.integers(2, 40))
    model = IncrementalSVC(C=C, **params).fit(X[:n], y[:n], ids=range(n))
    for _ in range(2):
        held = model.ids_.astype(int)
        new = rng.permutation(np.setdiff1d(np.arange(60), held))[:rng.integers(0, 25)]
        gone = rng.permutation(held)[:rng.integers(0, len(held) + 1)]
        if len(new) + len(gone) == 0: continue
        model, _ = assert_three_ways(model, X, y, K, new, gone)


@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf"])
def test_copies_of_the_margin_set(kernel):
    "Points that make KT's matrix singular, with the same and with the other label, all in one path and out again."
    X, y, params, _ = table("plain", kernel, 40, 2)
    model = IncrementalSVC(C=5.0, **params).fit(X, y, ids=range(40))
    twins = model.ids_[model.status_ == 1].astype(int)
    assert len(twins) > 1
    X, y = np.concatenate([X, X[twins], X[twins]]), np.concatenate([y, y[twins], 1 - y[twins]])
    K, new = KERNELS[kernel][1](X, X), np.arange(40, len(X))
    full, _ = assert_three_ways(model, X, y, K, new)
    back, _ = assert_three_ways(full, X, y, K, (), new)
    f, sums = values(model, K, y)
    assert np.abs(values(back, K, y)[0] - f).max() <= max(1e-8, 1e-12 * sums)
    assert_three_ways(full, X, y, K, (), twins)                       # the originals leave, their copies stay


def test_a_batch_that_needs_no_move_has_no_events():
    X, y, params, K = table("plain", "rbf", 200, 7)
    model = IncrementalSVC(C=2.0, **params).fit(X[:100], y[:100], ids=range(100))
    assert ((model.alpha_ > 1e-6) & (model.alpha_ < 2.0 - 1e-6)).any()     # somebody tells the bias
    f = values(model, K, y)[0]
    idle = 100 + np.flatnonzero((signs(model, y) * f)[100:] > 1)
    resting = model.ids_[model.status_ == 0].astype(int)
    many, (together, singles) = assert_three_ways(model, X, y, K, idle, resting)
    assert together == singles == 0 and len(idle) > 20 < len(resting)
    np.testing.assert_array_equal(many.alpha_[many.alpha_ > 0], model.alpha_[model.alpha_ > 0])
