"""Every kind of degenerate data, learned in every batching and unlearned again, exact after every call."""
import numpy as np
import pytest
from sklearn.svm import SVC

from histories import KERNELS, SCALES, assert_exact, assert_few_events, monks, scaled
from isvm import IncrementalSVC

RNG = np.random.default_rng(3)
PLAIN = RNG.normal(size=(40, 2))
SIDE = (PLAIN[:, 0] + 0.5 * RNG.normal(size=40) > 0).astype(int)
WIDE = RNG.normal(size=(70, 50))

DATA = {  # name → points and labels
    "plain": (PLAIN, SIDE),
    "duplicates": (np.repeat(PLAIN[:14], 3, 0), np.repeat(SIDE[:14], 3)),
    "opposite labels": (np.r_[PLAIN[:20], PLAIN[:20]], np.r_[SIDE[:20], 1 - SIDE[:20]]),
    "ties on a grid": (np.round(PLAIN), SIDE),
    "one class first": (PLAIN[np.argsort(SIDE, kind="stable")], np.sort(SIDE)),
    "the other class first": (PLAIN[np.argsort(-SIDE, kind="stable")], np.sort(SIDE)[::-1]),
    "constant features": (np.ones((16, 2)), SIDE[:16]),
    "one constant feature": (np.c_[PLAIN[:24, 0], np.ones(24)], SIDE[:24]),
    "one repeated point": (np.ones((12, 2)), np.ones(12, int)),
    "all at the origin": (np.zeros((12, 2)), SIDE[:12]),
    "one point": (PLAIN[:1], np.array([1])),
    "two points": (PLAIN[:2], np.array([1, 0])),
    "three points": (PLAIN[:3], np.array([1, 0, 1])),
}
MODES = ("one by one", "blocks of 7", "all at once", "fit")


def live_through(model, X, y, K, mode, rng):
    "Learn all points in a way, unlearn them down to two in random order; certify every call."
    n, size = len(X), {"one by one": 1, "blocks of 7": 7}.get(mode, len(X))

    def certify(ids, took_part):
        assert model.ids_.tolist() == ids, "a point was dropped"
        assert_few_events(model, took_part)
        assert_exact(model, K, y)

    if mode == "fit": model.fit(X, y); certify(list(range(n)), n)
    starts = [0, *range(2, n, size)] if mode == "all at once" else range(0, 0 if mode == "fit" else n, size)
    for i in starts:
        end = min(n, 2 if mode == "all at once" and i == 0 else i + size)
        model.partial_fit(X[i:end], y[i:end])
        certify(list(range(end)), end)
    size = 1 if mode == "fit" else size
    while len(model.ids_) > 2:
        held = model.ids_.tolist()
        gone = rng.choice(held, min(size, len(held) - 2), replace=False).tolist()
        model.unlearn(gone)
        certify([i for i in held if i not in gone], len(held))


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0, 1e5])
@pytest.mark.parametrize("kernel", ["linear", "poly2", "poly3", "rbf"])
@pytest.mark.parametrize("data", DATA)
def test_small_sets_in_every_batching(data, kernel, C):
    (X, y), (params, formula) = DATA[data], KERNELS[kernel]
    for mode in MODES:
        live_through(IncrementalSVC(C=C, **params), X, y, formula(X, X), mode, np.random.default_rng(0))


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0, 1e5])
def test_linear_kernel_in_50_dimensions(C):
    y = (WIDE[:, 0] > 0).astype(int)
    params, formula = KERNELS["linear"]
    for mode in MODES:
        live_through(IncrementalSVC(C=C, **params), WIDE, y, formula(WIDE, WIDE), mode, np.random.default_rng(1))


@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf"])
@pytest.mark.parametrize("scale", SCALES.values())
@pytest.mark.parametrize("data", ["plain", "duplicates", "ties on a grid"])
def test_data_scaled_by_a_million(data, scale, kernel, C):
    X, y = DATA[data]
    params, formula = scaled(kernel, scale)
    for mode in MODES:
        live_through(IncrementalSVC(C=C, **params), X * scale, y, formula(X * scale, X * scale), mode, np.random.default_rng(2))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf"])
@pytest.mark.parametrize("problem", [1, 2, 3])
def test_monks_on_their_full_grid(problem, kernel, C, mode):
    X, y = monks(problem)
    params, formula = KERNELS[kernel]
    live_through(IncrementalSVC(C=C, **params), X, y, formula(X, X), mode, np.random.default_rng(problem))


@pytest.mark.parametrize("data", ["plain", "opposite labels", "ties on a grid", "monks"])
@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf"])
def test_a_whole_class_removed_in_one_path(kernel, data):
    X, y = monks(1) if data == "monks" else DATA[data]
    params, formula = KERNELS[kernel]
    for label in (0, 1):
        model = IncrementalSVC(C=10.0, **params).fit(X, y)
        held = np.flatnonzero(y != label)
        model.unlearn(np.flatnonzero(y == label))
        assert model.ids_.tolist() == held.tolist()
        assert_exact(model, formula(X, X), y)
        assert_few_events(model, len(X))
        assert (model.predict(X) == 1 - label).all()
        model.partial_fit(X[y == label], y[y == label], ids=np.flatnonzero(y == label))
        assert_exact(model, formula(X, X), y)


@pytest.mark.parametrize("kernel", ["linear", "poly2"])
def test_more_free_vectors_from_libsvm_than_the_kernel_has_rank(kernel):
    X, y = monks(1)
    params, formula = KERNELS[kernel]
    K = formula(X, X)
    alpha = np.abs(SVC(C=100.0, kernel="precomputed").fit(K, y).dual_coef_[0])
    rank = np.linalg.matrix_rank(K)
    assert ((alpha > 0) & (alpha < 100.0)).sum() > rank + 1
    model = IncrementalSVC(C=100.0, **params).fit(X, y)
    assert_exact(model, K, y)
    assert_few_events(model, len(X))
    assert (model.status_ == 1).sum() <= rank + 1
