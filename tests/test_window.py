"""`window`: the last M points and no others, whatever comes, goes or is changed; in and out in one path, all or nothing; every door knows of it."""
import os, pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from histories import ACTIONS, KERNELS, KINDS, Walk, assert_few_events, differing, interrupt_at_line, snapshot
from isvm import IncrementalSVC
from isvm.engine.core import Kind, PathError
from isvm.estimators.files import read_arrays, write_arrays

X, Y = make_moons(160, noise=0.3, random_state=0)
K = KERNELS["rbf"][1](X, X)
RBF = dict(C=3.0, gamma=0.7)
WALKS = int(os.environ.get("ISVM_WALKS", 60))
walks = settings(max_examples=WALKS, derandomize="ISVM_WALKS" not in os.environ, deadline=None, database=None,
                 print_blob=True, suppress_health_check=list(HealthCheck))


class Windowed(Walk):
    "A walk whose model has a window; the list is cut by hand."

    def __init__(self, *args, window, **options):
        super().__init__(*args, **options)
        self.model.window = window

    def act(self, action, m):
        if action == "window": return self.model.set_params(window=m)          # takes effect at the next call
        empty = not self.data
        super().act(action, m)
        if empty or action in ("add", "update", "remove", "all but two"):
            for i in list(self.data)[:-self.model.window]: del self.data[i]


def go(walk, plan):
    "After every call the ids of the list in its order, the certificate, and the oracle's decision function."
    for action, m in plan:
        held = len(walk.data)
        walk.act(action, m)
        if action != "window": assert_few_events(walk.model, held + m)
        assert walk.residual() <= 1.0, action
        try: gap = walk.gap()
        except PathError: continue
        assert gap <= 1.0, action


plans = st.lists(st.tuples(st.sampled_from((*ACTIONS, "add", "add", "window")), st.integers(1, 20)), min_size=3, max_size=9)
seeds, sizes, costs = st.integers(0, 2**32 - 1), st.integers(1, 24), st.sampled_from([0.05, 1.0, 10.0, 1e3])


@walks
@given(st.sampled_from(list(KERNELS)), st.sampled_from(KINDS), costs, seeds, sizes, st.integers(1, 15), plans)
def test_any_history_holds_the_last_points_and_ends_where_training_afresh_does(kernel, kind, C, seed, first, window, plan):
    go(Windowed(kernel, kind, C, seed, window=window), [("add", first), *plan])


@walks
@given(st.sampled_from(list(KERNELS)), st.sampled_from(KINDS), costs, seeds, sizes, st.integers(1, 15), plans, st.booleans())
def test_balanced_or_with_given_kernel_values(kernel, kind, C, seed, first, window, plan, balanced):
    go(Windowed(kernel, kind, C, seed, balanced, precomputed=not balanced or seed % 2 == 0, window=window), [("add", first), *plan])


def equal(model, rows, labels=Y, **params):
    "The model holds these rows in this order and is the one trained on them."
    assert model.ids_.tolist() == list(rows) and model.kkt_residual() <= 1e-9
    fresh = IncrementalSVC(**(RBF | params)).partial_fit(X[list(rows)], labels[list(rows)], classes=np.unique(labels))
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-8)


@pytest.mark.parametrize("window", [1, 2, 3, 50])
def test_a_stream_of_single_points(window):
    model = IncrementalSVC(window=window, **RBF)
    for i in range(160):
        model.partial_fit(X[[i]], Y[[i]], classes=[0, 1])
        if i < 5 or i % 11 == 0: equal(model, range(max(0, i + 1 - window), i + 1))
    assert len(model._held.state.rows.X) < 4 * window + 80             # no room for what is gone


def test_batches_of_every_size_around_the_window():
    for m in (0, 1, 19, 20, 21, 39, 40, 41, 100):
        model = IncrementalSVC(window=20, **RBF).fit(X[:20], Y[:20])
        if m: model.partial_fit(X[20:20 + m], Y[20:20 + m])
        else: model.update(X[:0], Y[:0])
        equal(model, range(m, 20 + m))
        for door in (IncrementalSVC(window=20, **RBF).fit, IncrementalSVC(window=20, **RBF).partial_fit):
            if m > 30: equal(door(X[:m], Y[:m]), range(m - 20, m))


def test_a_window_larger_than_the_data_changes_nothing():
    plain, wide = (IncrementalSVC(window=w, **RBF).fit(X[:60], Y[:60]).partial_fit(X[60:], Y[60:]) for w in (None, 160))
    assert differing(snapshot(plain), snapshot(wide)) == [] and IncrementalSVC().window is None
    assert IncrementalSVC(window=10**30, **RBF).fit(X, Y).ids_.tolist() == list(range(160))


def test_named_points_go_first_then_the_oldest():
    model = IncrementalSVC(window=30, **RBF).fit(X[:30], Y[:30])
    model.update(X[30:35], Y[30:35], remove=[0, 1, 7, 28, 29, 15])      # makes room for six: nobody else goes
    left = [i for i in range(35) if i not in (0, 1, 7, 28, 29, 15)]
    equal(model, left)
    model.update(X[35:40], Y[35:40], remove=[34])
    equal(model, [*left[3:-1], *range(35, 40)])
    model.update(X[40:90], Y[40:90], remove=model.ids_[-2:])            # larger than the window
    equal(model, range(60, 90))


def test_age_is_the_order_of_arrival_and_relabelling_keeps_it():
    model = IncrementalSVC(window=20, **RBF).fit(X[:20], Y[:20], ids=range(100, 80, -1))
    model.relabel([100, 99, 81], 1 - Y[[0, 1, 19]]).reweight([98], 2.0).retune(3.0)
    model.partial_fit(X[20:23], Y[20:23], ids=["a", 5, 0])
    assert model.ids_.tolist() == [*range(97, 80, -1), "a", 5, 0]
    labels = Y.copy()
    labels[19] = 1 - Y[19]
    fresh = IncrementalSVC(**RBF).fit(X[3:23], labels[3:23])
    np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-8)


def test_ids_run_on_over_rows_that_never_entered():
    model = IncrementalSVC(window=10, **RBF).fit(X[:25], Y[:25])
    assert model.ids_.tolist() == list(range(15, 25))
    assert model.partial_fit(X[:32], Y[:32]).ids_.tolist() == list(range(47, 57))
    assert model.partial_fit(X[:1], Y[:1]).ids_[-1] == 57
    model.unlearn(model.ids_)
    assert model.partial_fit(X[:12], Y[:12]).ids_.tolist() == list(range(60, 70))


def test_ids_of_those_who_leave_are_free_in_the_same_call():
    model = IncrementalSVC(window=10, **RBF).fit(X[:10], Y[:10])
    model.partial_fit(X[10:13], Y[10:13], ids=[0, 2, 1])
    assert model.ids_.tolist() == [3, 4, 5, 6, 7, 8, 9, 0, 2, 1]
    before = snapshot(model)
    for m, ids in ((3, [3, 4, 6]), (2, [5, 11]), (12, [0] * 12), (12, range(11))):
        with pytest.raises(ValueError, match="ids"): model.partial_fit(X[:m], Y[:m], ids=ids)
        assert differing(before, snapshot(model)) == []
    model.partial_fit(X[13:25], Y[13:25], ids=range(12))                  # everyone leaves
    assert model.ids_.tolist() == list(range(2, 12))


def test_all_doors_follow_a_window_set_anew_or_leave_the_points_alone():
    base = pickle.dumps(IncrementalSVC(**RBF).fit(X[:60], Y[:60]).set_params(window=20))
    new = range(60, 65)
    for call, held in ((lambda m: m.partial_fit(X[new], Y[new]), range(45, 65)), (lambda m: m.unlearn([2, 59]), range(39, 59)),
                       (lambda m: m.update(X[new], Y[new], remove=[62 - 10]), [i for i in range(44, 65) if i != 52]),
                       (lambda m: list(m.steps(X[new], Y[new])), range(45, 65)), (lambda m: list(m.steps()), range(40, 60)),
                       (lambda m: m.fit(X[:70], Y[:70]), range(50, 70)), (lambda m: m.retune(3.0), range(60)),
                       (lambda m: m.reweight([3], 1.0), range(60)), (lambda m: m.relabel([3], Y[3]), range(60))):
        model = pickle.loads(base)
        call(model)
        equal(model, held)
    model.set_params(window=70).partial_fit(X[60:70], Y[60:70])
    equal(model, range(70))
    equal(model.set_params(window=None).partial_fit(X[70:], Y[70:]), range(160))


def test_one_path_brings_in_and_takes_out():
    blob = pickle.dumps(IncrementalSVC(window=40, **RBF).fit(X[:40], Y[:40]))
    model, twin, swap = (pickle.loads(blob) for _ in range(3))
    watching = twin.steps(X[40:55], Y[40:55])
    assert watching.ids == list(range(55))
    kinds = [event.kind for event in watching]
    model.partial_fit(X[40:55], Y[40:55])
    swap.set_params(window=None).update(X[40:55], Y[40:55], remove=range(15))
    assert kinds.count(Kind.END) == 1 and model.n_events_ == len(kinds) - 1 == twin.n_events_ == swap.n_events_
    for other in (twin, swap): assert differing(snapshot(model), snapshot(other)) == []
    watching = model.steps(X[55:100], Y[55:100])                          # five of them never enter
    assert watching.ids == [*range(15, 55), *range(60, 100)]
    for _ in watching: pass
    equal(model, range(60, 100))


def test_one_class_left_and_the_other_back_again():
    zeros, ones = np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)
    for classes in ([0, 1], [1, 0]):                                        # either class may be the one that is left
        first, second = (np.flatnonzero(Y == c) for c in classes)
        model = IncrementalSVC(window=20, **RBF).fit(X[first[:20]], Y[first[:20]], ids=first[:20].tolist())
        for rows in (second[:20], first[20:35], first[35:70], second[20:22]):
            model.partial_fit(X[rows], Y[rows], ids=rows.tolist())
            held = model.ids_.astype(int)
            equal(model, held)
            if len(set(Y[held])) == 1: assert set(model.predict(X)) == set(Y[held]) and not model.alpha_.any()
    mixed = IncrementalSVC(window=5, **RBF).fit(X[np.r_[zeros[:5], ones[:5]]], np.repeat([0, 1], 5))
    assert mixed.classes_.tolist() == [0, 1] and mixed.predict(X).tolist() == [1] * 160       # classes of all rows are known


def test_rows_that_never_enter_are_checked_all_the_same():
    model = IncrementalSVC(window=10, **RBF).fit(X[:10], Y[:10])
    before, bad, odd = snapshot(model), X[:30].copy(), Y[:30].copy()
    bad[0, 0], odd[0] = np.nan, 2
    weights = np.r_[-1.0, np.ones(29)]
    for call in (model.partial_fit, model.update, model.steps, model.fit):
        with pytest.raises(ValueError, match="NaN"): call(bad, Y[:30])
        with pytest.raises(ValueError, match="binary"): call(X[:30], odd)
        with pytest.raises(ValueError, match="negative"): call(X[:30], Y[:30], sample_weight=weights)
        with pytest.raises(ValueError, match="sample_weight"): call(X[:30], Y[:30], sample_weight=np.ones(10))
        with pytest.raises(ValueError): call(X[:30], Y[:10])
        assert differing(before, snapshot(model)) == []


def test_weights_belong_to_the_rows_that_enter():
    w = np.linspace(0.1, 3.0, 160)
    fresh = IncrementalSVC(**RBF).fit(X[140:], Y[140:], sample_weight=w[140:])
    streamed = IncrementalSVC(window=20, **RBF).fit(X[:30], Y[:30], sample_weight=w[:30])
    streamed.partial_fit(X[30:37], Y[30:37], sample_weight=w[30:37]).partial_fit(X[37:], Y[37:], sample_weight=w[37:])
    for model in (streamed, IncrementalSVC(window=20, **RBF).fit(X, Y, sample_weight=w)):
        np.testing.assert_array_equal(model.weights_, w[140:])
        np.testing.assert_allclose(model.decision_function(X), fresh.decision_function(X), atol=1e-8)
    with pytest.raises(ValueError, match="zero for every point"):
        IncrementalSVC(window=20, **RBF).fit(X, Y, sample_weight=np.arange(160) < 140)


def test_a_width_read_off_the_data_is_that_of_the_rows_learned():
    for door in ("fit", "partial_fit"):
        cut, alone = getattr(IncrementalSVC(window=30), door)(X * 2, Y), getattr(IncrementalSVC(), door)(X[130:] * 2, Y[130:])
        np.testing.assert_array_equal(cut.decision_function(X), alone.decision_function(X))


def test_given_kernels_follow_the_window():
    model = IncrementalSVC(C=3.0, kernel="precomputed", window=30).fit(K[:45, :45], Y[:45])
    for rows in (range(45, 50), range(50, 90), range(90, 159)):
        before = snapshot(model)
        for wrong in (K[rows][:, model.ids_], K[rows][:, rows], K[rows][:, [*model.ids_, *rows, 0]]):
            if wrong.shape[1] != 30 + len(rows):
                with pytest.raises(ValueError, match="features"): model.partial_fit(wrong, Y[rows])
        assert differing(before, snapshot(model)) == []
        model.partial_fit(K[rows][:, [*model.ids_, *rows]], Y[rows])
        assert model.ids_.tolist() == list(range(rows[-1] - 29, rows[-1] + 1)) and model.n_features_in_ == 30
        fresh = IncrementalSVC(**RBF).fit(X[model.ids_], Y[model.ids_])
        np.testing.assert_allclose(model.decision_function(K[:, model.ids_]), fresh.decision_function(X), atol=1e-8)
        table = model._held.state.rows.kernel
        assert table.held.sum() == 30 and not table.table[~table.held].any()            # no trace of the others
    assert model.kkt_residual() <= 1e-9


def test_points_that_a_reserve_lets_go_take_no_room_afterwards():
    model = IncrementalSVC(window=25, reserve_width=0.3, class_weight="balanced", **RBF)
    came, far_back = [], 0
    held = []
    for rows in np.split(np.arange(160), 16):
        may_stay = [*held, *rows][-25:]                                 # newcomers count before the reserve lets any go
        model.partial_fit(X[rows], Y[rows])
        came += rows.tolist()
        held = model.ids_.tolist()
        assert set(held) <= set(may_stay)
        far_back += held[0] < len(came) - 25
        assert len(held) <= 25 and held == sorted(held) and set(held) <= set(came) and model.kkt_residual() <= 1e-9
        left_early = sum(i not in held for i in came if i >= held[0])
        assert left_early <= model.n_discarded_ <= len(came) - len(held)
    assert model.n_discarded_ > 10 and far_back > 0                     # some stay for more than 25 arrivals


def test_leaving_one_out_of_a_window_brings_nobody_back():
    model = IncrementalSVC(window=30, **RBF).fit(X[:30], Y[:30]).partial_fit(X[30:40], Y[30:40])
    before, left = snapshot(model), model.leave_one_out()
    assert differing(before, snapshot(model)) == [] and left.ids.tolist() == list(range(10, 40))
    for i in range(10, 40, 7):
        rows = [j for j in range(10, 40) if j != i]
        fresh = IncrementalSVC(**RBF).fit(X[rows], Y[rows])
        np.testing.assert_allclose(left.decisions[i - 10], fresh.decision_function(X[[i]])[0], atol=1e-8)


BAD = [0, -1, 1.0, 2.5, np.float64(3), np.nan, np.inf, "10", "", True, False, np.True_, [5], np.array([5]), (), object()]


@pytest.mark.parametrize("window", BAD, ids=lambda v: type(v).__name__ + str(v)[:6])
def test_windows_that_are_refused_change_nothing(window): refused(dict(window=window), "window")


@pytest.mark.parametrize("evict", ["newest", "Oldest", "", None, 0, True, ["oldest"], np.array(["oldest", "oldest"])], ids=str)
@pytest.mark.parametrize("window", [None, 20])
def test_rules_that_are_refused_change_nothing(evict, window): refused(dict(evict=evict, window=window), "'oldest'")


def refused(params, word):
    for door in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=word): getattr(IncrementalSVC(**params), door)(X, Y)
    model = IncrementalSVC(**RBF).fit(X[:40], Y[:40])
    before = snapshot(model)
    model.set_params(**params)
    for call in (lambda: model.partial_fit(X[40:], Y[40:]), lambda: model.unlearn([0, 1]), lambda: model.fit(X, Y),
                 lambda: model.update(X[40:], Y[40:], remove=[3]), lambda: model.steps(X[40:], Y[40:]),
                 lambda: model.relabel([0], 1 - Y[0]), lambda: model.retune(1.0), lambda: model.reweight([0], 2.0)):
        with pytest.raises(ValueError, match=word): call()
        assert differing(before, snapshot(model)) == []
    equal(model.set_params(window=np.int32(30), evict="oldest").partial_fit(X[40:50], Y[40:50]), range(20, 50))


def test_files_pickles_clones_and_parameters(tmp_path):
    model = IncrementalSVC(window=np.int64(30), **RBF).fit(X[:50], Y[:50])
    model.save(tmp_path / "window.isvm")
    copies = IncrementalSVC.load(tmp_path / "window.isvm"), pickle.loads(pickle.dumps(model))
    for copy in copies:
        assert copy.get_params() == model.get_params() and copy.window == 30 and copy.evict == "oldest"
        assert differing(snapshot(model), snapshot(copy)) == []
        equal(copy.partial_fit(X[50:60], Y[50:60]), range(30, 60))
    bare = clone(model)
    assert bare.get_params() == model.get_params() and not hasattr(bare, "classes_")
    assert "window=30" in repr(bare).replace("np.int64(30)", "30") and "window" not in repr(IncrementalSVC())


def test_files_and_pickles_from_before_there_was_a_window(tmp_path):
    model = IncrementalSVC(**RBF).fit(X[:50], Y[:50])
    model.save(tmp_path / "old.isvm")
    header, arrays = read_arrays(tmp_path / "old.isvm")
    del header["params"]["window"], header["params"]["evict"]
    write_arrays(tmp_path / "old.isvm", header, arrays)
    del model.window, model.evict
    for old in (IncrementalSVC.load(tmp_path / "old.isvm"), pickle.loads(pickle.dumps(model))):
        assert old.window is None and old.evict == "oldest" and old.get_params()["window"] is None
        equal(old.partial_fit(X[50:60], Y[50:60]), range(60))
        equal(old.set_params(window=20).partial_fit(X[60:65], Y[60:65]), range(45, 65))


@pytest.mark.parametrize("window", [45, 10**6])
def test_check_estimator(window):
    "A window that cuts off rows cannot treat a weight of two as two rows; nothing else fails, whatever it cuts."
    checks = check_estimator(IncrementalSVC(gamma=0.5, window=window), on_fail=None, on_skip=None)
    failed = {check["check_name"] for check in checks if check["status"] == "failed"}
    assert failed <= ({"check_sample_weight_equivalence_on_dense_data"} if window == 45 else set())


def test_a_search_may_include_the_window():
    search = GridSearchCV(IncrementalSVC(**RBF), {"window": [5, 50, None]}, cv=3).fit(X, Y)
    assert search.best_params_["window"] != 5 and search.best_estimator_.kkt_residual() <= 1e-9


# All or nothing

N, NEW = 24, np.arange(24, 37)
MODELS = {
    "plain": lambda: IncrementalSVC(window=N, **RBF).fit(X[:N], Y[:N]),
    "balanced": lambda: IncrementalSVC(window=N, class_weight="balanced", **RBF).fit(X[:N], Y[:N]),
    "precomputed": lambda: IncrementalSVC(C=3.0, kernel="precomputed", window=N).fit(K[:N, :N], Y[:N]),
    "shrunk": lambda: IncrementalSVC(**RBF).fit(X[:N], Y[:N]).set_params(window=9),
    "one class": lambda: IncrementalSVC(window=N, **RBF).fit(X[:N], np.zeros(N, int)),
}
CALLS = {
    "partial_fit": lambda m: m.partial_fit(points(m), Y[NEW]),
    "update": lambda m: m.update(points(m), Y[NEW], remove=[1, 2, 23], ids=[f"new {i}" for i in NEW]),
    "unlearn": lambda m: m.unlearn([0, 20]),
    "fit": lambda m: m.fit(K[40:80, 40:80] if m.kernel == "precomputed" else X[40:80], Y[40:80]),
}


def points(model): return K[NEW][:, np.r_[:N, NEW]] if model.kernel == "precomputed" else X[NEW]


def base(name, blobs={}):
    "A pickled model; copies of it answer every call to the same bit."
    if name not in blobs: blobs[name] = pickle.dumps(MODELS[name]())
    return blobs[name]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", MODELS)
def test_ctrl_c_at_any_line(name, call):
    "The old window or the new one, never anything between."
    old, whole = snapshot(pickle.loads(base(name))), pickle.loads(base(name))
    total, _ = interrupt_at_line(-1, lambda: CALLS[call](whole))
    new, rng = snapshot(whole), np.random.default_rng(0)
    assert len(whole.ids_) <= whole.window
    for k in sorted({*range(1, 60, 2), *rng.integers(1, total, 20).tolist(), *range(max(1, total - 50), total + 1)}):
        model = pickle.loads(base(name))
        _, stopped = interrupt_at_line(k, lambda: CALLS[call](model))
        assert stopped, "Ctrl-C was lost"
        off_old, off_new = differing(old, snapshot(model)), differing(new, snapshot(model))
        assert not off_old or not off_new, f"line {k} of {total}: neither the old window {off_old} nor the new {off_new}"
        if k % 10 == 0 and not off_old:
            CALLS[call](model)
            assert model.ids_.tolist() == whole.ids_.tolist() and model.kkt_residual() <= 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_steps_closed_early_evict_nobody(name):
    total, model = sum(1 for _ in pickle.loads(base(name)).steps(points(pickle.loads(base(name))), Y[NEW])), pickle.loads(base(name))
    before = snapshot(model)
    for k in range(1, total + 1):
        watching = model.steps(points(model), Y[NEW])
        for _ in range(k): next(watching)
        watching.close()
        assert differing(before, snapshot(model)) == [], k
    watching = model.steps(points(model), Y[NEW])
    model.set_params(window=5)                                              # while it is open: it is that of the call
    for _ in watching: pass
    assert len(model.ids_) == (9 if name == "shrunk" else N) and model.kkt_residual() <= 1e-9


def test_an_update_that_fails_on_its_way_leaves_the_window():
    odd = IncrementalSVC(kernel="sigmoid", gamma=1.0, window=140).fit(X[:40], Y[:40])
    before = snapshot(odd)
    with pytest.raises(PathError): odd.partial_fit(X[40:] * 3, 1 - Y[40:])
    assert differing(before, snapshot(odd)) == []


def test_an_id_of_a_row_that_never_entered_is_not_given_to_another():
    X, y = np.arange(4.0)[:, None], [0, 1, 0, 1]
    model = IncrementalSVC(gamma=1.0, window=2).fit(X[:3], y[:3], ids=[5, 3, 4]).partial_fit(X[3:], y[3:])
    assert model.ids_.tolist() == [4, 6]
