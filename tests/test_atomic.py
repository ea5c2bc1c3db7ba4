"""All or nothing: whatever stops a call, the model is afterwards the old one to the last bit, and goes on.

A Ctrl-C that arrives when the update is already whole may find the new one; never anything between."""
import os, pickle, signal, threading

import numpy as np
import pytest

from histories import KERNELS, differing, interrupt_at_line, snapshot
from isvm import IncrementalSVC
from isvm.engine import change, follow, settle
from isvm.engine.core import PathError
from isvm.estimators.held import Held

RNG = np.random.default_rng(5)
X = RNG.normal(size=(60, 2))
Y = (X[:, 0] + 0.7 * RNG.normal(size=60) > 0).astype(int)
K = KERNELS["rbf"][1](X, X)
N = 24

MODELS = {  # name → how to make it
    "plain": lambda: IncrementalSVC(C=10.0, gamma=0.7).fit(X[:N], Y[:N]),
    "linear": lambda: IncrementalSVC(C=10.0, kernel="linear").fit(np.round(X[:N]), np.arange(N) // 2 % 2),
    "balanced": lambda: IncrementalSVC(C=10.0, gamma=0.7, class_weight="balanced").fit(X[:N], Y[:N]),
    "precomputed": lambda: IncrementalSVC(C=10.0, kernel="precomputed").fit(K[:N, :N], Y[:N]),
    "one class": lambda: IncrementalSVC(C=10.0, gamma=0.7).fit(X[:N], np.zeros(N, int)),
}


def points(model, rows):
    "New points as this model wants them."
    return K[rows][:, np.r_[:N, rows]] if model.kernel == "precomputed" else X[rows]


NEW = np.arange(N, N + 9)
CALLS = {  # name → a call that changes the model
    "partial_fit": lambda m: m.partial_fit(points(m, NEW), Y[NEW]),
    "unlearn": lambda m: m.unlearn([0, 3, 4, 8, 11, 12, 19]),
    "update": lambda m: m.update(points(m, NEW), Y[NEW], remove=[1, 2, 5, 8, 20], ids=[f"new {i}" for i in NEW]),
    "relabel": lambda m: m.relabel([2, 3, 7, 9, 10], 1 - Y[[2, 3, 7, 9, 10]]),
    "retune": lambda m: m.retune(0.3),
    "reweight": lambda m: m.reweight([1, 4, 6, 7], [0.0, 3.0, 0.5, 2.0]),
    "fit": lambda m: m.fit(K[N:2 * N, N:2 * N] if m.kernel == "precomputed" else X[N:2 * N], Y[N:2 * N]),
}
PAIRS = [(m, c) for m in MODELS for c in CALLS]


def base(name, blobs={}):
    "A pickled model; copies of it answer every call to the same bit."
    if name not in blobs: blobs[name] = pickle.dumps(MODELS[name]())
    return blobs[name]


def assert_usable(model):
    "The model goes on: it can be changed and is exact."
    model.retune(2.0)
    assert model.kkt_residual() <= 1e-9
    model.unlearn(model.ids_[:5])
    assert model.kkt_residual() <= 1e-9


class Stop(Exception): "An error from outside."


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("name", MODELS)
def test_stopped_at_any_event(name, error):
    def steps(m): return m.steps(points(m, NEW), Y[NEW], remove=[1, 2, 5, 8, 20])
    model = pickle.loads(base(name))
    before, total = snapshot(model), sum(1 for _ in steps(pickle.loads(base(name))))
    assert total > 3
    for k in range(1, total + 1):
        watching = steps(model)
        for _ in range(k): next(watching)
        if error is GeneratorExit: watching.close()
        else:
            with pytest.raises(error): watching.throw(error)
        assert differing(before, snapshot(model)) == [], k
    assert_usable(model)


VERBS = [(follow, "step_on"), (follow, "respond"), (follow, "first_event"), (follow, "advance"), (follow, "join"), (follow, "release"),
         (follow, "fill_margin"), (follow, "finish"), (settle, "follow"), (settle, "violation"), (change, "enter"),
         (change, "leave"), (change, "put_in_place"), (change, "conclude"), (change, "place_bias"), (Held, "strike"), (Held, "enlist")]


@pytest.mark.parametrize("verb", VERBS, ids=lambda v: v[1])
def test_any_verb_may_fail_at_any_of_its_calls(monkeypatch, verb):
    owner, attribute = verb
    real, left, after = getattr(owner, attribute), 0, False

    def failing(*args, **options):
        nonlocal left
        left -= 1
        if left >= 0: return real(*args, **options)
        if after: real(*args, **options)
        raise Stop
    monkeypatch.setattr(owner, attribute, failing)
    for name, call in PAIRS:
        if call == "fit" and owner in (change, Held): continue
        for allowed in (0, 1, 2, 5, 11):
            for after in (False, True):
                model = pickle.loads(base(name))
                before, left = snapshot(model), allowed
                try: CALLS[call](model)
                except Stop:
                    assert differing(before, snapshot(model)) == [], (name, call, allowed, after)
                    left = 10**9
                    assert_usable(model)


@pytest.mark.parametrize("name, call", PAIRS)
def test_ctrl_c_at_any_line(name, call):
    old, whole = snapshot(pickle.loads(base(name))), pickle.loads(base(name))
    total, _ = interrupt_at_line(-1, lambda: CALLS[call](whole))
    new = snapshot(whole)
    rng = np.random.default_rng(0)
    for k in sorted({*range(1, 30), *rng.integers(1, total, 40).tolist(), *range(max(1, total - 90), total + 1)}):
        model = pickle.loads(base(name))
        _, stopped = interrupt_at_line(k, lambda: CALLS[call](model))
        assert stopped, "Ctrl-C was lost"
        off_old, off_new = differing(old, snapshot(model)), differing(new, snapshot(model))
        assert not off_old or not off_new, f"line {k} of {total}: neither the old model {off_old} nor the new {off_new}"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if k % 10 == 0: assert_usable(model)


@pytest.mark.parametrize("name", ["precomputed", "one class"])
def test_ctrl_c_at_every_line_until_the_path_has_begun(name):
    "Signs are turned and rows of the table taken there."
    old = snapshot(pickle.loads(base(name)))
    for k in range(100, 400):
        model = pickle.loads(base(name))
        assert interrupt_at_line(k, lambda: CALLS["partial_fit"](model))[1], "Ctrl-C was lost"
        assert differing(old, snapshot(model)) == [], f"line {k}"


@pytest.mark.parametrize("name", MODELS)
def test_ctrl_c_while_an_iterator_is_closed(name):
    old = snapshot(pickle.loads(base(name)))

    def half_way(model):
        watching = model.steps(points(model, NEW), Y[NEW], remove=[1, 2, 5])
        for _ in range(3): next(watching)
        return watching
    total, _ = interrupt_at_line(-1, half_way(pickle.loads(base(name))).close)
    for k in range(1, total + 1):
        model = pickle.loads(base(name))
        interrupt_at_line(k, half_way(model).close)
        assert differing(old, snapshot(model)) == [], f"line {k} of {total}"
        assert_usable(model)


def test_ctrl_c_at_random_moments():
    "Real signals, sent from another thread."
    rng, stopped = np.random.default_rng(0), 0
    for trial in range(150):
        name, call = PAIRS[rng.integers(len(PAIRS))]
        whole, model = pickle.loads(base(name)), pickle.loads(base(name))
        CALLS[call](whole)
        old, new = snapshot(model), snapshot(whole)
        timer = threading.Timer(float(rng.uniform(0, 4e-3)), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            CALLS[call](model)
            timer.join()
            for _ in range(1000): pass
        except KeyboardInterrupt: stopped += 1
        timer.join()
        assert not differing(old, snapshot(model)) or not differing(new, snapshot(model)), (trial, name, call)
        assert_usable(model)
    assert stopped > 20


def test_precomputed_rows_of_failed_updates_are_free_again():
    model = pickle.loads(base("precomputed"))
    for _ in range(5):
        watching = model.steps(points(model, NEW), Y[NEW])
        next(watching)
        watching.close()
        with pytest.raises(ValueError): model.partial_fit(points(model, NEW), Y[NEW], ids=[0] * 9)
    assert model._held.state.rows.kernel.held.sum() == N


def test_a_second_update_is_refused_while_one_is_open():
    model = pickle.loads(base("plain"))
    before, watching = snapshot(model), model.steps(X[NEW], Y[NEW])
    next(watching)
    for call in CALLS.values():
        if call is CALLS["fit"]: continue
        with pytest.raises(RuntimeError, match="under way"): call(model)
    watching.close()
    assert differing(before, snapshot(model)) == []
    assert_usable(model)


def test_a_failed_path_leaves_the_model():
    odd = IncrementalSVC(kernel="sigmoid", gamma=1.0).fit(X[:20], Y[:20])
    before = snapshot(odd)
    with pytest.raises(PathError): odd.partial_fit(X[20:], Y[20:])
    assert differing(before, snapshot(odd)) == []


NAN, WIDE = np.array([[0.0, np.nan]]), np.zeros((1, 3))
BAD = {  # what is wrong → the call, the error, a word its message must hold
    "fit: NaN": (lambda m: m.fit(NAN, [1]), ValueError, "NaN"),
    "fit: infinity": (lambda m: m.fit([[np.inf, 0.0]], [1]), ValueError, "infinity"),
    "fit: labels too few": (lambda m: m.fit(X[:3], Y[:2]), ValueError, "3.*2"),
    "fit: wider, labels too few": (lambda m: m.fit(np.zeros((3, 5)), Y[:2]), ValueError, "3.*2"),
    "fit: three classes": (lambda m: m.fit(X[:3], [0, 1, 2]), ValueError, "binary"),
    "fit: wider, three classes": (lambda m: m.fit(np.zeros((3, 5)), [0, 1, 2]), ValueError, "binary"),
    "fit: continuous labels": (lambda m: m.fit(X[:3], [0.5, 1.5, 2.25]), ValueError, "continuous"),
    "fit: NaN label": (lambda m: m.fit(X[:2], [0.0, np.nan]), ValueError, "NaN|nan"),
    "fit: no labels": (lambda m: m.fit(X[:3], None), ValueError, "y"),
    "fit: empty": (lambda m: m.fit(X[:0], Y[:0]), ValueError, "0 sample"),
    "fit: one dimension": (lambda m: m.fit(X[0], Y[:2]), ValueError, "2D|2 dim"),
    "fit: negative weight": (lambda m: m.fit(X[:3], Y[:3], sample_weight=[1, -1, 1]), ValueError, "negative"),
    "fit: NaN weight": (lambda m: m.fit(X[:3], Y[:3], sample_weight=[1, np.nan, 1]), ValueError, "finite"),
    "fit: weights too few": (lambda m: m.fit(X[:3], Y[:3], sample_weight=[1, 1]), ValueError, "sample_weight"),
    "fit: wider, negative weight": (lambda m: m.fit(np.zeros((3, 5)), Y[:3], sample_weight=[1, -1, 1]), ValueError, "negative"),
    "fit: duplicate ids": (lambda m: m.fit(X[:3], Y[:3], ids=[1, 1, 2]), ValueError, "unique"),
    "fit: wider, duplicate ids": (lambda m: m.fit(np.zeros((3, 5)), Y[:3], ids=[1, 1, 2]), ValueError, "unique"),
    "fit: ids too few": (lambda m: m.fit(X[:3], Y[:3], ids=[1, 2]), ValueError, "ids"),
    "fit: unhashable id": (lambda m: m.fit(X[:1], Y[:1], ids=[[1]]), (ValueError, KeyError), "hash"),
    "partial_fit: NaN": (lambda m: m.partial_fit(NAN, [1]), ValueError, "NaN"),
    "partial_fit: list with NaN": (lambda m: m.partial_fit([[0.0, None]], [1]), ValueError, "NaN"),
    "partial_fit: wide": (lambda m: m.partial_fit(WIDE, [1]), ValueError, "3 features"),
    "partial_fit: one dimension": (lambda m: m.partial_fit(X[0], [1]), ValueError, "2D|2 dim"),
    "partial_fit: text": (lambda m: m.partial_fit([["a", "b"]], [1]), ValueError, "convert|number"),
    "partial_fit: third class": (lambda m: m.partial_fit(X[:1], [2]), ValueError, "binary"),
    "partial_fit: third class announced": (lambda m: m.partial_fit(X[:1], [1], classes=[0, 1, 2]), ValueError, "binary"),
    "partial_fit: labels too many": (lambda m: m.partial_fit(X[:1], [1, 0]), ValueError, "labels"),
    "partial_fit: no labels": (lambda m: m.partial_fit(X[:1], None), ValueError, "y"),
    "partial_fit: id in use": (lambda m: m.partial_fit(X[:1], [1], ids=[3]), ValueError, "already held"),
    "partial_fit: ids twice": (lambda m: m.partial_fit(X[:2], [1, 0], ids=["a", "a"]), ValueError, "unique"),
    "partial_fit: ids too many": (lambda m: m.partial_fit(X[:1], [1], ids=["a", "b"]), ValueError, "2 ids"),
    "partial_fit: unhashable id": (lambda m: m.partial_fit(X[:1], [1], ids=[{}]), (ValueError, KeyError), "hash"),
    "partial_fit: negative weight": (lambda m: m.partial_fit(X[:1], [1], sample_weight=[-1.0]), ValueError, "negative"),
    "partial_fit: infinite weight": (lambda m: m.partial_fit(X[:1], [1], sample_weight=[np.inf]), ValueError, "finite"),
    "partial_fit: matrix of weights": (lambda m: m.partial_fit(X[:1], [1], sample_weight=[[1.0]]), ValueError, "sample_weight"),
    "update: NaN": (lambda m: m.update(NAN, [1], remove=[0]), ValueError, "NaN"),
    "update: unknown id": (lambda m: m.update(X[:1], [1], remove=["x"]), KeyError, "x"),
    "update: id twice": (lambda m: m.update(X[:1], [1], remove=[0, 0]), ValueError, "twice"),
    "update: third class": (lambda m: m.update(X[:1], ["b"], remove=[0]), ValueError, ""),
    "update: negative weight": (lambda m: m.update(X[:1], [1], remove=[0], sample_weight=[-2]), ValueError, "negative"),
    "steps: NaN": (lambda m: m.steps(NAN, [1]), ValueError, "NaN"),
    "steps: unknown id": (lambda m: m.steps(remove=[99]), KeyError, "99"),
    "steps: no labels": (lambda m: m.steps(X[:1]), ValueError, "y"),
    "unlearn: unknown id": (lambda m: m.unlearn([0, 99]), KeyError, "99"),
    "unlearn: unknown text": (lambda m: m.unlearn("nobody"), KeyError, "nobody"),
    "unlearn: id twice": (lambda m: m.unlearn([2, 2]), ValueError, "twice"),
    "unlearn: unhashable id": (lambda m: m.unlearn([[0]]), (ValueError, KeyError), ""),
    "relabel: unknown id": (lambda m: m.relabel([99], [1]), KeyError, "99"),
    "relabel: third class": (lambda m: m.relabel([0], [7]), ValueError, "binary"),
    "relabel: labels too few": (lambda m: m.relabel([0, 1], [1]), ValueError, "labels"),
    "relabel: id twice": (lambda m: m.relabel([1, 1], [0, 1]), ValueError, "twice"),
    "relabel: no labels": (lambda m: m.relabel([1], None), ValueError, "y"),
    "reweight: unknown id": (lambda m: m.reweight([99], [1]), KeyError, "99"),
    "reweight: negative": (lambda m: m.reweight([0], [-1]), ValueError, "negative"),
    "reweight: NaN": (lambda m: m.reweight([0], [np.nan]), ValueError, "finite"),
    "reweight: too few": (lambda m: m.reweight([0, 1], [1.0]), ValueError, "sample_weight"),
    "reweight: text": (lambda m: m.reweight([0], ["heavy"]), ValueError, ""),
    "retune: zero": (lambda m: m.retune(0.0), ValueError, "C = 0"),
    "retune: negative": (lambda m: m.retune(-1.0), ValueError, "C = -1"),
    "retune: NaN": (lambda m: m.retune(np.nan), ValueError, "C = nan"),
    "retune: infinite": (lambda m: m.retune(np.inf), ValueError, "C = inf"),
    "retune: text": (lambda m: m.retune("1"), ValueError, "C = '1'"),
    "decision_function: wide": (lambda m: m.decision_function(WIDE), ValueError, "3 features"),
    "predict: NaN": (lambda m: m.predict(NAN), ValueError, "NaN"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_refused_before_anything_changes(request, what):
    call, error, word = BAD[what]
    model = pickle.loads(base("plain"))
    before = snapshot(model)
    with pytest.raises(error, match=f"(?s){word}") as caught: call(model)
    assert len(str(caught.value)) > 20
    assert differing(before, snapshot(model)) == []
    assert_usable(model)


@pytest.mark.parametrize("params", [dict(C=0), dict(C=-1.0), dict(C="a"), dict(C=np.nan), dict(kernel="gauss"), dict(gamma=0.0),
                                    dict(gamma="wide"), dict(degree=-1), dict(degree=1.5), dict(coef0=np.nan), dict(cache_size=0),
                                    dict(class_weight="even"), dict(class_weight={0: -1.0})], ids=str)
def test_bad_parameters_are_refused_at_fit(params):
    with pytest.raises(ValueError, match=next(iter(params))): IncrementalSVC(**params).fit(X, Y)
    model = pickle.loads(base("plain"))
    before = snapshot(model)
    model.set_params(**params)
    with pytest.raises(ValueError): model.fit(X, Y)
    after = snapshot(model)
    assert differing(before, after) in ([], ["C"])


@pytest.mark.parametrize("K_new", [K[N:N + 2, :N], K[N:N + 2, :N + 3], np.full((1, N + 1), np.nan), np.c_[K[N:N + 2, :N], [[1.0, 0.1], [0.2, 1.0]]]],
                         ids=["only held", "too wide", "NaN", "asymmetric"])
def test_bad_kernel_values_are_refused(K_new):
    model = pickle.loads(base("precomputed"))
    before = snapshot(model)
    with pytest.raises(ValueError): model.partial_fit(K_new, np.arange(len(K_new)) % 2)
    assert differing(before, snapshot(model)) == []
    assert model._held.state.rows.kernel.held.sum() == N
    assert_usable(model)
