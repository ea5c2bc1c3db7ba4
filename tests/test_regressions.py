"""What once went wrong, each in the smallest case that showed it."""
import pickle

import joblib
import numpy as np
import pytest

from histories import assert_exact, certificate, differing, interrupt_at_line, snapshot
from isvm import IncrementalSVC
from isvm.engine.core import PathError

LINE, SIDES = np.array([[-2.0], [-1.0], [0.5], [1.0], [3.0]]), np.array([0, 1, 0, 1, 1])


def whole_or_nothing(call, model):
    "Ctrl-C at every line of a call finds the old model or the new one, data included, and leaves it exact."
    blob = pickle.dumps(model)
    old, new = snapshot(pickle.loads(blob)), pickle.loads(blob)
    lines, _ = interrupt_at_line(-1, lambda: call(new))
    for k in range(1, lines + 1):
        model = pickle.loads(blob)
        interrupt_at_line(k, lambda: call(model))
        now = snapshot(model)
        assert not differing(old, now) or not differing(snapshot(new), now), f"line {k} of {lines}"


def test_ctrl_c_at_the_end_of_unlearning_moves_no_sample():
    whole_or_nothing(lambda m: m.unlearn([0]), IncrementalSVC(gamma=1.0).fit(LINE, SIDES))


def test_ctrl_c_at_the_end_of_learning_leaves_as_many_names_as_points():
    whole_or_nothing(lambda m: m.partial_fit([[4.0]], [0]), IncrementalSVC(gamma=1.0).fit(LINE, SIDES))


def test_ctrl_c_at_the_end_of_retuning_keeps_c_and_bounds_together():
    whole_or_nothing(lambda m: m.retune(3.0), IncrementalSVC(gamma=1.0).fit(LINE, SIDES))


def test_ctrl_c_at_the_end_of_reweighting_keeps_weights_and_bounds_together():
    whole_or_nothing(lambda m: m.reweight([0], [2.0]), IncrementalSVC(gamma=1.0).fit(LINE, SIDES))


def test_ctrl_c_as_a_second_class_arrives_keeps_classes_and_signs_together():
    whole_or_nothing(lambda m: m.partial_fit([[4.0]], [1]), IncrementalSVC(gamma=1.0).fit(LINE, np.zeros(5, int)))


def test_numbers_are_no_labels_of_a_model_that_knows_strings():
    model = IncrementalSVC(gamma=1.0).fit(LINE, SIDES.astype(str))
    with pytest.raises(ValueError, match="label|class"): model.partial_fit([[4.0]], [1])
    with pytest.raises(ValueError, match="label|class"): model.relabel([0], [1])


def test_strings_are_no_labels_of_a_model_that_knows_numbers():
    model = IncrementalSVC(gamma=1.0).fit(LINE, SIDES)
    with pytest.raises(ValueError, match="label|class"): model.partial_fit([[4.0]], ["1"])
    assert model.classes_.tolist() == [0, 1]


def test_balanced_bounds_that_cancel_leave_the_bias_in_the_middle():
    "Σu is the same for both classes; all α at their bound, and the bias anywhere between −1 and 1."
    for C in (1.0, 1e3, 1e5):
        model = IncrementalSVC(C=C, kernel="linear", class_weight="balanced").fit(np.ones((11, 1)), [1] * 5 + [0] * 6)
        np.testing.assert_allclose(model.intercept_, 0.0, atol=1e-8)


def test_rounding_on_a_large_grid_is_no_indefinite_kernel():
    X = 1e6 * np.array([[2, -3], [-2, 0], [-1, 3], [0, 0], [0, -1], [-1, 0], [0, 0]])
    model = IncrementalSVC(kernel="linear")
    for x, label in zip(X, [1, 0, 0, 0, 0, 0, 1]): model.partial_fit([x], [label])
    assert len(model.ids_) == 7


def test_five_points_far_from_the_origin():
    X, y = np.array([[999.2], [998.7], [999.8], [1000.4], [1001.1]]), np.array([0, 0, 1, 0, 0])
    assert_exact(IncrementalSVC(kernel="linear").fit(X, y), X * X.T, y)


@pytest.mark.parametrize("first", [200, 100], ids=["at once", "in two halves"])
def test_points_far_from_the_origin_are_learned_or_refused(first):
    "Features near 1e5 that differ by 1: no kernel value holds more than six digits of what matters."
    rng = np.random.default_rng(4)
    X, noise = rng.normal(size=(200, 2)) + 1e5, rng.normal(size=200)
    y, model = (X[:, 0] - 1e5 + 0.3 * noise > 0).astype(int), IncrementalSVC(kernel="linear")
    try:
        model.fit(X[:first], y[:first])
        if first < 200: model.partial_fit(X[first:], y[first:])
    except PathError: return
    assert_exact(model, np.einsum("id,jd->ij", X, X), y)


@pytest.mark.parametrize("x, y", [([-0.4, 1.2], [1, 0]), ([0.3, 0.8, 0.3], [1, 1, 0]), ([-0.4, 1.2, 1.4], [0, 1, 0]), ([0.9, -1.2], [0, 1])], ids=str)
def test_an_indefinite_kernel_is_noticed(x, y):
    X, y = np.array(x)[:, None], np.array(y)
    a, K = np.where(y == 1, 1.0, -1.0), np.tanh(X @ X.T - 1)
    by_path, at_once = (IncrementalSVC(kernel="sigmoid", gamma=1.0, coef0=-1.0) for _ in range(2))

    def one_by_one():
        for i in range(len(X)): by_path.partial_fit(X[[i]], y[[i]])
    for model, learn in ((by_path, one_by_one), (at_once, lambda: at_once.fit(X, y))):
        try: learn()
        except PathError: continue
        worst, allowed = certificate(model.alpha_, model.intercept_[0], K, a, np.ones(len(a)))
        assert worst <= allowed


def test_a_kernel_that_fails_and_goes_on_failing_leaves_the_model():
    calls = limit = 0

    def kernel(A, B):
        nonlocal calls
        calls += 1
        if calls > limit > 0: raise MemoryError
        return A @ B.T
    model = IncrementalSVC(C=10.0, kernel=kernel).fit(LINE, SIDES)
    for allowed in range(1, 20):
        before, limit = snapshot(model), calls + allowed
        try: model.update([[0.7], [-0.3]], [0, 1], remove=[0, 1])
        except MemoryError: limit = 0
        else: break
        assert differing(before, snapshot(model)) == []
        model.retune(2.0).retune(10.0)
        assert model.kkt_residual() <= 1e-9


def test_an_iterator_of_an_earlier_life_has_no_say_in_the_next():
    model = IncrementalSVC(gamma=1.0).fit(LINE, SIDES)
    watching = model.steps([[0.6], [-1.5]], [1, 0])
    next(watching)
    model.fit(LINE, np.array(["no", "yes"])[SIDES])
    try: list(watching)
    except RuntimeError: pass
    assert model.classes_.tolist() == ["no", "yes"] and set(model.predict(LINE)) == {"no", "yes"}


def test_a_refused_fit_leaves_the_width():
    model = IncrementalSVC(gamma=1.0).fit(LINE, SIDES)
    with pytest.raises(ValueError): model.fit(np.zeros((5, 3)), [0, 1, 2, 0, 1])
    assert model.n_features_in_ == 1 and len(model.predict(LINE)) == 5


def test_given_values_from_a_memory_map_can_be_unlearned(tmp_path):
    joblib.dump(IncrementalSVC(kernel="precomputed").fit(LINE @ LINE.T, SIDES), tmp_path / "m")
    model = joblib.load(tmp_path / "m", mmap_mode="r").unlearn([0])
    assert len(model.ids_) == len(model.alpha_) == 4


def test_an_empty_model_of_given_values_still_answers():
    model = IncrementalSVC(kernel="precomputed").fit(LINE @ LINE.T, SIDES).unlearn(range(5))
    assert model.decision_function(np.zeros((2, 0))).tolist() == [0.0, 0.0]


def test_steps_refuses_given_values_of_a_wrong_width_at_once():
    model = IncrementalSVC(kernel="precomputed").fit(LINE @ LINE.T, SIDES)
    with pytest.raises(ValueError, match="expecting 5 features .* 1 more"): model.steps(np.ones((1, 3)), [1])


def test_ids_may_be_tuples():
    model = IncrementalSVC(gamma=1.0).fit(LINE, SIDES, ids=[("a", i) for i in range(5)])
    assert model.unlearn([("a", 1)]).partial_fit([[4.0]], [0], ids=[(1, 2, 3)]).ids_.tolist()[-1] == (1, 2, 3)
    assert len(model.alpha_) == 5


def test_default_ids_are_never_used_twice():
    model = IncrementalSVC(gamma=1.0).fit(LINE[:1], SIDES[:1]).partial_fit(LINE[1:2], SIDES[1:2], ids=[2])
    seen = model.partial_fit(LINE[2:3], SIDES[2:3]).partial_fit(LINE[3:4], SIDES[3:4]).ids_.tolist()
    model.unlearn([seen[-1]]).partial_fit(LINE[4:], SIDES[4:])
    assert model.ids_[-1] not in seen


def test_steps_prepared_before_another_update_are_refused():
    model = IncrementalSVC(gamma=1.0).fit(LINE, SIDES)
    watching = model.steps(remove=[3])
    model.unlearn([0])
    with pytest.raises(RuntimeError): list(watching)
    assert model.ids_.tolist() == [1, 2, 3, 4]


def test_c_set_by_hand_never_mixes_with_the_old_one():
    model = IncrementalSVC(C=10.0, gamma=1.0).fit(LINE[:4], SIDES[:4]).set_params(C=1.0).partial_fit(LINE[4:], SIDES[4:])
    afresh = IncrementalSVC(C=1.0, gamma=1.0).fit(LINE, SIDES)
    np.testing.assert_allclose(model.decision_function(LINE), afresh.decision_function(LINE), atol=1e-8)


def test_points_far_from_the_origin_can_lose_all_their_weight():
    "A margin point whose bound closes may keep any margin; settling must not wait for it to vanish."
    X = np.array([[251460.4421867866, -264209.72658260376], [1280845.3008865642, 209800.23430607942]])
    model = IncrementalSVC(C=0.001, kernel="linear").fit(X, [1, 0]).reweight([0, 1], [0.0, 0.0])
    assert model.kkt_residual() <= 1e-9 and (model.alpha_ == 0).all()


def test_rounded_bounds_that_balance_leave_the_bias_in_the_middle():
    "Balanced bounds of 12 and 10 equal points sum to the same, but not to the last bit: that bit tells no bias."
    y = np.repeat([0, 1], [12, 10])
    model = IncrementalSVC(C=1e5, kernel="linear", class_weight="balanced").fit(np.ones((2, 1)), [0, 1])
    for label in y[1:-1]: model.partial_fit([[1.0]], [label])
    assert abs(model.intercept_[0]) <= 1e-8
