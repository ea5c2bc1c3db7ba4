"""`reserve_width`: who is let go, that nothing else changes by it, that it is part of the update or does not happen, and that every door knows of it."""
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.utils.class_weight import compute_class_weight

import isvm.estimators.held, isvm.reserve
from histories import ACTIONS, KERNELS, KINDS, Walk, differing, interrupt_at_line, signs, snapshot
from isvm import IncrementalSVC
from isvm.engine.problem import Problem
from isvm.engine.reference import reference_solve
from isvm.estimators.files import read_arrays, write_arrays
from isvm.estimators.held import Held

X, Y = make_moons(120, noise=0.3, random_state=0)
K = KERNELS["rbf"][1](X, X)


class Thin(Walk):
    "A walk whose model forgets; the list follows, after checking that only those went who might."

    def __init__(self, *args, width, **options):
        super().__init__(*args, **options)
        self.model.reserve_width, self.width, self.gone = width, width, np.zeros(2, int)

    def act(self, action, m):
        super().act(action, m)
        model = self.model
        missing = [i for i in self.data if i not in set(model.ids_.tolist())]
        rows = [self.data.pop(i) for i in missing]
        self.gone += np.bincount([r[1] for r in rows], minlength=2)[:2]
        assert model.n_discarded_ == self.gone.sum()
        settled = ((model.alpha_ > 0) & (model.alpha_ < model._held.state.u)).any()
        if rows:
            assert settled                                          # never while the bias is a matter of the reserve
            x, y = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
            given = self.formula(x, self.arrays()[0]) if self.precomputed else x
            assert (signs(model, y) * model.decision_function(given) - 1 >= self.width - 1e-6).all()
        if settled: assert not ((model.status_ == 0) & (model.alpha_ == 0) & (model.margins_ >= self.width)).any()
        return len(rows)

    def problem(self):
        K, a, u = super().problem()
        if not self.balanced or not len(a): return K, a, u
        _, y, w = self.arrays()
        counts = np.bincount(y, minlength=2) + self.gone            # the discarded go on counting
        return K, a, self.model.C * w * (counts.sum() / ((counts > 0).sum() * counts[y]))


@pytest.mark.parametrize("kind", KINDS)
def test_exact_for_what_is_held_through_any_history(kind):
    "Certificate, decision function and bias rule, against the oracle on the points held, after every call."
    rng, let_go = np.random.default_rng(7), 0
    for seed, kernel in enumerate(KERNELS):
        for width, balanced, given in ((0.05, False, False), (0.5, seed % 2 == 0, seed % 3 == 0)):
            walk = Thin(kernel, kind, float(rng.choice([0.05, 1.0, 30.0])), seed, balanced, given, width=width)
            let_go += walk.act("add", 25)
            for action in rng.choice(ACTIONS, 8):
                let_go += walk.act(action, int(rng.integers(1, 7)))
                assert walk.residual() <= 1 and walk.gap() <= 1, (kernel, width, action)
    assert let_go > 10 or kind in ("one class", "constant")


@pytest.mark.parametrize("kernel", ["linear", "poly2", "rbf", "narrow"])
def test_exact_for_everything_if_and_only_if_no_discarded_point_is_missed(kernel):
    params, formula = KERNELS[kernel]
    gram, right = formula(X, X), []
    for order in (np.arange(120), np.argsort(X[:, 0])):
        for width in (0.05, 0.3, 1.0, 2.0, 4.0):
            model = IncrementalSVC(C=5.0, reserve_width=width, **params)
            for i in order: model.partial_fit(X[[i]], Y[[i]], ids=[int(i)])
            a = signs(model, Y)
            alpha, bias = reference_solve(a[:, None] * gram * a, Problem(np.ones(120), a, np.full(120, 5.0), 0.0))
            gap = np.abs(model.decision_function(X) - (gram @ (a * alpha) + bias)).max()
            missing = np.setdiff1d(np.arange(120), model.ids_)
            g = a[missing] * model.decision_function(X[missing]) - 1
            assert (gap < 1e-8) == (g >= -1e-8).all(), (width, gap, g.min())
            right.append(gap < 1e-8 and len(missing) > 0)
    assert any(right)


def test_a_fit_is_exact_for_all_it_was_given():
    for params, formula in KERNELS.values():
        for width in (1e-3, 0.3):
            thin, whole = (IncrementalSVC(C=3.0, reserve_width=w, **params).fit(X, Y) for w in (width, None))
            np.testing.assert_allclose(thin.decision_function(X), whole.decision_function(X), atol=1e-10)
            kept = (whole.alpha_ > 0) | (whole.margins_ < width)
            assert thin.ids_.tolist() == np.flatnonzero(kept).tolist() and thin.n_discarded_ == 120 - kept.sum()
            assert thin.kkt_residual() <= 1e-9 and whole.n_discarded_ == 0


def test_off_by_default_and_infinite_is_off():
    default, none, infinite = (IncrementalSVC(gamma=0.7, **w).fit(X, Y).partial_fit(X + 0.01, Y)
                               for w in ({}, dict(reserve_width=None), dict(reserve_width=np.inf)))
    assert IncrementalSVC().reserve_width is None
    assert differing(snapshot(default), snapshot(none)) == differing(snapshot(default), snapshot(infinite)) == []
    assert len(default.ids_) == 240


def test_nothing_goes_while_the_bias_is_not_told():
    line, sides = np.array([[0.0], [1.0], [2.0], [4.0]]), [0, 1, 0, 1]
    tiny = IncrementalSVC(C=0.05, gamma=1.0, reserve_width=1e-6).fit(line, sides)
    assert (tiny.alpha_ == 0.05).all() and len(tiny.ids_) == 4
    alone = IncrementalSVC(C=10.0, gamma=0.7, reserve_width=1e-6).fit(X[Y == 0], Y[Y == 0])
    assert len(alone.ids_) == 60 and alone.n_discarded_ == 0
    alone.partial_fit(X[Y == 1], Y[Y == 1])
    assert alone.n_discarded_ > 0 and alone.kkt_residual() <= 1e-9


def test_empty_margin_with_deep_reserve_points_keeps_them():
    "All α at bounds, and reserve points that hold the bias interval: thin and whole model agree to the last digit."
    Z = np.array([[0.0], [0.1], [5.0], [9.0], [-9.0]])
    y, w = [0, 1, 1, 1, 0], [1.0, 1.0, 0.0, 1.0, 1.0]
    for C in (0.01, 0.1):
        models = [IncrementalSVC(C=C, kernel="linear", reserve_width=width).fit(Z, y, sample_weight=w) for width in (1e-9, None)]
        told = (models[1].alpha_ > 0) & (models[1].alpha_ < C * np.array(w))
        if not told.any(): assert len(models[0].ids_) == 5
        np.testing.assert_allclose(models[0].intercept_, models[1].intercept_, atol=1e-12)


BAD = [0, 0.0, -1, -np.inf, np.nan, "wide", "", [1.0], np.array([1.0, 2.0]), True, False, 1j, object()]


@pytest.mark.parametrize("width", BAD, ids=lambda v: type(v).__name__ + str(v)[:6])
def test_widths_that_are_refused_change_nothing(width):
    with pytest.raises(ValueError, match="reserve_width"): IncrementalSVC(reserve_width=width).fit(X, Y)
    with pytest.raises(ValueError, match="reserve_width"): IncrementalSVC(reserve_width=width).partial_fit(X, Y)
    model = IncrementalSVC(C=3.0, gamma=0.7, reserve_width=0.5).fit(X[:80], Y[:80])
    before, held = snapshot(model), model.ids_
    model.reserve_width = width
    for call in (lambda: model.partial_fit(X[80:], Y[80:]), lambda: model.unlearn(held[:3]), lambda: model.fit(X, Y),
                 lambda: model.update(X[80:], Y[80:], remove=held[:3]), lambda: model.steps(X[80:], Y[80:]),
                 lambda: model.relabel(held[:3], 0), lambda: model.retune(1.0), lambda: model.reweight(held[:3], 2.0)):
        with pytest.raises(ValueError, match="reserve_width"): call()
        assert differing(before, snapshot(model)) == [] and model.n_discarded_ == 80 - len(held)
    model.reserve_width = np.float32(0.5)
    assert model.partial_fit(X[80:], Y[80:]).kkt_residual() <= 1e-9


def test_a_new_width_takes_effect_with_the_next_update():
    model = IncrementalSVC(C=3.0, gamma=0.7).fit(X, Y)
    model.set_params(reserve_width=0.4)
    assert len(model.ids_) == 120
    model.retune(3.0)
    assert len(model.ids_) < 120 and model.margins_[model.alpha_ == 0].max() < 0.4
    held = len(model.ids_)
    model.set_params(reserve_width=None).partial_fit(X + 0.01, Y)
    assert len(model.ids_) == held + 120


def test_every_door_discards():
    base = pickle.dumps(IncrementalSVC(C=3.0, gamma=0.7).fit(X[:80], Y[:80]).set_params(reserve_width=0.4))
    for call in (lambda m: m.partial_fit(X[80:], Y[80:]), lambda m: m.unlearn([0, 5]), lambda m: m.reweight([3], 2.0),
                 lambda m: m.update(X[80:], Y[80:], remove=[1]), lambda m: list(m.steps(X[80:], Y[80:])), lambda m: m.fit(X, Y),
                 lambda m: m.relabel([3, 4], 1 - Y[[3, 4]]), lambda m: m.retune(2.0)):
        model = pickle.loads(base)
        call(model)
        assert model.n_discarded_ > 0 and model.margins_[model.alpha_ == 0].max() < 0.4 and model.kkt_residual() <= 1e-9
        assert len(model.alpha_) == len(model.margins_) == len(model.status_) == len(model.weights_) == len(model.labels_)
        copy = clone(model).set_params(reserve_width=None)
        rows = model._held.state.rows.X[model._held.state.sample]
        copy.fit(rows, model.labels_, sample_weight=model.weights_)
        np.testing.assert_allclose(copy.decision_function(X), model.decision_function(X), atol=1e-8)


def test_discarded_ids_are_not_held_and_the_error_says_why():
    model = IncrementalSVC(C=3.0, gamma=0.7, reserve_width=0.4).fit(X, Y)
    gone, before = np.setdiff1d(np.arange(120), model.ids_), snapshot(model)
    for call in (model.unlearn, model.leave_one_out, lambda ids: model.relabel(ids, 0), lambda ids: model.reweight(ids, 1.0)):
        with pytest.raises(KeyError, match="discarded by reserve_width"): call([int(gone[0])])
    assert differing(before, snapshot(model)) == []
    with pytest.raises(KeyError) as error: IncrementalSVC(gamma=0.7).fit(X, Y).unlearn([500])
    assert "discarded" not in str(error.value)
    model.partial_fit(X[gone[:1]], Y[gone[:1]], ids=[int(gone[0])])        # the name is free again
    model.partial_fit(X[:30] + 0.01, Y[:30])
    assert model.ids_[model.ids_ >= 120].min(initial=120) >= 120           # running ids are not used twice


def test_the_count_survives_an_empty_model_and_ends_with_fit():
    model = IncrementalSVC(C=3.0, gamma=0.7, reserve_width=0.4, class_weight="balanced").fit(X, Y)
    gone = model._held.discarded.copy()
    model.unlearn(model.ids_)
    assert len(model.ids_) == 0 and model.n_discarded_ == gone.sum() > 0
    model.partial_fit(X[:40], Y[:40])
    counts = np.bincount(Y[:40]) + gone
    bound = 3.0 * counts.sum() / (2 * counts)
    np.testing.assert_allclose(model._held.state.u, bound[model.labels_])
    assert model.fit(X[:40], Y[:40]).n_discarded_ == 40 - len(model.ids_)


def test_balanced_weights_count_what_was_let_go():
    rows = np.r_[np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)[:15]]
    model = IncrementalSVC(C=3.0, gamma=0.7, reserve_width=0.3, class_weight="balanced")
    for i in np.random.default_rng(0).permutation(rows): model.partial_fit(X[[i]], Y[[i]], ids=[int(i)])
    factors = 3.0 * compute_class_weight("balanced", classes=np.array([0, 1]), y=Y[rows])
    np.testing.assert_allclose(model._held.state.u, factors[model.labels_])
    assert model.n_discarded_ > 10 and model.kkt_residual() <= 1e-9
    assert len(model.leave_one_out().errors) == len(model.ids_)


def test_files_pickles_clones_and_parameters(tmp_path):
    model = IncrementalSVC(C=3.0, gamma=0.7, reserve_width=0.4).fit(X[:80], Y[:80])
    model.save(tmp_path / "thin.isvm")
    copies = IncrementalSVC.load(tmp_path / "thin.isvm"), pickle.loads(pickle.dumps(model))
    for copy in copies:
        assert copy.get_params() == model.get_params() and copy.reserve_width == 0.4 and copy.n_discarded_ == model.n_discarded_ > 0
        assert differing(snapshot(model), snapshot(copy)) == []
        with pytest.raises(KeyError, match="discarded"): copy.unlearn([int(np.setdiff1d(np.arange(80), model.ids_)[0])])
    for m in (model, *copies): m.partial_fit(X[80:], Y[80:])
    for copy in copies:
        assert copy.ids_.tolist() == model.ids_.tolist() and copy.n_discarded_ == model.n_discarded_
        np.testing.assert_allclose(copy.decision_function(X), model.decision_function(X), atol=1e-10)
    assert clone(model).reserve_width == 0.4 and not hasattr(clone(model), "classes_")


def test_files_from_before_there_was_a_width(tmp_path):
    model = IncrementalSVC(C=3.0, gamma=0.7).fit(X, Y)
    model.save(tmp_path / "old.isvm")
    header, arrays = read_arrays(tmp_path / "old.isvm")
    del header["discarded"], header["params"]["reserve_width"]
    header["learned"].pop("reserve_width", None)
    write_arrays(tmp_path / "old.isvm", header, arrays)
    old = IncrementalSVC.load(tmp_path / "old.isvm")
    assert old.reserve_width is None and old.n_discarded_ == 0
    assert old.set_params(reserve_width=0.4).partial_fit(X + 0.01, Y).n_discarded_ > 0


def test_given_kernels_follow_the_points_held():
    model = IncrementalSVC(C=3.0, kernel="precomputed", reserve_width=0.4).fit(K[:60, :60], Y[:60])
    twin = IncrementalSVC(C=3.0, gamma=0.7, reserve_width=0.4).fit(X[:60], Y[:60])
    for rows in (np.arange(60, 80), np.arange(80, 100), np.arange(100, 120)):
        held = model.ids_
        model.partial_fit(K[rows][:, np.r_[held, rows]], Y[rows], ids=rows.tolist())
        twin.partial_fit(X[rows], Y[rows], ids=rows.tolist())
        assert model.ids_.tolist() == twin.ids_.tolist() and model.kkt_residual() <= 1e-9
        np.testing.assert_allclose(model.decision_function(K[:, model.ids_]), twin.decision_function(X), atol=1e-9)
        table = model._held.state.rows.kernel
        assert table.held.sum() == len(model.ids_) and not table.table[~table.held].any()     # no trace of the others
    assert model.n_discarded_ > 10


def test_a_stream_holds_no_more_room_than_it_needs():
    rng, model, most = np.random.default_rng(0), IncrementalSVC(C=10.0, gamma=1.0, reserve_width=0.3), 0
    Z, y = make_moons(3000, noise=0.2, random_state=1)
    for i, rows in enumerate(np.split(rng.permutation(3000), 300)):
        before = len(model.ids_) if i else 0
        model.partial_fit(Z[rows], y[rows])
        most, room = max(most, len(model.ids_)), model._held.state.rows
        assert room.n == len(model.ids_)
        if i: assert not room.X[room.n:before + 10].any()            # what went leaves no trace
    assert most < 900 and len(room.X) < 2 * most and model.kkt_residual() <= 1e-9
    whole = IncrementalSVC(C=10.0, gamma=1.0, reserve_width=0.3).fit(Z, y)
    assert len(whole._held.state.rows.X) == len(whole.ids_) < 1500


# All or nothing

NEW = np.arange(40, 52)
MODELS = {
    "plain": lambda: IncrementalSVC(C=3.0, gamma=0.7).fit(X[:40], Y[:40]),
    "linear": lambda: IncrementalSVC(C=3.0, kernel="linear").fit(X[:40], Y[:40]),
    "balanced": lambda: IncrementalSVC(C=3.0, gamma=0.7, class_weight="balanced").fit(X[:40], Y[:40]),
    "precomputed": lambda: IncrementalSVC(C=3.0, kernel="precomputed").fit(K[:40, :40], Y[:40]),
}
CALLS = {
    "partial_fit": lambda m: m.partial_fit(points(m), Y[NEW]),
    "unlearn": lambda m: m.unlearn([0, 3, 4, 8, 11, 12, 19]),
    "update": lambda m: m.update(points(m), Y[NEW], remove=[1, 2, 5, 8, 20, 39]),
    "relabel": lambda m: m.relabel([2, 3, 7, 9, 10], 1 - Y[[2, 3, 7, 9, 10]]),
    "retune": lambda m: m.retune(6.0),
    "reweight": lambda m: m.reweight([1, 4, 6, 7], [0.0, 3.0, 0.5, 2.0]),
    "fit": lambda m: m.fit(K[40:80, 40:80] if m.kernel == "precomputed" else X[40:80], Y[40:80]),
}


def points(model): return K[NEW][:, np.r_[:40, NEW]] if model.kernel == "precomputed" else X[NEW]


def base(name, blobs={}):
    "A pickled model that has kept everything and is about to be thinned by its next call."
    if name not in blobs: blobs[name] = pickle.dumps(MODELS[name]().set_params(reserve_width=0.2))
    return blobs[name]


def seen(model):
    "Everything an update may change."
    held, table = model._held, getattr(model._held.state.rows.kernel, "table", np.zeros((0, 0)))
    return snapshot(model) | {"discarded": held.discarded.copy(), "unused": np.array(held.unused), "values": table.copy()}


def unlike(before, after):
    "What differs; a table of given values may have grown, by rows of nothing."
    n = max(len(before["values"]), len(after["values"]))
    return differing(*(s | {"values": np.pad(s["values"], (0, n - len(s["values"])))} for s in (before, after)))


class Stop(Exception): "An error from outside."


VERBS = [(isvm.reserve, "leave"), (isvm.reserve, "overwritten"), (isvm.reserve, "telling"), (isvm.estimators.held, "discard"),
         (isvm.estimators.held, "surplus"), (Held, "discard"), (Held, "strike"), (IncrementalSVC, "_parameters")]


@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[1])
@pytest.mark.parametrize("name", MODELS)
def test_a_discard_that_fails_takes_the_update_back(monkeypatch, verb, name):
    owner, attribute = verb
    real, failures = getattr(owner, attribute), 0
    for call in CALLS:
        for after in (False, True):
            if after and name == "precomputed" and verb == (Held, "discard"): continue    # given values are wiped by then
            for allowed in range(3):
                model, left = pickle.loads(base(name)), allowed
                before = seen(model)

                def failing(*args, **options):
                    nonlocal left
                    left -= 1
                    if left >= 0: return real(*args, **options)
                    if after: real(*args, **options)
                    raise Stop
                monkeypatch.setattr(owner, attribute, failing)
                try: CALLS[call](model)
                except Stop:
                    failures += 1
                    monkeypatch.setattr(owner, attribute, real)
                    assert unlike(before, seen(model)) == [], (call, allowed, after)
                    CALLS[call](model)
                    assert model.kkt_residual() <= 1e-9 and model.n_discarded_ > 0
                monkeypatch.setattr(owner, attribute, real)
    assert failures > 5


@pytest.mark.parametrize("name", MODELS)
def test_steps_closed_early_discard_nothing(name):
    def steps(m): return m.steps(points(m), Y[NEW], remove=[1, 2, 5, 8, 20, 39])
    total = sum(1 for _ in steps(pickle.loads(base(name))))
    model = pickle.loads(base(name))
    before = seen(model)
    for k in range(1, total + 1):
        watching = steps(model)
        for _ in range(k): next(watching)
        watching.close()
        assert unlike(before, seen(model)) == [] and model.n_discarded_ == 0, k
    for _ in steps(model): pass
    assert model.n_discarded_ > 0 and model.kkt_residual() <= 1e-9


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["plain", "precomputed"])
def test_ctrl_c_at_any_of_the_last_lines(name, call):
    "The old model or the new one, never anything between."
    old, whole = seen(pickle.loads(base(name))), pickle.loads(base(name))
    total, _ = interrupt_at_line(-1, lambda: CALLS[call](whole))
    new, ends = seen(whole), set()
    assert whole.n_discarded_ > 0
    for k in range(max(1, total - 150), total + 1):
        model = pickle.loads(base(name))
        interrupt_at_line(k, lambda: CALLS[call](model))
        now = seen(model)
        is_old, is_new = unlike(old, now) == [], unlike(new, now) == []
        assert is_old or is_new, (k, total, unlike(old, now), unlike(new, now))
        ends.add(is_new)
        assert model.retune(1.0).kkt_residual() <= 1e-9
    assert True in ends


def test_a_kernel_that_fails_while_points_are_let_go():
    "Rows are completed before samples leave; a callable may fail there."
    left = 10**9

    def gauss(A, B):
        nonlocal left
        left -= 1
        if left < 0: raise Stop
        return KERNELS["rbf"][1](A, B)
    model = IncrementalSVC(C=3.0, kernel=gauss).fit(X[:40], Y[:40]).set_params(reserve_width=0.2)
    before, failures = snapshot(model), 0
    for allowed in range(40):
        left = allowed
        try: model.update(X[NEW], Y[NEW], remove=[1, 2, 5])
        except Stop:
            failures, left = failures + 1, 10**9
            assert differing(before, snapshot(model)) == [], allowed
        else: break
    left = 10**9
    assert failures > 2 and model.n_discarded_ > 0 and model.kkt_residual() <= 1e-9
