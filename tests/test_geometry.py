"""γ is a squared distance: the engine's sensitivities against least squares over hundreds of states, and what follows for leaving out."""
import pickle

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError

from histories import KERNELS, KINDS, Walk, differing, snapshot
from isvm import IncrementalSVC
from isvm.geometry import span_errors, squared_span, squared_spans


def distances(K, S):
    "Squared distance of every point from the affine span of the points S other than itself, by least squares on features of K."
    values, vectors = np.linalg.eigh(K)
    phi, out = vectors * np.sqrt(np.maximum(values, 0.0)), []
    for c in range(len(K)):
        others = S[S != c]
        if len(others) == 0:
            out.append(np.inf)
            continue
        flat, target = phi[others[1:]] - phi[others[0]], phi[c] - phi[others[0]]
        if len(flat): target = target - np.linalg.lstsq(flat.T, target, rcond=1e-10)[0] @ flat
        out.append(target @ target)
    return np.array(out)


def assert_identity(model, K):
    "All distances to 1e-10 of the kernel's size; how many margin points there were."
    spans, S = squared_spans(model), model._held.state.margin
    expected = distances(K, S)
    known = np.isfinite(expected)
    np.testing.assert_array_equal(np.isfinite(spans), known)
    np.testing.assert_allclose(spans[known], expected[known], rtol=0, atol=1e-10 * max(np.abs(K).max(initial=0.0), 1e-300))
    assert (spans >= 0).all()
    return len(S)


@pytest.mark.parametrize("kind", KINDS)
def test_sensitivities_are_squared_distances(kind):
    sizes = []
    for seed, kernel in enumerate(k for k in KERNELS for _ in range(3)):
        walk = Walk(kernel, kind, (0.02, 1.0, 100.0)[seed % 3], seed)
        for action, m in (("add", 20), ("update", 6), ("relabel", 4), ("remove", 5), ("all but two", 0)):
            walk.act(action, m)
            sizes.append(assert_identity(walk.model, walk.problem()[0]))
    assert len(sizes) == 105 and 0 in sizes
    if kind not in ("one class", "constant"): assert {1, 2} & set(sizes) and max(sizes) > 3


def test_given_kernels_and_copies():
    walk = Walk("rbf", "plain", 10.0, 3, precomputed=True)
    walk.act("add", 30)
    walk.act("update", 6)
    assert assert_identity(walk.model, walk.problem()[0]) > 3
    copy = pickle.loads(pickle.dumps(walk.model))
    np.testing.assert_allclose(squared_spans(copy), squared_spans(walk.model), atol=1e-12)


def test_one_margin_point():
    X = np.array([[0.0], [1.0], [1.2]])
    model = IncrementalSVC(gamma=1.0).fit(X, [0, 1, 1], sample_weight=[1.0, 0.4, 1.0])
    assert assert_identity(model, np.exp(-((X - X.T) ** 2))) == 1
    assert np.isinf(squared_spans(model)[2]) and span_errors(model)[2]


def test_an_empty_margin_promises_nothing():
    X = np.arange(4.0)[:, None]
    for y, C in (([0, 0, 0, 0], 1.0), ([0, 1, 0, 1], 0.05)):
        model = IncrementalSVC(C=C, gamma=1.0).fit(X, y)
        assert assert_identity(model, np.exp(-((X - X.T) ** 2))) == 0
        assert np.isinf(squared_spans(model)).all() and span_errors(model).all()
    assert squared_spans(model.unlearn(model.ids_)).shape == span_errors(model).shape == (0,)


def test_three_points_span_a_plane_and_twins_lie_on_it():
    X, y = make_moons(60, noise=0.3, random_state=0)
    twice, labels = np.concatenate([X, X]), np.concatenate([y, y])
    for params in (dict(kernel="linear"), dict(kernel="poly", degree=2, gamma=1.0, coef0=1.0), dict(gamma=0.7)):
        model = IncrementalSVC(C=5.0, **params).fit(twice, labels)
        S, spans = model._held.state.margin, squared_spans(model)
        others = np.setdiff1d((S + 60) % 120, S)
        assert len(S) > 2 and (spans[others] < 1e-10).all()
        if params == dict(kernel="linear"): assert (np.delete(spans, S) < 1e-10).all()


def test_a_path_without_events_costs_alpha_times_the_square():
    "Where no set changes, the criterion is no estimate but the answer, in error, on the margin and in reserve."
    X, y = make_moons(100, noise=0.3, random_state=1)
    side, seen = np.where(y == 1, 1.0, -1.0), set()
    for C in (0.3, 3.0, 30.0):
        model = IncrementalSVC(C=C, gamma=0.7).fit(X, y)
        spans, g, alpha, claimed = squared_spans(model), model.margins_, model.alpha_, span_errors(model)
        np.testing.assert_allclose(model.leave_one_out().linear, g - alpha * spans, atol=1e-8)
        for c in range(100):
            copy = pickle.loads(pickle.dumps(model)).unlearn([c])
            left = side[c] * copy.decision_function(X[[c]])[0]
            if copy.n_events_: continue
            np.testing.assert_allclose(left, g[c] + 1 - alpha[c] * spans[c], atol=1e-8)
            if abs(left) > 1e-6: assert claimed[c] == (left < 0)
            seen.add(int(model.status_[c]))
    assert seen == {0, 1, 2}


def test_the_model_is_only_read():
    X, y = make_moons(60, noise=0.3, random_state=0)
    model = IncrementalSVC(C=5.0, gamma=0.7).fit(X, y)
    before, blob = snapshot(model), pickle.dumps(model)
    squared_spans(model), span_errors(model)
    assert differing(before, snapshot(model)) == [] and pickle.dumps(model) == blob
    model.partial_fit(X[:3] + 0.1, y[:3])
    assert model.kkt_residual() <= 1e-9
    assert squared_span(model._held.state, 5) == squared_spans(model)[5]


def test_points_that_have_just_landed_in_reserve():
    "Their columns of the margin rows need not have been computed yet."
    X, y = make_moons(60, noise=0.3, random_state=0)
    model = IncrementalSVC(C=5.0, gamma=0.7).fit(X, y)
    deep = X[model.margins_ > 0.3] + 1e-3
    model.partial_fit(deep, y[model.margins_ > 0.3])
    assert model.n_events_ == 0 and len(deep) > 10
    held = np.concatenate([X, deep])
    assert_identity(model, np.exp(-0.7 * ((held[:, None] - held[None]) ** 2).sum(-1)))


def test_refusals():
    X, y = make_moons(40, noise=0.3, random_state=0)
    with pytest.raises(NotFittedError): squared_spans(IncrementalSVC())
    with pytest.raises(NotFittedError): span_errors(IncrementalSVC())
    model = IncrementalSVC(C=5.0, gamma=0.7).fit(X, y)
    watching = model.steps(remove=model.ids_[:10])
    next(watching)
    with pytest.raises(RuntimeError, match="under way"): squared_spans(model)
    watching.close()
    assert np.isfinite(squared_spans(model)).all()
