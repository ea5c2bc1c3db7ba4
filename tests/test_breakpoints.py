"""Batches against their points one at a time: always the same model as training from scratch, and as few events as the page says."""
import csv
from pathlib import Path

import numpy as np
import pytest

from histories import differing, snapshot
from isvm import IncrementalSVC
from isvm.breakpoints import (
    COLUMNS, SCENARIOS, Batch, arrivals, calls, carry_out, count, draw_bounded, prepare, times, toll, undo, write_table)
from isvm.datasets import artificial
from isvm.engine.problem import classification
from isvm.engine.reference import reference_solve
from tools.notebooks import NBS

TABLE = NBS / "karasuyama_takeuchi_2009" / "breakpoints.csv"


def oracle(batch: Batch):
    "The decision function on all points once the update is made, from a solver that shares no code with the engine."
    held = np.append(np.setdiff1d(batch.model.ids_, batch.removed), batch.added).astype(int)
    y = 2 * batch.y - 1
    K = np.exp(-batch.model.gamma * ((batch.X[:, None] - batch.X[held]) ** 2).sum(axis=2))
    alpha, bias = reference_solve(y[held, None] * K[held] * y[held], classification(y[held], batch.model.C))
    return K @ (y[held] * alpha) + bias


def check(batch: Batch, against=None):
    "Together, one at a time and from scratch agree; every KKT residual is small; the way back is exact."
    model = batch.model
    start, found = model.decision_function(batch.X), []
    for together in (True, False):
        carry_out(batch, together)
        assert model.kkt_residual() <= 1e-9
        found.append(model.decision_function(batch.X))
        held = model.ids_
        undo(batch)
        assert model.kkt_residual() <= 1e-9
        np.testing.assert_allclose(model.decision_function(batch.X), start, atol=1e-8)
    fresh = IncrementalSVC(C=model.C, gamma=model.gamma).fit(batch.X[held], batch.y[held])
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)
    np.testing.assert_allclose(found[0], fresh.decision_function(batch.X), atol=1e-8)
    if against is not None: np.testing.assert_allclose(found[0], against(batch), atol=1e-8)


@pytest.mark.parametrize("gamma", [0.1, 1.0])
@pytest.mark.parametrize("C", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_way_leads_to_the_same_model(scenario, C, gamma):
    for seed, m in enumerate((1, 7, 25, 50)):
        if scenario == "both" and m == 50: m = 30
        check(prepare(scenario, m, seed, C, gamma))


@pytest.mark.parametrize("leaving", [0, 20, 60])
def test_every_way_leads_to_the_same_model_for_points_as_they_come(leaving):
    for seed, (C, gamma) in enumerate(((0.1, 0.1), (10.0, 1.0), (1000.0, 0.5))):
        check(arrivals(40, seed, leaving, C, gamma, n=200))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_oracle_agrees(scenario):
    for gamma in (0.1, 1.0): check(prepare(scenario, 12, 3, 10.0, gamma, n=150), oracle)


def test_a_batch_larger_than_the_model_and_a_model_that_gives_everything_away():
    check(arrivals(150, 0, n=30), oracle)
    check(arrivals(60, 1, leaving=60, n=60), oracle)
    batch = prepare("removing", 20, 2, n=150)
    everyone = draw_bounded(batch.model, int((batch.model.alpha_ == 10.0).sum()), np.random.default_rng(0))
    check(batch._replace(removed=everyone), oracle)


def test_fifty_together_have_a_quarter_of_the_events_at_most():
    for scenario in SCENARIOS:
        m = 25 if scenario == "both" else 50
        events = np.array([count(prepare(scenario, m, seed)) for seed in range(10)])
        assert (events[:, 0] / events[:, 1]).mean() <= 0.25


def test_chosen_points_are_where_the_paper_wants_them():
    for C, gamma in ((1.0, 1.0), (10.0, 0.1)):
        batch = prepare("adding", 30, 5, C, gamma)
        carry_out(batch, True)
        model = batch.model
        assert (model.alpha_[np.isin(model.ids_, batch.added)] == C).all() and len(model.ids_) == 530
        batch = prepare("both", 30, 5, C, gamma)
        assert (batch.model.alpha_[np.isin(batch.model.ids_, batch.removed)] == C).all()
        assert len(batch.added) == len(batch.removed) == 30 and len(batch.model.ids_) == 500
        assert not set(batch.added) & set(batch.removed)


def test_too_few_points_at_the_bound_are_named_before_anything_happens():
    batch = prepare("removing", 5, 0)
    before = snapshot(batch.model)
    with pytest.raises(ValueError, match="499 points with α = C = 10 wanted"):
        draw_bounded(batch.model, 499, np.random.default_rng(0))
    assert differing(before, snapshot(batch.model)) == []
    with pytest.raises(ValueError, match="expected one of"): prepare("moving", 5, 0)


def test_calls_cover_every_point_once():
    batch = prepare("both", 6, 1, n=100)
    assert len(calls(batch, True)) == 1 and len(calls(batch, False)) == 12
    for together in (True, False):
        made = calls(batch, together)
        assert np.concatenate([c["ids"] for c in made]).tolist() == batch.added.tolist()
        assert np.concatenate([c["remove"] for c in made]).tolist() == batch.removed.tolist()
        for call in made: np.testing.assert_array_equal(call["X"], batch.X[call["ids"]])


def test_one_point_is_one_point():
    for scenario in SCENARIOS[:2]:
        for seed in range(5):
            together, single = count(prepare(scenario, 1, seed, gamma=1.0))
            assert together == single


def test_toll_knows_the_length_of_a_straight_path():
    batch = prepare("removing", 36, 0)
    together = toll(batch, True)
    undo(batch)
    single = toll(batch, False)
    undo(batch)
    assert (together.events, single.events) == count(batch)
    np.testing.assert_allclose(together.length, 6.0, atol=1e-9)
    assert 30 < single.length < 42 and together.variation < single.variation   # two that move at once save a little


def test_the_table_can_be_written_and_the_stored_one_is_of_today(tmp_path):
    write_table(tmp_path / "small.csv", sizes=(1, 4), seeds=range(2), cases=((150, 10.0), (160, 1.0)))
    small = list(csv.DictReader(open(tmp_path / "small.csv", encoding="utf-8")))
    assert tuple(small[0]) == COLUMNS and len(small) == 2 * 5 + 6      # "both" has no m = 4, being up to half of it
    assert all(float(row["libsvm_1e3"]) == 1.0 and float(row["time_together"]) > 0 for row in small)
    stored = list(csv.DictReader(open(TABLE, encoding="utf-8")))
    assert tuple(stored[0]) == COLUMNS
    assert max(float(row["ratio"]) for row in stored if int(row["m"]) == (25 if row["scenario"] == "both" else 50)) <= 0.25
    for row in stored[5:60:18]:
        args = row["scenario"], int(row["m"])
        events = np.mean([count(prepare(*args, seed, float(row["C"]), float(row["gamma"]))) for seed in range(10)], axis=0)
        np.testing.assert_allclose(events, [float(row["together"]), float(row["single"])], rtol=0.02)


def test_times_leave_the_update_carried_out():
    batch = prepare("both", 3, 0, n=80)
    took = times(batch)
    assert took.shape == (5,) and took[2] == 1.0 and (took > 0).all()
    assert set(batch.added) <= set(batch.model.ids_) and not set(batch.removed) & set(batch.model.ids_)


def test_artificial_data_are_what_their_page_says():
    X, y = artificial(40_001, 3)
    assert X.shape == (40_001, 2) and set(y) == {0.0, 1.0} and abs(y.mean() - 0.5) < 1e-4
    np.testing.assert_allclose(X[y == 0].mean(axis=0), 0.0, atol=0.03)
    np.testing.assert_allclose(X[y == 0].std(axis=0), 1.0, atol=0.03)
    np.testing.assert_allclose(X[y == 1].std(axis=0), [np.hypot(1.0, 2.5), 1.0], atol=0.03)
    np.testing.assert_array_equal(artificial(50, 7)[0], artificial(50, 7)[0])
    assert not np.array_equal(artificial(50, 7)[0], artificial(50, 8)[0])
    assert np.abs(artificial(2000, 0, apart=8.0)[0][:, 0]).max() > 9
