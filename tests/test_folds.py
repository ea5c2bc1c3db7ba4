"""Exact k-fold against one training a fold by the reference solver; the model is afterwards the same to the last bit.

Kernel values come from the formulas of `histories`, the trainings from `reference_solve`: neither shares code with the follower."""
import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import fbeta_score, get_scorer, make_scorer, roc_auc_score
from sklearn.model_selection import (
    GroupKFold, KFold, LeaveOneOut, RepeatedStratifiedKFold, ShuffleSplit, StratifiedKFold, TimeSeriesSplit, cross_val_predict, cross_val_score)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from histories import KERNELS, SCALES, Walk, differing, draw, interrupt_at_line, scaled, signs, snapshot
from isvm import IncrementalSVC, folds
from isvm.datasets import monks, moons
from isvm.engine import events, follow, settle
from isvm.engine.core import Outcome, PathError
from isvm.engine.empty_margin import telling
from isvm.engine.problem import Problem
from isvm.engine.reference import reference_solve
from isvm.folds import k_fold
from test_leave_one_out import MODELS, PLAIN, SETS, SIDE, WEIGHT, WEIGHTED, Stop, assert_rows_in_order, assert_same_model, bits, factors_of


def by_training(K, y, a, C, pairs, weight=None, class_weight=None):
    "Decision values of each fold the long way, by the reference solver on the rest; and Σ|K|α at each."
    w, out = np.ones(len(y)) if weight is None else np.asarray(weight, float), []
    for train, test in pairs:
        u = C * w[train] * factors_of(class_weight, y[train])
        Q = a[train][:, None] * K[np.ix_(train, train)] * a[train]
        alpha, bias = reference_solve(Q, Problem(np.ones(len(train)), a[train], u, 0.0))
        out.append((K[np.ix_(test, train)] @ (a[train] * alpha) + bias, np.abs(K[np.ix_(test, train)]) @ alpha))
    return out


def random_folds(n, k, seed=0):
    "A partition into k folds, whatever the labels; shuffled, so that paths differ."
    return list(KFold(k, shuffle=True, random_state=seed).split(np.zeros((n, 1))))


def assert_folds(model, K, y, pairs, weight=None):
    "Every fold as by training on the rest, and everything that is derived from it; the model is untouched."
    model.leave_one_out([])                                  # makes the factor, where a copy or a file brought none
    before, residual = bits(model), model.kkt_residual()
    result = k_fold(model, pairs)
    assert_same_model(before, model)
    assert_rows_in_order(model)
    assert model.kkt_residual() == residual
    for (_, test), f, (want, sums) in zip(pairs, result.test_decisions, by_training(K, y, signs(model, y), model.C, pairs, weight, model.class_weight)):
        gap = np.abs(f - want)
        assert (gap <= np.maximum(1e-8, 1e-12 * sums)).all(), f"{gap.max():.2e} where Σ|K|α is {sums.max():.2e}"
    for ids, (_, test) in zip(result.test_ids, pairs): np.testing.assert_array_equal(ids, model.ids_[test])
    right = [(model.classes_[(f > 0).astype(int)] == y[test]).mean() for f, (_, test) in zip(result.test_decisions, pairs)]
    np.testing.assert_allclose(result.scores, right, rtol=1e-15)
    return result


# ---- equal to one training a fold --------------------------------------------------------------

@pytest.mark.parametrize("data, kernel, C", [("moons", "rbf", 1.0), ("moons", "rbf", 30.0), ("moons", "linear", 1.0),
                                             ("monks", "rbf", 1.0), ("monks", "linear", 1.0), ("monks", "poly2", 1.0)])
def test_real_sizes(data, kernel, C):
    (X, y), (params, formula) = SETS[data], KERNELS[kernel]
    model = IncrementalSVC(C=C, **params).fit(X, y)
    for k in (2, 7, 20):
        result = assert_folds(model, formula(X, X), y, random_folds(len(y), k))
        assert 0.4 < result.scores.mean() < 1 and result.n_events > k / 2
        np.testing.assert_array_equal(result.predictions, np.where(result.decisions > 0, 1.0, 0.0))


@pytest.mark.parametrize("C", [1e-3, 0.3, 100.0])
@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf", "narrow"])
@pytest.mark.parametrize("data", [name for name in SETS if name not in ("moons", "monks")])
def test_small_and_degenerate_sets(data, kernel, C):
    (X, y), (params, formula) = SETS[data], KERNELS[kernel]
    model = IncrementalSVC(C=C, **params).fit(X, y)
    for k in {2, min(4, len(y)), len(y)}: assert_folds(model, formula(X, X), y, random_folds(len(y), k))


@pytest.mark.parametrize("kind", ["plain", "grid", "duplicates", "contradictions", "separable", "constant", "tiny", "huge", "weighted"])
@pytest.mark.parametrize("kernel", ["linear", "poly3", "rbf", "wide", "callable"])
def test_every_kind_of_data(kind, kernel):
    rng = np.random.default_rng(3)
    params, formula = scaled(kernel, SCALES.get(kind, 1.0))
    for C in (0.05, 2.0) if kind != "huge" or "gamma" in params else (0.05,):
        X, y, w = draw(kind, 30, rng)
        y[:2] = 0, 1
        if not w.any(): w[0] = 1.0
        model = IncrementalSVC(C=C, **params).fit(X, y, sample_weight=w)
        assert_folds(model, formula(X, X), y, random_folds(30, 5), w)


def test_monks_in_batches_of_fifty():
    "Ties everywhere, and folds of 43 and of 216 points; bounded events."
    X, y = monks(1)
    for params in (dict(kernel="rbf", gamma=0.1), dict(kernel="poly", degree=2, gamma=1.0, coef0=1.0)):
        model = IncrementalSVC(C=10.0, **params).fit(X, y)
        for k in (10, 2):
            pairs = random_folds(432, k)
            result = k_fold(model, pairs)
            assert result.n_events <= k * (20 * 432 + 200)
            for (train, test), f in zip(pairs, result.test_decisions):
                fresh = IncrementalSVC(C=10.0, **params).fit(X[train], y[train])
                np.testing.assert_allclose(f, fresh.decision_function(X[test]), atol=1e-8)


@pytest.mark.parametrize("C", [0.01, 1.0, 50.0])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("how", WEIGHTED)
def test_weights(how, kernel, C):
    (class_weight, weight), (params, formula) = WEIGHTED[how], KERNELS[kernel]
    model = IncrementalSVC(C=C, class_weight=class_weight, **params).fit(PLAIN, SIDE, sample_weight=weight)
    for k in (3, 8): assert_folds(model, formula(PLAIN, PLAIN), SIDE, random_folds(40, k), weight)


@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_given_kernels(C, class_weight):
    K, own = KERNELS["rbf"][1](PLAIN, PLAIN), KERNELS["callable"]
    pairs = random_folds(40, 6)
    given = assert_folds(IncrementalSVC(C=C, kernel="precomputed", class_weight=class_weight).fit(K, SIDE), K, SIDE, pairs)
    named = k_fold(IncrementalSVC(C=C, class_weight=class_weight, **KERNELS["rbf"][0]).fit(PLAIN, SIDE), pairs)
    np.testing.assert_allclose(given.decisions, named.decisions, atol=1e-8)
    assert_folds(IncrementalSVC(C=C, class_weight=class_weight, **own[0]).fit(PLAIN, SIDE), own[1](PLAIN, PLAIN), SIDE, pairs)


@pytest.mark.parametrize("seed", range(30))
def test_any_set(seed):
    "Random kinds of data, kernels, C and weights, after random histories; training sets of any size."
    rng = np.random.default_rng(seed)
    kernel, kind = rng.choice(["linear", "poly2", "rbf", "narrow", "wide"]), rng.choice(["plain", "grid", "duplicates", "contradictions", "weighted"])
    walk = Walk(kernel, kind, float(rng.choice([1e-3, 0.3, 5.0, 300.0])), seed, balanced=seed % 3 == 0, precomputed=seed % 5 == 0)
    walk.act("add", int(rng.integers(2, 25)))
    for action in rng.choice(["add", "remove", "update", "relabel", "retune", "reweight"], 4): walk.act(action, int(rng.integers(1, 6)))
    walk.act("add", 3)
    X, y, w = walk.arrays()
    if len(set(y)) < 2: walk.model.relabel([next(iter(walk.data))], [1 - y[0]]); y[0] = 1 - y[0]
    orders = [rng.permutation(len(y)) for _ in range(3)]
    pairs = [np.split(order, [int(rng.integers(1, len(y)))]) for order in orders] + random_folds(len(y), 2)
    assert_folds(walk.model, walk.formula(X, X), y, pairs, w)


def test_rows_that_do_not_fit_the_cache():
    (X, y), (params, formula) = moons(80), KERNELS["rbf"]
    small = IncrementalSVC(C=3.0, cache_size=0.01, **params).fit(X, y)
    assert len(small._held.state.rows.K) < len(small.support_)
    assert_folds(small, formula(X, X), y, random_folds(80, 8))


def test_points_let_go_by_reserve_width_take_no_part():
    (X, y), (params, formula) = moons(200), KERNELS["rbf"]
    model = IncrementalSVC(C=3.0, reserve_width=0.3, **params).fit(X[:120], y[:120]).partial_fit(X[120:], y[120:])
    at = model.ids_
    assert len(at) < 150
    assert_folds(model, formula(X[at], X[at]), y[at], random_folds(len(at), 5))


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("C", [1e-3, 2.0])
def test_a_fold_that_holds_a_whole_class(C, class_weight):
    "What is left says its one class everywhere, as `fit` on it would; scikit-learn refuses."
    params, formula = KERNELS["rbf"]
    model = IncrementalSVC(C=C, class_weight=class_weight, **params).fit(PLAIN, SIDE, sample_weight=WEIGHT + 0.1)
    sides = [np.flatnonzero(SIDE == side) for side in (0, 1)]
    result = assert_folds(model, formula(PLAIN, PLAIN), SIDE, [sides, sides[::-1]], WEIGHT + 0.1)
    np.testing.assert_array_equal(result.predictions, 1 - SIDE)
    np.testing.assert_allclose(np.abs(result.decisions), 1.0, atol=1e-12)
    for train in sides: assert set(IncrementalSVC(C=C, **params).fit(PLAIN[train], SIDE[train]).predict(PLAIN)) == {SIDE[train[0]]}
    assert result.scores.tolist() == [0.0, 0.0]


def test_a_rest_without_weight_says_nothing():
    model = IncrementalSVC(C=1.0, gamma=0.7).fit(PLAIN, SIDE, sample_weight=(np.arange(40) < 20).astype(float))
    result = k_fold(model, [(np.arange(20, 40), np.arange(20))])
    np.testing.assert_allclose(result.test_decisions[0], 0.0, atol=1e-12)
    assert model.kkt_residual() <= 1e-9


def test_reserve_points_are_not_free_while_the_bias_is_an_interval():
    "A lone point far from a cloud: points at α = 0 are the ends of the interval of the bias."
    X, y = np.r_[PLAIN[:15], [(6.0, 0.0)]], np.append(np.zeros(15, int), 1)
    model = IncrementalSVC(C=1e-3, kernel="linear").fit(X, y)
    assert len(telling(model._held.state)) == 0
    at_zero = np.flatnonzero(model.alpha_ == 0)
    pairs = [(np.delete(np.arange(16), fold), fold) for fold in np.array_split(at_zero, 4)]
    result = assert_folds(model, X @ X.T, y, pairs)
    moved = [np.abs(f - model.decision_function(X[fold])).max() for f, (_, fold) in zip(result.test_decisions, pairs)]
    assert max(moved) > 1e-6


def test_folds_in_reserve_need_no_path():
    model = MODELS["plain"]()
    reserve = np.flatnonzero((model.status_ == 0) & (model.alpha_ == 0))
    result = k_fold(model, [(np.delete(np.arange(40), reserve), reserve)])
    assert result.n_events == 0 and len(reserve) > 5
    np.testing.assert_array_equal(result.test_decisions[0], signs(model, SIDE)[reserve] * (1 + model.margins_[reserve]))


# ---- one point a fold is leave-one-out ---------------------------------------------------------

@pytest.mark.parametrize("params", [{}, dict(class_weight="balanced"), dict(C=1e-3), dict(kernel="linear")], ids=str)
def test_folds_of_one_point(params):
    model = IncrementalSVC(**(dict(C=3.0, gamma=0.7) | params)).fit(PLAIN, SIDE, sample_weight=WEIGHT)
    left_out, result = model.leave_one_out(), k_fold(model, LeaveOneOut())
    np.testing.assert_allclose(result.decisions, left_out.decisions, atol=1e-10)
    assert result.n_events == left_out.n_events and result.scores.mean() == pytest.approx(1 - left_out.error_rate, abs=1e-12)


# ---- the folds of scikit-learn -----------------------------------------------------------------

X_MOONS, Y_MOONS = moons(150)
OURS = IncrementalSVC(C=3.0, gamma=0.7).fit(X_MOONS, Y_MOONS)
THEIRS = SVC(C=3.0, gamma=0.7, tol=1e-6)
SPLITTERS = {
    "default": (None, None), "ten": (10, None), "two": (2, None),
    "k-fold": (KFold(4), None), "shuffled": (StratifiedKFold(6, shuffle=True, random_state=1), None),
    "repeated": (RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=0), None),
    "random halves": (ShuffleSplit(4, test_size=0.2, train_size=0.5, random_state=0), None),
    "the past only": (TimeSeriesSplit(4), None),
    "groups": (GroupKFold(5), np.arange(150) // 10),
    "pairs": ([(np.arange(100), np.arange(100, 150)), (np.arange(50, 150), np.arange(50))], None),
    "lists and masks": ([(list(range(100)), [149, 120]), (np.arange(150) >= 50, np.arange(150) < 50), (np.arange(-100, 0), [-150, 3])], None),
}


@pytest.mark.parametrize("how", SPLITTERS)
def test_splitters(how):
    cv, groups = SPLITTERS[how]
    before, result = bits(OURS), k_fold(OURS, cv, groups=groups)
    np.testing.assert_array_equal(result.scores, cross_val_score(THEIRS, X_MOONS, Y_MOONS, cv=cv, groups=groups))
    assert_same_model(before, OURS)
    for i, (ids, f) in enumerate(zip(result.test_ids, result.test_decisions)):
        assert len(ids) == len(f) > 0, i
    if how in ("default", "ten", "two", "k-fold", "shuffled", "groups"):
        want = cross_val_predict(THEIRS, X_MOONS, Y_MOONS, cv=cv, groups=groups, method="decision_function")
        np.testing.assert_allclose(result.decisions, want, atol=1e-3)
        np.testing.assert_array_equal(result.predictions, (want > 0).astype(float))
    else:
        with pytest.raises(ValueError, match="test_decisions"): result.decisions
        with pytest.raises(ValueError, match="test_ids"): result.predictions


def test_pairs_from_a_generator():
    a = k_fold(OURS, iter(list(KFold(4).split(X_MOONS))))
    np.testing.assert_array_equal(a.scores, k_fold(OURS, KFold(4)).scores)


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "roc_auc", "f1", "average_precision", "matthews_corrcoef", "precision"])
def test_scorers_by_name(scoring):
    want = cross_val_score(THEIRS, X_MOONS, Y_MOONS, cv=5, scoring=scoring)
    np.testing.assert_allclose(k_fold(OURS, 5, scoring=scoring).scores, want, rtol=1e-12)
    np.testing.assert_allclose(k_fold(OURS, 5).score(scoring), want, rtol=1e-12)


def test_scorers_of_ones_own():
    text = np.where(Y_MOONS == 1, "yes", "no")
    model = IncrementalSVC(C=3.0, gamma=0.7).fit(X_MOONS, text)
    for scorer in (make_scorer(fbeta_score, beta=2.0, pos_label="no"), get_scorer("roc_auc"),
                   lambda estimator, X, y: -np.mean(np.maximum(0, 1 - np.where(y == "yes", 1, -1) * estimator.decision_function(X))),
                   lambda estimator, X, y: estimator.score(X, y)):
        want = cross_val_score(THEIRS, X_MOONS, text, cv=5, scoring=scorer)
        np.testing.assert_allclose(k_fold(model, 5, scoring=scorer).scores, want, rtol=1e-4)
    result = k_fold(model, 5)
    assert set(result.predictions) == {"yes", "no"} and result.labels.tolist() == text.tolist()
    assert roc_auc_score(result.labels == "yes", result.decisions) > 0.9


def test_scorers_that_need_probabilities_say_so():
    before = bits(OURS)
    with pytest.raises(AttributeError, match="predict_proba"): k_fold(OURS, 5, scoring="neg_log_loss")
    assert_same_model(before, OURS)


def test_one_line():
    result = k_fold(OURS, 5)
    text = repr(result)
    assert "\n" not in text and "5 folds of 150 points" in text and f"{result.n_events} events" in text
    assert f"{result.scores.mean():.3g}" in text


# ---- some of the points ------------------------------------------------------------------------

def test_some_points_are_split_and_the_others_always_learned():
    names = [f"customer {i}" for i in range(40)]
    params, formula = KERNELS["rbf"]
    model, K, a = IncrementalSVC(C=3.0, **params).fit(PLAIN, SIDE, ids=names), formula(PLAIN, PLAIN), np.where(SIDE == 1, 1.0, -1.0)
    order = np.random.default_rng(0).permutation(40)[:18]
    before, result = bits(model), k_fold(model, KFold(3), ids=[names[i] for i in order])
    assert_same_model(before, model)
    assert result.ids.tolist() == [names[i] for i in order] and result.labels.tolist() == SIDE[order].tolist()
    pairs = [(np.setdiff1d(np.arange(40), order[test]), order[test]) for _, test in KFold(3).split(order)]
    want = np.concatenate([f for f, _ in by_training(K, SIDE, a, 3.0, pairs)])
    np.testing.assert_allclose(result.decisions, want, atol=1e-8)
    everyone = k_fold(model, [([], np.arange(18))], ids=[names[i] for i in order])   # all of them at once; 22 are left
    rest = np.setdiff1d(np.arange(40), order)
    np.testing.assert_allclose(everyone.decisions, by_training(K, SIDE, a, 3.0, [(rest, order)])[0][0], atol=1e-8)


# ---- after histories ---------------------------------------------------------------------------

@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_after_a_file_and_a_pickle(tmp_path, kernel, class_weight):
    K = KERNELS["rbf"][1](PLAIN, PLAIN)
    model = IncrementalSVC(C=2.0, class_weight=class_weight, **(KERNELS["rbf"][0] if kernel == "rbf" else dict(kernel=kernel)))
    model.fit(PLAIN if kernel == "rbf" else K, SIDE, sample_weight=WEIGHT)
    want = k_fold(model, random_folds(40, 5)).decisions
    model.save(tmp_path / "model.isvm")
    for copy in (IncrementalSVC.load(tmp_path / "model.isvm"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(k_fold(copy, random_folds(40, 5)).decisions, want, atol=1e-10)  # the first call on it
        np.testing.assert_array_equal(copy.alpha_, model.alpha_)


def test_the_next_update_is_exact():
    (X, y), (params, formula) = moons(120), KERNELS["rbf"]
    model = IncrementalSVC(C=3.0, **params).fit(X[:90], y[:90])
    for start in (90, 100, 110):
        k_fold(model, 6)
        model.update(X[start:start + 10], y[start:start + 10], remove=model.ids_[:5]).retune(model.C * 2)
        assert model.kkt_residual() <= 1e-9
    at = model.ids_
    assert_folds(model, formula(X[at], X[at]), y[at], random_folds(len(at), 6))


@pytest.mark.parametrize("learned, later", [("balanced", dict(C=5.0)), ("balanced", dict(class_weight=None)), (None, dict(class_weight="balanced"))])
def test_parameters_set_but_not_yet_learned_do_not_count(learned, later):
    model = IncrementalSVC(C=1.0, gamma=0.7, class_weight=learned).fit(PLAIN, SIDE, sample_weight=WEIGHT)
    want = k_fold(model, KFold(5)).decisions
    model.set_params(**later)
    np.testing.assert_allclose(k_fold(model, KFold(5)).decisions, want, atol=1e-8)


# ---- interrupted -------------------------------------------------------------------------------

VERBS = [(follow, "step_on"), (follow, "respond"), (follow, "advance"), (follow, "release"), (follow, "join"), (follow, "finish"),
         (settle, "violation"), (events, "put"), (folds, "unlearned"), (folds, "free_to_go"), (folds, "with_bar"), (folds, "Folds")]


@pytest.mark.parametrize("error", [KeyboardInterrupt, Stop])
@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[1])
def test_stopped_inside_a_fold(monkeypatch, verb, error):
    owner, attribute = verb
    real, left, after, stopped = getattr(owner, attribute), 0, False, 0

    def failing(*args, **options):
        nonlocal left
        left -= 1
        if left >= 0: return real(*args, **options)
        if after: real(*args, **options)
        raise error
    for name in ("plain", "tiny C", "balanced"):
        model = MODELS[name]()
        before, f, want = snapshot(model), model.decision_function(PLAIN), k_fold(model, KFold(5)).decisions
        for allowed in (0, 2, 9):
            for after in (False, True):
                left = allowed
                monkeypatch.setattr(owner, attribute, failing)
                try: k_fold(model, KFold(5))
                except error: stopped += 1
                monkeypatch.setattr(owner, attribute, real)
                assert differing(before, snapshot(model)) == [], (name, allowed, after)
                np.testing.assert_array_equal(model.decision_function(PLAIN), f)
        np.testing.assert_allclose(k_fold(model, KFold(5)).decisions, want, atol=1e-10)
        assert_rows_in_order(model)
    assert stopped > 0


@pytest.mark.parametrize("name", ["plain", "balanced", "few rows"])
def test_ctrl_c_at_any_line(name):
    blob = pickle.dumps(MODELS[name]())
    model = pickle.loads(blob)
    before, want = snapshot(model), k_fold(pickle.loads(blob), KFold(5)).decisions
    total, _ = interrupt_at_line(-1, lambda: k_fold(pickle.loads(blob), KFold(5)))
    rng = np.random.default_rng(0)
    for k in sorted({*range(1, 60), *rng.integers(1, total - 100, 50).tolist()}):
        model = pickle.loads(blob)
        _, stopped = interrupt_at_line(k, lambda: k_fold(model, KFold(5)))
        assert stopped, "Ctrl-C was lost"
        assert differing(before, snapshot(model)) == [], f"line {k} of {total}"
        if model._held.state.ready: assert_rows_in_order(model)
        if k % 5 == 0: np.testing.assert_allclose(k_fold(model, KFold(5)).decisions, want, atol=1e-10)


def test_a_path_that_fails_leaves_the_model(monkeypatch):
    model, real, count = MODELS["plain"](), folds.unlearned, 0
    before = snapshot(model)

    def failing(*args):
        nonlocal count
        count += 1
        if count == 3: raise PathError(Outcome.STALLED, "here")
        return real(*args)
    monkeypatch.setattr(folds, "unlearned", failing)
    with pytest.raises(PathError, match="here"): k_fold(model, 5)
    assert differing(before, snapshot(model)) == [] and model._held.state.saved is None
    monkeypatch.undo()
    assert model.unlearn([1, 2]).kkt_residual() <= 1e-9


# ---- bad input ---------------------------------------------------------------------------------

EVERYONE = np.arange(40)
BAD = {  # what is wrong → arguments, error, a word its message must hold
    "one fold": (dict(cv=1), ValueError, "n_splits=1"),
    "more folds than points": (dict(cv=41), ValueError, "n_splits=41"),
    "half a fold": (dict(cv=2.5), ValueError, "2.5"),
    "a word": (dict(cv="five"), ValueError, "five"),
    "no folds": (dict(cv=[]), ValueError, "empty"),
    "no pairs": (dict(cv=[1, 2]), ValueError, "positions"),
    "half a pair": (dict(cv=[(EVERYONE,)]), ValueError, "positions"),
    "beyond the end": (dict(cv=[(EVERYONE[5:], [40])]), ValueError, "40"),
    "not whole": (dict(cv=[(EVERYONE[5:], [0.5])]), ValueError, "integer"),
    "a mask too short": (dict(cv=[(EVERYONE[5:], np.ones(7, bool))]), ValueError, "40"),
    "twice": (dict(cv=[(np.append(EVERYONE[5:], 7), [0, 1])]), ValueError, "twice"),
    "no test": (dict(cv=[(EVERYONE[5:], EVERYONE[:5]), (EVERYONE, [])]), ValueError, "Fold 1"),
    "all points": (dict(cv=[([], EVERYONE)]), ValueError, "all 40 points"),
    "groups missing": (dict(cv=GroupKFold(3)), ValueError, "groups"),
    "unknown id": (dict(ids=[0, 99]), KeyError, "99"),
    "id twice": (dict(ids=[3, 4, 3]), ValueError, "twice"),
    "no points": (dict(ids=[]), ValueError, "0 points"),
    "no score": (dict(scoring=[]), ValueError, "scoring"),
    "unknown score": (dict(scoring="acuracy"), ValueError, "acuracy"),
    "several scores": (dict(scoring=["accuracy", "f1"]), ValueError, "scoring"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what, monkeypatch):
    given, error, word = BAD[what]
    model = MODELS["plain"]()
    before = bits(model)
    monkeypatch.setattr(folds, "folds_out", None)            # refused before the first path
    with pytest.raises(error, match=word) as caught: k_fold(model, **given)
    assert len(str(caught.value)) > 20
    assert_same_model(before, model)


def test_models_with_nothing_to_take_out():
    with pytest.raises(NotFittedError): k_fold(IncrementalSVC())
    for model in (MODELS["plain"]().unlearn(range(40)), IncrementalSVC(gamma=0.7).fit(PLAIN[:5], [1] * 5)):
        with pytest.raises(ValueError, match="two classes"): k_fold(model)
    model = MODELS["plain"]()
    watching = model.steps(PLAIN[:6] + 0.1, 1 - SIDE[:6])
    next(watching)
    with pytest.raises(RuntimeError, match="under way"): k_fold(model)
    watching.close()
    assert len(k_fold(model).scores) == 5


def test_a_progress_bar_for_those_who_ask(capsys):
    quiet, loud = (IncrementalSVC(C=3.0, gamma=0.7, verbose=verbose).fit(PLAIN, SIDE) for verbose in (False, True))
    capsys.readouterr()
    want = k_fold(quiet).decisions
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(k_fold(loud).decisions, want)
    assert "5/5" in capsys.readouterr().err


@pytest.mark.parametrize("other", [make_pipeline(StandardScaler(), IncrementalSVC()), SVC(), X_MOONS], ids=["pipeline", "svc", "data"])
def test_whatever_is_not_a_model_of_ours_is_named(other):
    with pytest.raises(TypeError, match=f"got {type(other).__name__}"): k_fold(other)


def test_data_beside_the_model_is_refused():
    with pytest.raises(TypeError, match="positional"): k_fold(OURS, X_MOONS, OURS.labels_)
    with pytest.raises(ValueError, match="Fold 0 of cv|makes no folds"): k_fold(OURS, OURS.labels_)
