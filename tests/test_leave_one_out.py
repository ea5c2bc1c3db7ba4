"""Exact leave-one-out against n trainings by the reference solver; the model is afterwards the same to the last bit.

Kernel values come from the formulas of `histories`, the trainings from `reference_solve`: neither shares code with the follower."""
import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import balanced_accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.svm import SVC

from histories import KERNELS, Walk, assert_exact, certificate, differing, draw, interrupt_at_line, signs, snapshot
from isvm import IncrementalSVC, loo
from isvm.datasets import monks, moons
from isvm.engine import degenerate, events, follow, settle
from isvm.engine.core import Outcome, PathError
from isvm.engine.empty_margin import telling
from isvm.engine.problem import Problem
from isvm.engine.reference import reference_solve
from isvm.model_choice import loo_grid


def factors_of(class_weight, y):
    "What the class of each of these points multiplies C by, by definition."
    if class_weight is None: return np.ones(len(y))
    if class_weight != "balanced": return np.array([class_weight.get(label, 1.0) for label in y.tolist()])
    kinds, at, counts = np.unique(y, return_inverse=True, return_counts=True)
    return len(y) / (len(kinds) * counts[at])


def by_training(K, y, C, weight=None, class_weight=None, points=None):
    "Left-out margins the long way: the reference solver, once for each point; and Σ|K|α at each."
    a, w = np.where(y == np.unique(y)[-1], 1.0, -1.0), np.ones(len(y)) if weight is None else np.asarray(weight, float)
    margins, sums = [], []
    for c in range(len(y)) if points is None else points:
        rest = np.delete(np.arange(len(y)), c)
        u = C * w[rest] * factors_of(class_weight, y[rest])
        alpha, bias = reference_solve(a[rest][:, None] * K[np.ix_(rest, rest)] * a[rest], Problem(np.ones(len(rest)), a[rest], u, 0.0))
        margins.append(a[c] * (K[c, rest] @ (a[rest] * alpha) + bias) - 1.0)
        sums.append(np.abs(K[c, rest]) @ alpha)
    return np.array(margins), np.array(sums)


def bits(model):
    "Every array and number that makes up a model, its factor and its rounding so far included."
    state, held = model._held.state, model._held
    s, factor = state.factor.s, state.factor
    seen = {name: getattr(state, name).copy() for name in ("sample", "alpha", "g", "p", "a", "u", "status", "margin")}
    seen |= {"factor": np.tril(factor.L[:s, :s]), "factor·a": factor.la[:s].copy(), "serial": held.serial.copy(),
             "numbers": np.array([state.r, state.bias, state.drift, factor.shift, held.next, held.unused, held.version])}
    return seen | snapshot(model)


def assert_same_model(before, model, probe=None, f=None):
    "Nothing of the model has changed in any bit."
    assert differing(before, bits(model)) == []
    assert model._held.state.saved is None and not model._held.busy
    if probe is not None: np.testing.assert_array_equal(model.decision_function(probe), f)


def assert_rows_in_order(model):
    "The table of kernel rows: every row belongs to the sample that points at it, and margin rows are pinned."
    state, rows = model._held.state, model._held.state.rows
    assert (rows.place[rows.owner[:rows.held]] == np.arange(rows.held)).all()
    assert (rows.pins[:rows.n] == np.bincount(state.sample[state.margin], minlength=rows.n)).all()
    assert (rows.place[state.sample[state.margin]] < rows.front).all()


def assert_left_out(model, K, y, weight=None):
    "All points left out: margins as by training, and everything that is derived from them; the model is untouched."
    model.leave_one_out([])                                  # makes the factor, where a copy or a file brought none
    before = bits(model)
    result = model.leave_one_out()
    assert_same_model(before, model)
    assert_rows_in_order(model)
    margins, sums = by_training(K, y, model.C, weight, model.class_weight)
    gap = np.abs(result.margins - margins)
    assert (gap <= np.maximum(1e-8, 1e-12 * sums)).all(), f"point {gap.argmax()}: {gap.max():.2e}"
    a = signs(model, y)
    np.testing.assert_array_equal(result.decisions, a * (1.0 + result.margins))
    np.testing.assert_array_equal(result.labels, y)
    np.testing.assert_array_equal(result.ids, model.ids_)
    clear = np.abs(1.0 + margins) > 1e-7                     # not on the boundary itself
    np.testing.assert_array_equal(result.errors[clear], (margins < -1)[clear])
    np.testing.assert_array_equal(result.errors, np.where(result.decisions > 0, 1, -1) != a)
    assert result.error_rate == result.errors.mean() and len(result.paths) == len(y)
    for c, path in enumerate(result.paths):
        assert path[0].tolist() == [model.alpha_[c], model.margins_[c]] and path[-1].tolist() == [0.0, result.margins[c]]
        assert (np.diff(path[:, 0]) <= 0).all()
    quick = model.leave_one_out(errors_only=True)
    assert_same_model(before, model)
    np.testing.assert_array_equal(quick.errors, result.errors)
    known = ~np.isnan(quick.margins)
    np.testing.assert_allclose(quick.margins[known], result.margins[known], rtol=1e-12, atol=1e-10)
    assert result.errors[~known].all() and quick.n_events <= result.n_events
    return result


# ---- equal to n trainings ----------------------------------------------------------------------

RNG = np.random.default_rng(11)
MOONS, SOME = moons(200), RNG.choice(432, 124, replace=False)   # as many as in the paper's training sets
MONKS = tuple(part[SOME] for part in monks(1))
PLAIN = RNG.normal(size=(40, 2))
SIDE = (PLAIN[:, 0] + 0.6 * RNG.normal(size=40) > 0).astype(int)
WEIGHT = RNG.choice([0.0, 0.5, 1.0, 3.0], 40)

SETS = {  # name → points, labels
    "moons": MOONS,
    "monks": MONKS,
    "plain": (PLAIN, SIDE),
    "separable": (PLAIN + 4.0 * SIDE[:, None], SIDE),
    "duplicates": (np.repeat(PLAIN[:12], 3, 0), np.repeat(SIDE[:12], 3)),
    "opposite labels": (np.r_[PLAIN[:15], PLAIN[:15], PLAIN[:5]], np.r_[SIDE[:15], 1 - SIDE[:15], SIDE[:5]]),
    "grid": (np.round(PLAIN), SIDE),
    "all in one place": (np.ones((9, 2)), SIDE[:9]),
    "single member": (PLAIN[:15], np.eye(15, dtype=int)[6]),
    "single member of the first class": (PLAIN[:15], 1 - np.eye(15, dtype=int)[6]),
    "two points": (PLAIN[:2], np.array([1, 0])),
    "three points": (PLAIN[:3], np.array([1, 0, 1])),
    "three points on a line": (np.array([[0.0], [1.0], [2.0]]), np.array([0, 1, 0])),
}


@pytest.mark.parametrize("data, kernel, C", [("moons", "rbf", 1.0), ("moons", "rbf", 30.0), ("moons", "linear", 1.0),
                                             ("monks", "rbf", 1.0), ("monks", "linear", 1.0), ("monks", "poly2", 1.0)])
def test_real_sizes(data, kernel, C):
    (X, y), (params, formula) = SETS[data], KERNELS[kernel]
    result = assert_left_out(IncrementalSVC(C=C, **params).fit(X, y), formula(X, X), y)
    assert 0 < result.error_rate < 0.5 and result.n_events > len(y) / 2


@pytest.mark.parametrize("C", [1e-3, 0.3, 100.0])
@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf", "narrow"])
@pytest.mark.parametrize("data", [name for name in SETS if name not in ("moons", "monks")])
def test_small_and_degenerate_sets(data, kernel, C):
    (X, y), (params, formula) = SETS[data], KERNELS[kernel]
    assert_left_out(IncrementalSVC(C=C, **params).fit(X, y), formula(X, X), y)


@pytest.mark.parametrize("way", [(6.0, 0.0), (-6.0, 1.0), (4.0, 5.0), (-1.0, -7.0)])
@pytest.mark.parametrize("C", [1e-3, 1e-2])
def test_reserve_points_are_not_free_while_the_bias_is_an_interval(C, way):
    "A lone point far from a cloud: it and the nearest of the cloud are at their bounds, all others at 0, and two of those bound the bias."
    X, y = np.r_[PLAIN[:15], [way]], np.append(np.zeros(15, int), 1)
    model = IncrementalSVC(C=C, kernel="linear").fit(X, y)
    assert len(telling(model._held.state)) == 0 and (model.alpha_ == 0).sum() == 14
    result = assert_left_out(model, X @ X.T, y)
    moved = np.abs(result.margins - model.margins_)[model.alpha_ == 0]
    assert (moved > 1e-6).any() and (moved == 0).any()       # ends of the interval, and points within


WEIGHTED = {  # name → class weights, sample weights
    "weights": (None, WEIGHT),
    "dict": ({0: 0.3, 1: 2.5}, None),
    "dict for one class": ({1: 4.0}, None),
    "dict and weights": ({0: 3.0}, WEIGHT),
    "balanced": ("balanced", None),
    "balanced and weights": ("balanced", WEIGHT),
    "one class of weight 0": (None, SIDE.astype(float)),
    "balanced, one class of weight 0": ("balanced", SIDE.astype(float)),
    "one point that counts": (None, np.eye(40)[3]),
    "one point of each class that counts": (None, np.eye(40)[SIDE.argmax()] + np.eye(40)[SIDE.argmin()]),
}


@pytest.mark.parametrize("C", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("how", WEIGHTED)
def test_weights(how, kernel, C):
    (class_weight, weight), (params, formula) = WEIGHTED[how], KERNELS[kernel]
    model = IncrementalSVC(C=C, class_weight=class_weight, **params).fit(PLAIN, SIDE, sample_weight=weight)
    assert_left_out(model, formula(PLAIN, PLAIN), SIDE, weight)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_points_of_weight_0_are_judged_too(class_weight):
    params, formula = KERNELS["rbf"]
    model = IncrementalSVC(C=2.0, class_weight=class_weight, **params).fit(PLAIN, SIDE, sample_weight=WEIGHT)
    result = assert_left_out(model, formula(PLAIN, PLAIN), SIDE, WEIGHT)
    nothing = WEIGHT == 0
    assert nothing.any() and not model.alpha_[nothing].any()
    if class_weight is None: np.testing.assert_array_equal(result.margins[nothing], model.margins_[nothing])


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_given_kernels(C):
    K, own = KERNELS["rbf"][1](PLAIN, PLAIN), KERNELS["callable"]
    given = assert_left_out(IncrementalSVC(C=C, kernel="precomputed").fit(K, SIDE), K, SIDE)
    named = IncrementalSVC(C=C, **KERNELS["rbf"][0]).fit(PLAIN, SIDE).leave_one_out()
    np.testing.assert_allclose(given.margins, named.margins, atol=1e-8)
    assert_left_out(IncrementalSVC(C=C, **own[0]).fit(PLAIN, SIDE), own[1](PLAIN, PLAIN), SIDE)


def test_rows_that_do_not_fit_the_cache():
    X, y = MOONS[0][:80], MOONS[1][:80]
    params, formula = KERNELS["rbf"]
    small = IncrementalSVC(C=3.0, cache_size=0.01, **params).fit(X, y)
    assert len(small._held.state.rows.K) < len(small.support_)
    assert_left_out(small, formula(X, X), y)


@pytest.mark.parametrize("seed", range(60))
def test_any_set(seed):
    "Random kinds of data, kernels, C and weights, after random histories."
    rng = np.random.default_rng(seed)
    kernel, kind = rng.choice(["linear", "poly2", "rbf", "narrow", "wide"]), rng.choice(["plain", "grid", "duplicates", "contradictions", "weighted"])
    walk = Walk(kernel, kind, float(rng.choice([1e-3, 0.3, 5.0, 300.0])), seed, balanced=seed % 3 == 0, precomputed=seed % 5 == 0)
    walk.act("add", int(rng.integers(2, 25)))
    for action in rng.choice(["add", "remove", "update", "relabel", "retune", "reweight"], 4): walk.act(action, int(rng.integers(1, 6)))
    walk.act("add", 3)
    X, y, w = walk.arrays()
    if len(set(y)) < 2: walk.model.relabel([next(iter(walk.data))], [1 - y[0]]); y[0] = 1 - y[0]
    assert_left_out(walk.model, walk.formula(X, X), y, w)


# ---- after every kind of history ---------------------------------------------------------------

def test_after_updates():
    "Nothing of an earlier life shows, and the order of points is that of `ids_`."
    (X, y), (params, formula) = (MOONS[0][:90], MOONS[1][:90]), KERNELS["rbf"]
    model = IncrementalSVC(C=3.0, **params).fit(X[:50], y[:50])
    model.partial_fit(X[50:80], y[50:80]).unlearn(range(5, 25)).update(X[80:], y[80:], remove=[60, 30])
    model.relabel([40, 41], 1 - y[40:42]).retune(8.0)
    y = np.where(np.isin(np.arange(90), [40, 41]), 1 - y, y)
    at = model.ids_
    assert_left_out(model, formula(X[at], X[at]), y[at])
    watching = model.steps(X[5:12], 1 - y[5:12])
    next(watching)
    watching.close()
    assert_left_out(model, formula(X[at], X[at]), y[at])


def test_points_let_go_by_reserve_width_take_no_part():
    "Only the points held are left out, and none of them is let go by that."
    (X, y), (params, formula) = MOONS, KERNELS["rbf"]
    model = IncrementalSVC(C=3.0, reserve_width=0.3, **params).fit(X[:120], y[:120]).partial_fit(X[120:], y[120:])
    at = model.ids_
    assert len(at) < 150
    assert_left_out(model, formula(X[at], X[at]), y[at])


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed"])
def test_after_a_file_and_a_pickle(tmp_path, kernel, class_weight):
    K = KERNELS["linear" if kernel == "linear" else "rbf"][1](PLAIN, PLAIN)
    params = KERNELS[kernel][0] if kernel in KERNELS else dict(kernel=kernel)
    model = IncrementalSVC(C=2.0, class_weight=class_weight, **params)
    model.fit(K if kernel == "precomputed" else PLAIN, SIDE, sample_weight=WEIGHT)
    want = model.leave_one_out()
    model.save(tmp_path / "model.isvm")
    for copy in (IncrementalSVC.load(tmp_path / "model.isvm"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(copy.leave_one_out().margins, want.margins, atol=1e-10)  # the first call on it
        np.testing.assert_array_equal(copy.alpha_, model.alpha_)
        np.testing.assert_array_equal(copy.margins_, model.margins_)
        assert_left_out(copy, K, SIDE, WEIGHT)


@pytest.mark.parametrize("data", ["moons", "grid", "opposite labels", "single member"])
@pytest.mark.parametrize("params", [dict(C=5.0, gamma=0.7), dict(C=1e-3, gamma=0.7), dict(C=5.0, gamma=0.7, class_weight="balanced")], ids=str)
def test_the_model_does_not_notice(data, params):
    "Bit for bit the same, however often it is asked; the next update is exact."
    X, y = (part[:60] for part in SETS[data])
    model, K = IncrementalSVC(**params).fit(X, y), KERNELS["rbf"][1](X, X)
    before, f, events_ = bits(model), model.decision_function(X), model.n_events_
    first = model.leave_one_out()
    assert_same_model(before, model, X, f)
    for _ in range(3):
        model.leave_one_out(errors_only=True)
        again = model.leave_one_out(model.ids_[::-1])
        assert_same_model(before, model, X, f)
        np.testing.assert_allclose(again.margins[::-1], first.margins, atol=1e-10)
    assert model.n_events_ == events_
    weight = lambda rows: factors_of(model.class_weight, y[rows])[np.searchsorted(rows, np.arange(len(y)).clip(0, rows[-1]))]
    model.unlearn([0, 3]).retune(2.0)
    rows = model.ids_.astype(int)
    assert_exact(model, K, y, weight(rows))
    model.partial_fit(X[[0, 3]], y[[0, 3]], ids=[0, 3])
    a = signs(model, y[model.ids_.astype(int)])
    order = model.ids_.astype(int)
    worst, allowed = certificate(model.alpha_, model.intercept_[0], K[np.ix_(order, order)], a, 2.0 * factors_of(model.class_weight, y[order]))
    assert worst <= allowed


# ---- interrupted -------------------------------------------------------------------------------

class Stop(Exception): "An error from outside."


VERBS = [(follow, "step_on"), (follow, "respond"), (follow, "advance"), (follow, "release"), (follow, "join"), (follow, "finish"),
         (follow, "fill_margin"), (settle, "violation"), (events, "put"), (loo, "left_out"), (loo, "place_bias"), (loo.Bookmark, "back"),
         (loo, "free_to_go"), (loo, "snapshot")]
MODELS = {
    "plain": lambda: IncrementalSVC(C=10.0, gamma=0.7).fit(PLAIN, SIDE),
    "tiny C": lambda: IncrementalSVC(C=1e-3, kernel="linear").fit(PLAIN, SIDE),
    "balanced": lambda: IncrementalSVC(C=10.0, gamma=0.7, class_weight="balanced").fit(PLAIN, SIDE),
    "unpickled": lambda: pickle.loads(pickle.dumps(MODELS["plain"]())),
    "few rows": lambda: pickle.loads(pickle.dumps(IncrementalSVC(C=1.0, gamma=0.7, cache_size=0.02).fit(PLAIN, SIDE))),
}
LINEAR = {"tiny C": "linear"}


def assert_works(model, name):
    "Asked again the model gives the right answer, and its next update is exact."
    K = KERNELS[LINEAR.get(name, "rbf")][1](PLAIN, PLAIN)
    want, _ = by_training(K, SIDE, model.C, None, model.class_weight, points=range(0, 40, 13))
    np.testing.assert_allclose(model.leave_one_out().margins[::13], want, atol=1e-8)
    assert_rows_in_order(model)
    model.retune(2.0).unlearn([1, 2, 5])
    assert model.kkt_residual() <= 1e-9


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop])
@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[1])
def test_stopped_inside_the_loop(monkeypatch, verb, error):
    owner, attribute = verb
    real, left, after = getattr(owner, attribute), 0, False

    def failing(*args, **options):
        nonlocal left
        left -= 1
        if left >= 0: return real(*args, **options)
        if after: real(*args, **options)
        raise error
    stopped = 0
    for name in ("plain", "tiny C", "balanced"):
        model = MODELS[name]()
        before, f = snapshot(model), model.decision_function(PLAIN)
        drift, margin = model._held.state.drift, model._held.state.margin.copy()
        for allowed in (0, 1, 4, 17, 40):
            for after in (False, True):
                left = allowed
                monkeypatch.setattr(owner, attribute, failing)
                try: model.leave_one_out()
                except error: stopped += 1
                monkeypatch.setattr(owner, attribute, real)
                assert differing(before, snapshot(model)) == [], (name, allowed, after)
                np.testing.assert_array_equal(model.decision_function(PLAIN), f)
                np.testing.assert_array_equal(model._held.state.margin, margin)
                assert model._held.state.drift == drift
        assert_works(model, name)
    assert stopped > 0


@pytest.mark.parametrize("name", MODELS)
def test_ctrl_c_at_any_line(name):
    model = MODELS[name]()
    before = snapshot(model)
    total, _ = interrupt_at_line(-1, model.leave_one_out)
    rng = np.random.default_rng(0)
    for k in sorted({*range(1, 40), *range(40, min(1500, total), 12), *rng.integers(1, total, 40).tolist(), *range(total - 20, total + 1)}):
        model = MODELS[name]()
        _, stopped = interrupt_at_line(k, model.leave_one_out)
        assert stopped, "Ctrl-C was lost"
        assert differing(before, snapshot(model)) == [], f"line {k} of {total}"
        if model._held.state.ready: assert_rows_in_order(model)
        if k % 5 == 0: assert_works(model, name)


def test_ctrl_c_while_rows_are_fetched():
    "Half a table of kernel rows must not be mistaken for a whole one; with a small table that once spoilt the next update."
    X, y = (np.roll(part[:60][::-1], -1, 0) for part in MOONS)
    blob = pickle.dumps(IncrementalSVC(C=1.0, gamma=1.0, cache_size=0.02).fit(X, y))
    for k in range(380, 560):
        model = pickle.loads(blob)
        interrupt_at_line(k, model.leave_one_out)
        if model._held.state.ready: assert_rows_in_order(model)
        if k % 4 == 0: assert model.retune(3.0).kkt_residual() <= 1e-9, k


@pytest.mark.parametrize("c", [0, 7, 39])
def test_a_path_that_fails_leaves_the_model(monkeypatch, c):
    model = MODELS["plain"]()
    before, real = snapshot(model), loo.left_out

    def failing(state, k, *args):
        if k == model.support_[min(c, len(model.support_) - 1)]: raise PathError(Outcome.STALLED, "here")
        return real(state, k, *args)
    monkeypatch.setattr(loo, "left_out", failing)
    with pytest.raises(PathError, match="here"): model.leave_one_out()
    monkeypatch.setattr(loo, "left_out", real)
    assert differing(before, snapshot(model)) == []
    assert_works(model, "plain")


# ---- errors only -------------------------------------------------------------------------------

def errors_agree(model):
    full, quick = model.leave_one_out(), model.leave_one_out(errors_only=True)
    np.testing.assert_array_equal(quick.errors, full.errors)
    return full, quick


def test_errors_only_does_not_stop_while_other_bounds_move():
    "Three points, balanced: the second is wrong when held and right when left out, as all weights change with it."
    X, y, w = np.array([[1.0], [2.0], [2.0]]), np.array([0, 1, 1]), np.array([2.0, 1.0, 2.0])
    model = IncrementalSVC(C=0.1, kernel="linear", class_weight="balanced").fit(X, y, sample_weight=w)
    full, quick = errors_agree(model)
    assert model.margins_[1] < -1.5 and full.decisions[1] > 0.05 and not quick.errors[1]
    assert not np.isnan(quick.margins).any()
    assert_left_out(model, X @ X.T, y, w)


def test_errors_only_on_the_boundary_itself():
    "Four points: left out, the second lies on the boundary, and rounding says on which side; both ways must say the same."
    X, y = np.array([[3.0, 1.0], [3.0, 0.0], [0.0, 3.0], [0.0, 1.0]]), np.array([0, 0, 0, 1])
    full, _ = errors_agree(IncrementalSVC(C=3.0, kernel="linear").fit(X, y))
    assert abs(full.decisions[1]) < 1e-12


@pytest.mark.parametrize("kind", ["grid", "duplicates", "contradictions", "weighted", "plain"])
def test_errors_only_says_the_same(kind):
    rng = np.random.default_rng(1)
    for trial in range(60):
        X, y, w = draw(kind, int(rng.choice([3, 6, 12, 25])), rng)
        if len(set(y)) < 2 or not w.any(): continue
        params = KERNELS[rng.choice(["linear", "poly2", "rbf", "wide"])][0]
        class_weight = [None, "balanced", {0: 0.2}][trial % 3]
        errors_agree(IncrementalSVC(C=float(rng.choice([1e-3, 0.1, 1.0, 100.0])), class_weight=class_weight, **params).fit(X, y, sample_weight=w))


def test_errors_only_where_the_bias_is_an_interval():
    "Wrong on the way is wrong at the end, whichever optimal bias is taken: of two optima the heavier one at c has the smaller loss at c."
    rng, intervals = np.random.default_rng(2), 0
    for trial in range(200):
        X, y, _ = draw("plain", int(rng.choice([3, 4, 6, 9])), rng)
        if len(set(y)) < 2: continue
        model = IncrementalSVC(C=float(rng.choice([0.01, 0.05, 0.2])), gamma=0.7).fit(X, y)
        intervals += len(telling(model._held.state)) == 0
        full, _ = errors_agree(model)
        held_wrong = model.margins_ < -1 - 1e-9
        assert (full.margins[held_wrong] <= model.margins_[held_wrong] + 1e-9).all()
    assert intervals > 25


def test_errors_only_does_not_believe_a_perturbed_path(monkeypatch):
    "With every pause taken for a stall and perturbations a million times too large."
    X, y = MONKS[0][:60], MONKS[1][:60]
    models = [IncrementalSVC(C=C, **KERNELS[kernel][0]).fit(X, y) for kernel in ("linear", "poly2") for C in (0.1, 1.0, 10.0)]
    perturbed, real = 0, follow.perturb

    def perturb(*args):
        nonlocal perturbed
        perturbed += 1
        real(*args)
    monkeypatch.setattr(follow, "PATIENCE", 1)
    monkeypatch.setattr(degenerate, "PERTURBATION", 0.3)
    monkeypatch.setattr(follow, "perturb", perturb)
    for model in models: errors_agree(model)
    assert perturbed > 0


# ---- the first segment -------------------------------------------------------------------------

@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf", "narrow"])
def test_linear_response_of_margin_points_is_one_division(kernel):
    "−α_c over the diagonal of ℛ, the inverse of the bordered matrix, wherever the first step has a length."
    checked = 0
    for seed in range(30):
        X, y, _ = draw("plain" if seed % 2 else "separable", [6, 30][seed % 3 > 0], np.random.default_rng(seed))
        (params, formula), a = KERNELS[kernel], np.where(y == 1, 1.0, -1.0)
        if len(set(y)) < 2: continue
        model = IncrementalSVC(C=[0.3, 3.0, 30.0][seed // 3 % 3], **params).fit(X, y)
        S, Q = model._held.state.margin, a[:, None] * formula(X, X) * a
        if len(S) < 2: continue
        bordered = np.block([[np.zeros((1, 1)), a[S][None]], [a[S][:, None], Q[np.ix_(S, S)]]])
        if np.linalg.cond(bordered) > 1e8: continue
        result, diagonal = model.leave_one_out(), np.diag(np.linalg.inv(bordered))[1:]
        for c, R_cc in zip(S, diagonal):
            if result.paths[c][1, 0] > (1 - 1e-6) * model.alpha_[c]: continue
            np.testing.assert_allclose(result.linear[c], -model.alpha_[c] / R_cc, rtol=1e-6)
            checked += 1
    assert checked > 20


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_linear_response_of_the_others(kernel):
    "g − γα with γ by (CP 10–12) for error points; for points at 0 the margin they have."
    X, y = (part[:60] for part in MOONS)
    (params, formula), a = KERNELS[kernel], np.where(y == 1, 1.0, -1.0)
    model = IncrementalSVC(C=2.0, **params).fit(X, y)
    S, Q = model._held.state.margin, a[:, None] * formula(X, X) * a
    bordered = np.block([[np.zeros((1, 1)), a[S][None]], [a[S][:, None], Q[np.ix_(S, S)]]])
    result = model.leave_one_out()
    for c in np.flatnonzero(model.status_ == 2):
        border = np.append(a[c], Q[S, c])
        gamma = Q[c, c] - border @ np.linalg.solve(bordered, border)
        np.testing.assert_allclose(result.linear[c], model.margins_[c] - gamma * model.alpha_[c], rtol=1e-6)
    at_zero = model.alpha_ == 0
    np.testing.assert_array_equal(result.linear[at_zero], model.margins_[at_zero])


def test_linear_response_is_not_read_off_rounding():
    "Where another point stands in the way at once, the first step is as short as rounding and has no slope; the next one has."
    begun = np.array([[1.0, 0.0], [1.0, 0.0], [1.0 - 2e-16, -3e-16], [0.5, -0.4], [0.0, -0.5]])
    assert loo.first_segment(begun) == pytest.approx(-0.8, abs=1e-12)
    assert loo.first_segment(begun[[0, 3]]) == pytest.approx(-0.8, abs=1e-12)
    assert loo.first_segment(np.array([[0.0, 0.3]])) == 0.3
    assert np.isnan(loo.first_segment(begun[:1])) and np.isnan(loo.first_segment(begun[:3]))


def test_linear_response_of_paths_that_never_began_is_unknown():
    model = IncrementalSVC(C=2.0, gamma=0.7).fit(*(part[:60] for part in MOONS))
    quick = model.leave_one_out(errors_only=True)
    untold = np.array([len(path) == 1 for path in quick.paths]) & (model.alpha_ > 0)
    assert untold.any() and np.isnan(quick.linear[untold]).all() and not np.isnan(quick.linear[~untold]).any()


# ---- some of the points ------------------------------------------------------------------------

def test_some_points_in_the_order_asked_for():
    names = [f"customer {i}" for i in range(40)]
    model = IncrementalSVC(C=3.0, gamma=0.7).fit(PLAIN, np.where(SIDE == 1, "yes", "no"), ids=names)
    full = model.leave_one_out()
    assert full.ids.tolist() == names and set(full.labels) == {"yes", "no"}
    order = np.random.default_rng(0).permutation(40)[:17]
    before = bits(model)
    some = model.leave_one_out([names[i] for i in order])
    assert_same_model(before, model)
    assert some.ids.tolist() == [names[i] for i in order]
    np.testing.assert_array_equal(some.labels, full.labels[order])
    np.testing.assert_allclose(some.margins, full.margins[order], atol=1e-10)
    np.testing.assert_array_equal(some.errors, full.errors[order])
    assert some.error_rate == full.errors[order].mean() and len(some.paths) == 17
    one = model.leave_one_out("customer 5")
    assert one.ids.tolist() == ["customer 5"] and one.margins.shape == (1,)
    np.testing.assert_allclose(one.margins[0], full.margins[5], atol=1e-10)


def test_ids_of_any_kind():
    ids = [(i, "a") if i % 2 else i for i in range(40)]
    model = IncrementalSVC(C=3.0, gamma=0.7).fit(PLAIN, SIDE, ids=ids)
    full = model.leave_one_out()
    for given in ([(3, "a"), 2], ((3, "a"), 2), iter([(3, "a"), 2]), np.array([(3, "a"), 2, None], object)[:2]):
        np.testing.assert_allclose(model.leave_one_out(given).margins, full.margins[[3, 2]], atol=1e-10)
    np.testing.assert_allclose(model.leave_one_out((3, "a")).margins, full.margins[[3]], atol=1e-10)
    np.testing.assert_allclose(model.leave_one_out(np.int64(4)).margins, full.margins[[4]], atol=1e-10)


def test_no_points():
    model = MODELS["plain"]()
    before = bits(model)
    nothing = model.leave_one_out([])
    assert nothing.margins.shape == nothing.decisions.shape == nothing.linear.shape == nothing.errors.shape == (0,)
    assert nothing.n_events == 0 and nothing.paths == [] and len(nothing.ids) == len(nothing.labels) == 0
    assert_same_model(before, model)


# ---- bad input ---------------------------------------------------------------------------------

BAD_IDS = {  # what is wrong → ids, error, a word its message must hold
    "unknown": ([0, 99], KeyError, "99"),
    "unknown text": ("nobody", KeyError, "nobody"),
    "twice": ([3, 4, 3], ValueError, "twice"),
    "a mask": (SIDE == 1, ValueError, "mask"),
    "unhashable": ([[0]], ValueError, "hash"),
    "NaN": ([np.nan], ValueError, "NaN"),
}


@pytest.mark.parametrize("what", BAD_IDS)
def test_bad_ids(what):
    ids, error, word = BAD_IDS[what]
    model = MODELS["plain"]()
    before = bits(model)
    with pytest.raises(error, match=word) as caught: model.leave_one_out(ids)
    assert len(str(caught.value)) > 20
    assert_same_model(before, model)
    assert_works(model, "plain")


def emptied(): return MODELS["plain"]().unlearn(range(40))


TOO_FEW = {
    "empty": emptied,
    "one point": lambda: IncrementalSVC(gamma=0.7).fit(PLAIN[:1], SIDE[:1]),
    "one class": lambda: IncrementalSVC(gamma=0.7).fit(PLAIN[:5], [1] * 5),
    "one class, the other announced": lambda: IncrementalSVC(gamma=0.7).partial_fit(PLAIN[:5], [1] * 5, classes=[0, 1]),
    "one class left": lambda: MODELS["plain"]().unlearn(np.flatnonzero(SIDE == 1)),
}


@pytest.mark.parametrize("errors_only", [False, True])
@pytest.mark.parametrize("what", TOO_FEW)
def test_models_with_nothing_to_leave_out(what, errors_only):
    model = TOO_FEW[what]()
    before = snapshot(model)
    with pytest.raises(ValueError, match="two classes") as caught: model.leave_one_out(errors_only=errors_only)
    assert str(len(model.ids_)) in str(caught.value)
    assert differing(before, snapshot(model)) == []
    model.partial_fit(PLAIN[[0, 1]] + 9.0, [0, 1], ids=["a", "b"])
    assert model.kkt_residual() <= 1e-9 and len(model.leave_one_out().margins) == len(model.ids_)


def test_not_fitted():
    with pytest.raises(NotFittedError): IncrementalSVC().leave_one_out()


def test_refused_while_steps_are_open():
    model = MODELS["plain"]()
    before, watching = snapshot(model), model.steps(PLAIN[:6] + 0.1, 1 - SIDE[:6])
    next(watching)
    with pytest.raises(RuntimeError, match="under way"): model.leave_one_out()
    next(watching)
    watching.close()
    assert differing(before, snapshot(model)) == []
    assert_works(model, "plain")
    model = MODELS["plain"]()
    watching = model.steps(PLAIN[:6] + 0.1, 1 - SIDE[:6])
    model.leave_one_out()                    # not begun: asking changes nothing, so the update may still begin
    for _ in watching: pass
    assert len(model.ids_) == 46 and model.kkt_residual() <= 1e-9


@pytest.mark.parametrize("learned, later", [("balanced", dict(C=5.0)), ("balanced", dict(class_weight=None)), (None, dict(class_weight="balanced"))])
def test_parameters_set_but_not_yet_learned_do_not_count(learned, later):
    "As for `decision_function`: the model is the one that was learned, until the next update."
    model = IncrementalSVC(C=1.0, gamma=0.7, class_weight=learned).fit(PLAIN, SIDE, sample_weight=WEIGHT)
    want = model.leave_one_out().margins
    model.set_params(**later)
    np.testing.assert_allclose(model.leave_one_out().margins, want, atol=1e-8)


def test_C_set_but_not_yet_learned_does_not_count():
    model = MODELS["plain"]()
    want = model.leave_one_out().margins
    model.set_params(C=0.5)
    np.testing.assert_allclose(model.leave_one_out().margins, want, atol=1e-10)


# ---- with scikit-learn -------------------------------------------------------------------------

def test_decisions_are_those_of_scikit_learns_leave_one_out():
    X, y = (part[:80] for part in MOONS)
    result = IncrementalSVC(C=3.0, gamma=0.7).fit(X, y).leave_one_out()
    theirs = cross_val_predict(SVC(C=3.0, gamma=0.7, tol=1e-9), X, y, cv=LeaveOneOut(), method="decision_function")
    np.testing.assert_allclose(result.decisions, theirs, atol=1e-5)
    assert roc_auc_score(result.labels, result.decisions) == pytest.approx(roc_auc_score(y, theirs), abs=1e-12)
    predicted = np.where(result.decisions > 0, 1.0, 0.0)
    assert balanced_accuracy_score(result.labels, predicted) == balanced_accuracy_score(y, theirs > 0)
    assert result.error_rate == pytest.approx((predicted != y).mean())
    assert np.isfinite(log_loss(result.labels, 1 / (1 + np.exp(-result.decisions))))


@pytest.mark.parametrize("labels", [("no", "yes"), (-1, 1), (True, False)])
def test_labels_of_any_kind(labels):
    y = np.array(labels)[SIDE]
    model = IncrementalSVC(C=3.0, gamma=0.7).fit(PLAIN, y)
    result = model.leave_one_out()
    np.testing.assert_array_equal(result.labels, y)
    np.testing.assert_array_equal(result.errors, np.array(model.classes_)[(result.decisions > 0).astype(int)] != y)
    assert roc_auc_score(result.labels == model.classes_[1], result.decisions) > 0.5


def test_a_progress_bar_for_those_who_ask(capsys):
    quiet, loud = (IncrementalSVC(C=3.0, gamma=0.7, verbose=verbose).fit(PLAIN, SIDE) for verbose in (False, True))
    capsys.readouterr()
    want = quiet.leave_one_out()
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(loud.leave_one_out().margins, want.margins)
    assert "40/40" in capsys.readouterr().err


# ---- a grid ------------------------------------------------------------------------------------

@pytest.mark.parametrize("params", [{}, dict(class_weight="balanced"), dict(class_weight={1: 3.0})], ids=str)
def test_a_grid_in_any_order(params):
    "Every cell as by training without each point; C may go up and down, and come twice."
    Cs, gammas = [3.0, 0.1, 30.0, 3.0], (0.2, 2.0)
    rates = loo_grid(PLAIN, SIDE, Cs, gammas, **params)
    assert rates.shape == (2, 4)
    for i, gamma in enumerate(gammas):
        K = np.exp(-gamma * ((PLAIN[:, None] - PLAIN[None]) ** 2).sum(-1))
        for j, C in enumerate(Cs):
            margins, _ = by_training(K, SIDE, C, None, params.get("class_weight"))
            assert np.abs(1 + margins).min() > 1e-7 and rates[i, j] == (margins < -1).mean()


def test_a_grid_that_cannot_be():
    with pytest.raises(ValueError, match="two classes"): loo_grid(PLAIN, np.ones(40), [1.0], [1.0])
    with pytest.raises(ValueError, match="C = "): loo_grid(PLAIN, SIDE, [1.0, -1.0], [1.0])
    with pytest.raises(ValueError, match="gamma"): loo_grid(PLAIN, SIDE, [1.0], [0.0])
    assert loo_grid(PLAIN, SIDE, [1.0], []).shape == (0, 1)
