"The river: its table by the definition, the made-up one, and a month swapped exactly."
from copy import deepcopy

import numpy as np
import pytest

from histories import assert_exact
from isvm import IncrementalSVC, river
from isvm.datasets import fisher_river, lagged, local_copy, river_days, synthetic_river, unit_range
from isvm.engine.core import Kind
from tools.notebooks import NBS


def rbf(A, B, gamma): return np.exp(-gamma * ((A[:, None] - B[None]) ** 2).sum(-1))


@pytest.fixture
def real():
    "The measured series as a table."
    if local_copy("fisher_river.csv") is None:
        pytest.skip("no local copy of the Fisher river: set ISVM_DATA to a folder that has fisher_river.csv")
    return fisher_river()


def test_the_lagged_table_is_its_definition():
    series = np.random.default_rng(0).integers(0, 5, (40, 3)).astype(float)
    X, y = lagged(series)
    assert X.shape == (33, 21) and y.shape == (33,)
    for row, t in enumerate(range(7, 40)):
        expected = [series[t - lag, k] for k in range(3) for lag in range(7, 0, -1)]
        assert X[row].tolist() == expected
        assert y[row] == (series[t, 2] > series[t - 1, 2])
    assert (np.diff(series[6:, 2]) == 0).any(), "ties took part"


@pytest.mark.parametrize("days, k", [(7, 3), (3, 3), (0, 3)])
def test_too_short_a_series_is_refused(days, k):
    with pytest.raises(ValueError, match="more than 7 days"): lagged(np.zeros((days, k)))


def test_the_shortest_series_gives_one_row():
    X, y = lagged(np.arange(8.0)[:, None])
    assert X.tolist() == [list(range(7))] and y.tolist() == [1]


def test_columns_go_from_0_to_1_and_constant_ones_are_0():
    X = np.random.default_rng(0).normal(size=(20, 4)) * [1, 100, 1e-6, 0]
    scaled = unit_range(X)
    assert scaled[:, :3].min(axis=0).tolist() == [0, 0, 0] and scaled[:, :3].max(axis=0).tolist() == [1, 1, 1]
    assert (scaled[:, 3] == 0).all()


def test_counts_of_the_fisher_river(real):
    X, y = real
    assert X.shape == (1454, 21) and X.min() == 0 and X.max() == 1
    assert (X.min(axis=0) == 0).all() and (X.max(axis=0) == 1).all()
    assert (y == 1).sum() == 563 and (y == 0).sum() == 891
    series = np.loadtxt(local_copy("fisher_river.csv"), delimiter=",", skiprows=1, usecols=(1, 2, 3))
    assert (np.diff(series[6:, 2]) == 0).sum() == 103
    first = river.read_cells(NBS / "karasuyama_takeuchi_2009" / "river.csv")[0]
    assert first.cv_error == pytest.approx(y[:1423].mean(), abs=2e-3), "the dashed line of the page"


@pytest.mark.parametrize("folder", [True, False])
def test_without_a_copy_the_error_says_what_to_do(monkeypatch, tmp_path, folder):
    if folder: monkeypatch.setenv("ISVM_DATA", str(tmp_path))
    else: monkeypatch.delenv("ISVM_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="ISVM_DATA.*synthetic_river"): fisher_river()


def test_a_damaged_copy_is_refused(monkeypatch, tmp_path):
    (tmp_path / "fisher_river.csv").write_text("date,temperature,precipitation,flow\n" + "1988-01-01,1,2,3\n" * 20)
    monkeypatch.setenv("ISVM_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="20 days; expected the 1461"): fisher_river()


def test_the_made_up_river_has_the_form_of_the_real_one():
    X, y = synthetic_river(1454)
    assert X.shape == (1454, 21) and X.min() == 0 and X.max() == 1 and set(y) == {0.0, 1.0}
    days = river_days(1461)
    assert days.shape == (1461, 3) and (days[:, 1:] >= 0).all() and (days[:, 2] > 0).all()
    assert (days[:, 0] < 0).any() and (days[:, 1] == 0).mean() > 0.5
    assert (np.diff(days[:, 2]) == 0).sum() > 20, "ties, as in the real one"


def test_the_made_up_river_is_the_same_every_time():
    for one, other in zip(synthetic_river(50, 3), synthetic_river(50, 3)): np.testing.assert_array_equal(one, other)
    assert (synthetic_river(50, 3)[0] != synthetic_river(50, 4)[0]).any()
    np.testing.assert_array_equal(river_days(60)[:40], river_days(40))
    with pytest.raises(ValueError, match="n = 0"): synthetic_river(0)


@pytest.mark.parametrize("C, gamma", [(0.1, 1e-3), (10.0, 1.0), (1e3, 0.1), (1e5, 0.1), (1e5, 1e-3)])
def test_a_month_swapped_in_one_path_is_exact(C, gamma):
    X, y = synthetic_river(330)
    n, m, K = 300, 30, rbf(X, X, gamma)
    start = IncrementalSVC(C=C, gamma=gamma).fit(X[:n], y[:n])
    one, singly = deepcopy(start), deepcopy(start)
    events = river.swap(one, X, y, n, m)
    assert river.swap_singly(singly, X, y, n, m) > events > 0
    afresh = IncrementalSVC(C=C, gamma=gamma).fit(X[m:], y[m:], ids=range(m, n + m))
    allowed = max(1e-8, 1e-12 * (K[:, m:] @ afresh.alpha_).max())
    assert river.largest_sum(afresh, X) == pytest.approx((K[:, m:] @ afresh.alpha_).max())
    for model in (one, singly, afresh):
        assert model.ids_.tolist() == list(range(m, n + m))
        assert_exact(model, K, y)
        assert np.abs(model.decision_function(X) - afresh.decision_function(X)).max() <= allowed


@pytest.mark.parametrize("C, gamma", [(1e3, 0.1), (1e5, 0.1), (1e5, 1.0)])
def test_a_month_of_the_fisher_river_is_exact(real, C, gamma):
    X, y = real
    K = rbf(X, X, gamma)
    model = IncrementalSVC(C=C, gamma=gamma).fit(X[:1423], y[:1423])
    kinds = {event.kind for event in model.steps(X[1423:1453], y[1423:1453], remove=range(30))}
    assert Kind.JOIN in kinds and Kind.PERTURB not in kinds
    assert_exact(model, K, y)
    afresh = IncrementalSVC(C=C, gamma=gamma).fit(X[30:1453], y[30:1453])
    apart = np.abs(model.decision_function(X) - afresh.decision_function(X)).max()
    assert apart <= max(1e-8, 1e-12 * river.largest_sum(afresh, X))


def test_the_grid_refuses_what_it_cannot_swap():
    X, y = synthetic_river(50)
    with pytest.raises(ValueError, match="50 rows"): next(river.run_grid(X, y, n=40, m=20))
    for m in (0, 30):
        with pytest.raises(ValueError, match=f"m = {m}"): next(river.run_grid(X, y, n=20, m=m))


def test_results_survive_the_file(tmp_path):
    X, y = synthetic_river(70)
    cells = list(river.run_grid(X, y, n=60, m=10, Cs=(1.0, 100.0), gammas=(1.0,), repeats=1, folds=3))
    river.write_cells(cells, tmp_path / "cells.csv")
    for kept, cell in zip(river.read_cells(tmp_path / "cells.csv"), cells, strict=True):
        np.testing.assert_allclose(kept, cell, rtol=5e-3)


def test_stored_results_keep_the_promise():
    cells = river.read_cells(NBS / "karasuyama_takeuchi_2009" / "river.csv")
    assert [(c.n, c.gamma, c.C) for c in cells] == [
        *((1423, gamma, C) for gamma in river.GAMMAS for C in river.CS), *((400, river.GAMMAS[2], C) for C in river.CS)]
    for cell in cells:
        assert cell.kkt <= max(1e-9, 1e-14 * cell.sums)
        assert max(cell.gap_singly, cell.gap_fit) <= max(1e-8, 1e-12 * cell.sums)


def test_the_command_writes_the_stored_results(monkeypatch, tmp_path):
    monkeypatch.setattr(river, "fisher_river", lambda: synthetic_river(60))
    whole = river.run_grid
    monkeypatch.setattr(river, "run_grid", lambda X, y, n=1423, gammas=river.GAMMAS: whole(
        X, y, n=40 if n == 1423 else 30, m=10, Cs=(1.0,), gammas=gammas, repeats=1, folds=2))
    river.main([str(tmp_path / "out.csv")])
    assert [(c.n, c.gamma) for c in river.read_cells(tmp_path / "out.csv")] == [*((40, g) for g in river.GAMMAS), (30, river.GAMMAS[2])]
