"A recording tells what happened: the update is the same with and without it, and every frame solves its own problem."
from copy import deepcopy

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from histories import KERNELS, monks
from isvm import IncrementalSVC
from isvm.datasets import moons
from isvm.engine.core import Kind, Status
from isvm.recorder import record

ARRAYS = "alpha_", "margins_", "status_", "intercept_", "ids_", "labels_", "weights_"


def check_frames(tape, formula, sure=1e-8):
    "KKT of every frame from a kernel matrix of our own: g afresh, sets by their definition, α in its box and balanced."
    K = formula(tape.X, tape.X)
    stalled = any(f.event and f.event.kind is Kind.PERTURB for f in tape.frames)
    for i, f in enumerate(tape.frames):
        g = tape.a * (K @ (tape.a * f.alpha) + f.bias) - 1.0
        tol = max(sure, 1e-13 * np.abs(K).max(initial=0.0) * f.alpha.sum())
        np.testing.assert_allclose(f.g, g, atol=1e-4 if stalled and i < len(tape) - 1 else tol)  # p is perturbed on the way
        np.testing.assert_allclose(tape.decision(i, tape.X), K @ (tape.a * f.alpha) + f.bias, atol=tol)
        rest = np.where(tape.u > 0, f.g, 0.0)
        assert (np.abs(rest[f.status == Status.MARGIN]) <= tol).all()
        assert (rest[f.status == Status.RESERVE] >= -tol).all() and (rest[f.status == Status.ERROR] <= tol).all()
        assert not f.alpha[f.status == Status.RESERVE].any()
        np.testing.assert_allclose(f.alpha[f.status == Status.ERROR], tape.u[f.status == Status.ERROR], rtol=1e-12)
        scale = tape.u.max(initial=1.0)
        assert f.alpha.min(initial=0.0) >= -1e-12 * scale and (f.alpha <= tape.u + 1e-12 * scale).all()
        at_rest = ~np.isin(f.status, (Status.ADDED, Status.REMOVED))
        if at_rest.all(): assert abs(tape.a @ f.alpha) <= 1e-9 * scale
        assert tape.sentence(i).endswith(".") and tape.sentence(i)[0].isupper()
    assert tape.times[0] == 0.0 and tape.alphas.shape == tape.gs.shape == (len(tape), len(tape.a))


def recorded(model, formula, *args, **options):
    "A recording, checked against the same update without one."
    watched, plain = deepcopy(model), deepcopy(model)
    n = len(plain.ids_)
    tape = record(watched, *args, **options)
    for _ in plain.steps(*args, **options): pass
    for name in ARRAYS: np.testing.assert_array_equal(getattr(watched, name), getattr(plain, name))
    assert watched.n_events_ == plain.n_events_ == sum(f.event is not None and f.event.kind is not Kind.END for f in tape.frames)
    last, gone = tape.frames[-1], [k for k in tape.moving if k < n]
    kept = np.delete(np.arange(len(tape.a)), gone)
    for name, values in (("alpha_", last.alpha), ("margins_", last.g), ("status_", last.status), ("ids_", np.array(tape.ids, object))):
        np.testing.assert_array_equal(getattr(watched, name), values[kept])
    assert last.bias == watched.intercept_[0] and not last.alpha[gone].any()
    assert (last.status[gone] == Status.REMOVED).all() and tape.frames[0].event is None
    if formula: check_frames(tape, formula)
    return tape


def fitted(name, X, y, C=10.0, **options):
    params, formula = KERNELS[name]
    return IncrementalSVC(C=C, **params, **options).fit(X, y), formula


@pytest.mark.parametrize("name", ["rbf", "linear", "poly2", "callable"])
def test_points_come_and_go_at_once(name):
    X, y = moons(100)
    model, formula = fitted(name, X[:60], y[:60])
    tape = recorded(model, formula, X[60:], y[60:], remove=range(0, 30, 3))
    assert len(tape) > 3 and len(tape.moving) == 50 and len(tape.added) == 40
    assert tape.ids == list(range(100)) and "unlearned: 10" in tape.sentence(-1)
    np.testing.assert_array_equal(tape.X, X)


@pytest.mark.parametrize("name", ["linear", "poly2"])
def test_grids_tie_and_every_frame_is_still_solved(name):
    X, y = monks(1)
    rows = np.random.default_rng(1).permutation(432)[:140]
    model, formula = fitted(name, X[rows[:80]], y[rows[:80]], C=1.0)
    assert len(recorded(model, formula, X[rows[80:]], y[rows[80:]], remove=range(20))) > 20


def test_copies_and_contradictions():
    X = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], 10, axis=0)
    y = np.tile([0, 1], 20)
    model, formula = fitted("linear", X[:6], y[:6], C=1.0)
    recorded(model, formula, X[6:], y[6:])
    recorded(model, formula, X[6:], y[6:], remove=model.ids_)


def test_every_kind_of_event_has_its_sentence():
    "Monk 2 under a linear kernel, from nothing: ties, exchanges, flips, shifts, perturbations and their way back."
    X, y = monks(2)
    rows = np.random.default_rng(0).permutation(432)
    model, formula = fitted("linear", X[:50], y[:50], C=0.1)
    tape = recorded(model.unlearn(model.ids_), formula, X[rows], y[rows])
    said = {f.event.kind: tape.sentence(i) for i, f in enumerate(tape.frames[:-1]) if f.event}
    assert set(said) == set(Kind)
    for kind, words in {Kind.JOIN: "joins it", Kind.LEAVE: "leaves the margin", Kind.EXCHANGE: "takes the place of new point",
                        Kind.FLIP: "its coefficient", Kind.SHIFT: "the bias moves", Kind.PERTURB: "stalls", Kind.END: "driven out"}.items():
        assert words in said[kind]
    assert tape.sentence(-1).startswith("The update is complete. New points: ")


def test_one_point_in_both_endings_and_out():
    X, y = moons(80)
    model, formula = fitted("rbf", X[:50], y[:50])
    ends = set()
    for i in range(50, 80):
        tape = recorded(model, formula, X[i:i + 1], y[i:i + 1])
        model.partial_fit(X[i:i + 1], y[i:i + 1])
        status = model.status_[-1]
        ends.add(int(status))
        expected = {0: "in reserve", 1: "on the margin", 2: "it is an error point"}[int(status)]
        assert expected in tape.sentence(-1) or "goes straight into reserve" in tape.sentence(-1)
        assert tape.sentence(0).startswith("The new point has margin g = ")
        out = recorded(model, formula, remove=[model.ids_[-1]])
        assert out.moving.tolist() == [len(model.ids_) - 1] and len(out.added) == 0
        if status: assert out.sentence(-1) == f"Point {model.ids_[-1]}'s coefficient has arrived at 0: it is unlearned."
    assert ends == {0, 1, 2}


def test_an_update_without_events_has_one_frame():
    X, y = moons(60)
    model, formula = fitted("rbf", X, y)
    far, side = np.array([[-1.0, 0.6]]), [0]
    tape = recorded(model, formula, far, side)
    assert len(tape) == 1 and tape.sentence(0).endswith("goes straight into reserve, and nothing has to move.")
    assert tape.moving.tolist() == [60] and tape.frames[0].status[60] == Status.RESERVE
    idle = model.ids_[model.status_ == Status.RESERVE][0]
    tape = recorded(model, formula, remove=[idle])
    assert len(tape) == 1 and tape.sentence(-1) == f"Point {idle} is to go; its coefficient is 0 already, and nothing has to move."
    tape = recorded(model, formula)
    assert len(tape) == 1 and len(tape.moving) == 0 and tape.sentence(0).startswith("To add: 0")


def test_a_bias_that_only_reserve_points_hold():
    "All α at bounds: removing a reserve point moves the bias and nothing else."
    line, sides = np.array([[0.0], [1.0], [2.0], [4.0]]), np.array([0, 1, 0, 1])
    params, formula = KERNELS["rbf"]
    model = IncrementalSVC(C=0.05, **params).fit(line, sides)
    for k in range(4): recorded(model, formula, remove=[k])
    recorded(model, formula, [[0.5]], [0])


def test_from_nothing_to_nothing():
    X, y = moons(20)
    model, formula = fitted("rbf", X, y)
    recorded(model, formula, remove=model.ids_)
    model.unlearn(model.ids_)
    assert recorded(model, formula).frames[0].alpha.shape == (0,)
    tape = recorded(model, formula, X, y)
    assert len(tape) > 5 and tape.ids == list(range(20, 40)) and len(tape.added) == 20


@pytest.mark.parametrize("first", [0, 1])
def test_the_second_class_turns_all_signs(first):
    X, y = moons(40)
    ones, others = np.flatnonzero(y == first), np.flatnonzero(y != first)
    model, formula = fitted("rbf", X[ones], y[ones])
    tape = recorded(model, formula, X[others], y[others])
    np.testing.assert_array_equal(tape.a, np.where(np.r_[y[ones], y[others]] == 1, 1.0, -1.0))
    still = recorded(model, formula, X[others[:1]], y[others[:1]], sample_weight=[0.0])
    assert len(still) == 1


def test_weights_ids_and_bounds_on_the_move():
    X, y = moons(50)
    params, formula = KERNELS["rbf"]
    model = IncrementalSVC(C=2.0, class_weight="balanced", **params).fit(X[:40], y[:40], ids=[f"p{i}" for i in range(40)])
    tape = recorded(model, None, X[40:], y[40:], remove=["p3", "p5"], sample_weight=np.arange(10.0), ids=list("abcdefghij"))
    assert tape.ids[-10:] == list("abcdefghij") and tape.ids[3] == "p3"
    assert tape.u[40] == 0.0 and tape.frames[-1].alpha[40] == 0.0
    watched = deepcopy(model)
    assert record(watched, remove="p3").ids[3] == "p3"                # one id may stand alone
    assert record(watched, remove=(name for name in ["p5"])).moving.tolist() == [4]


def test_precomputed_kernel_values():
    X, y = moons(40)
    params, formula = KERNELS["rbf"]
    K = formula(X, X)
    given = IncrementalSVC(C=10.0, kernel="precomputed").fit(K[:30, :30], y[:30])
    plain = IncrementalSVC(C=10.0, **params).fit(X[:30], y[:30])
    tapes = [recorded(given, None, K[30:, :], y[30:], remove=range(3)), recorded(plain, formula, X[30:], y[30:], remove=range(3))]
    np.testing.assert_allclose(tapes[0].alphas, tapes[1].alphas, atol=1e-8)
    np.testing.assert_allclose(tapes[0].gs, tapes[1].gs, atol=1e-8)
    for i in range(len(tapes[0])):
        np.testing.assert_allclose(tapes[0].decision(i, K), tapes[1].decision(i, X), atol=1e-8)


def test_bad_input_changes_nothing():
    X, y = moons(30)
    model, _ = fitted("rbf", X, y)
    before = model.alpha_
    with pytest.raises(NotFittedError): record(IncrementalSVC(), X, y)
    with pytest.raises(KeyError): record(model, remove=[99])
    with pytest.raises(ValueError): record(model, [[np.nan, 0.0]], [0])
    with pytest.raises(ValueError): record(model, X[:1], y[:1], ids=[3])
    tape = record(model)
    with pytest.raises(ValueError, match="Z has 3 features"): tape.decision(0, np.zeros((1, 3)))
    with pytest.raises(IndexError): tape.sentence(1)
    steps = model.steps(X[:1] + 1.0, y[:1])
    next(steps)
    with pytest.raises(RuntimeError, match="under way"): record(model, remove=[0])
    steps.close()
    np.testing.assert_array_equal(model.alpha_, before)


@pytest.mark.parametrize("params, m, remove", [
    (dict(window=20), 5, ()), (dict(window=20), 30, ()), (dict(window=20), 3, (2,)), (dict(reserve_width=0.1), 5, (2,))])
def test_points_that_leave_unasked_are_recorded_too(params, m, remove):
    "A window evicts, a batch may be larger than it, and reserve_width discards: the recording still is the update."
    X, y = moons(60)
    model, other = (IncrementalSVC(C=2.0, gamma=1.0, **params).fit(X[:20], y[:20]) for _ in range(2))
    remove = [model.ids_[k] for k in remove]
    seen = record(model, X[20:20 + m], y[20:20 + m], remove=remove)
    other.update(X[20:20 + m], y[20:20 + m], remove=remove)
    assert model.ids_.tolist() == other.ids_.tolist()
    at = [seen.ids.index(name) for name in model.ids_]
    np.testing.assert_array_equal(seen.frames[-1].alpha[at], model.alpha_)
    np.testing.assert_allclose(seen.frames[-1].g[at], model.margins_, atol=1e-12)
