"""Critical regions of two moving points: they tile the box, the sets in each are the oracle's, and paths break on their borders."""
import pickle

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from histories import KERNELS, differing, snapshot
from isvm import IncrementalSVC
from isvm.datasets import moons
from isvm.engine.core import Kind, Status
from isvm.engine.problem import Problem
from isvm.engine.reference import reference_solve
from isvm.recorder import record
from isvm.regions import Region, clip, critical_regions, overlap, plane_of, region_here, travel, uncovered


def machine(seed, kernel, C, n=20):
    "A model, and two labelled points that are not in it."
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2, 2))
    y = np.where(X[:, 0] + 0.6 * rng.normal(size=n + 2) > 0, 1.0, -1.0)
    model = IncrementalSVC(C=C, **KERNELS[kernel][0]).fit(X[:n], y[:n])
    labels = np.where(rng.random(2) < 0.7, -1.0, 1.0) * np.sign(model.decision_function(X[n:]))
    return model, X[n:], labels, rng


def cases(model, X, y):
    "Two in; one in and one out; two out."
    ids = model.ids_[np.argsort(-model.alpha_)]
    return (X, y, ()), (X[:1], y[:1], ids[:1]), (None, None, ids[[0, 2]])


def held_at(plane, K, y, x):
    "Sets of all but the last two points, which are held at x, and the margins of these, by the oracle; None if no α balances x."
    Q, C = y[:, None] * K * y, plane.size
    problem = Problem(1 - Q[:-2, -2:] @ x, y[:-2], np.full(len(y) - 2, C), -float(y[-2:] @ x))
    alpha, bias = reference_solve(Q[:-2, :-2], problem)
    return np.where(alpha <= 1e-9 * C, 0, np.where(alpha >= C * (1 - 1e-9), 2, 1)), (Q @ np.append(alpha, x) - 1 + bias * y)[-2:]


def off_border(regions, x):
    "Distance of a place from the nearest side of any region."
    start = np.concatenate([r.corners for r in regions])
    along = np.concatenate([np.roll(r.corners, -1, axis=0) - r.corners for r in regions])
    share = np.clip(((x - start) * along).sum(1) / np.maximum((along ** 2).sum(1), 1e-300), 0, 1)
    return np.hypot(*(start + share[:, None] * along - x).T).min()


@pytest.mark.parametrize("kernel, C", [("rbf", 0.3), ("rbf", 2.0), ("rbf", 20.0), ("poly3", 0.02), ("poly3", 0.3)])
@pytest.mark.parametrize("seed", range(3))
def test_regions_tile_the_box_and_their_sets_are_the_oracles(seed, kernel, C):
    model, X, y, rng = machine(seed, kernel, C)
    before = snapshot(model)
    for case in cases(model, X, y):
        plane, regions = plane_of(model, *case), critical_regions(model, *case)
        assert abs(sum(r.area for r in regions) - C ** 2) <= 1e-9 * C ** 2
        assert len({r.status.tobytes() for r in regions}) == len(regions)
        at, a = plane.state.rows.X[plane.state.sample], plane.state.a
        K = KERNELS[kernel][1](at, at)
        for r in sorted(regions, key=lambda r: r.area)[::-1][:12]:
            x = rng.dirichlet(np.full(len(r.corners), 3.0)) @ r.corners
            status, g = held_at(plane, K, a, x)
            np.testing.assert_array_equal(status, r.status[:-2])
            for added, moving, margin in zip(plane.added, r.status[-2:], g):
                assert moving == (Status.REMOVED if not added else Status.ADDED if margin < 0 else Status.RESERVE)
    assert differing(before, snapshot(model)) == []


@pytest.mark.parametrize("seed", range(6))
def test_events_of_a_path_lie_on_borders_and_are_as_many_as_regions_crossed(seed):
    C = 2.0
    model, X, y, _ = machine(seed, "rbf", C)
    for case in cases(model, X, y):
        regions, seen = critical_regions(model, *case), record(pickle.loads(pickle.dumps(model)), *case)
        x, events = seen.alphas[:, seen.moving], [frame.event for frame in seen.frames[1:]]
        breaks = [place for place, event in zip(x[1:], events) if event.kind is not Kind.END]
        assert max([off_border(regions, place) for place in breaks], default=0.0) < 1e-9
        if any(event.kind is Kind.SHIFT or event.before >= Status.ADDED for event in events): continue   # no straight line
        shares = np.array([overlap(r.corners, x[0], x[-1]) for r in regions])
        width = shares[:, 1] - shares[:, 0]
        assert abs(width.sum() - 1) < 1e-9 and (width > 1e-9).sum() - 1 == len(breaks)


def test_travelling_back_gives_the_same_machine():
    model, X, y, rng = machine(0, "rbf", 5.0)
    plane = plane_of(model, X, y)
    alpha, bias = plane.state.alpha.copy(), plane.state.bias
    for goal in [*rng.uniform(0, 5, size=(8, 2)), np.zeros(2)]:
        travel(plane, goal)
        assert overlap(region_here(plane).corners, goal - 1e-7, goal + 1e-7)[1] > 0
    np.testing.assert_allclose(plane.state.alpha, alpha, atol=1e-9)
    np.testing.assert_allclose(plane.state.bias, bias, atol=1e-9)


def test_an_empty_margin_is_a_line():
    "All points at their bound: every region has someone on the margin, and the regions still tile."
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(8, 2)), np.tile([1.0, -1.0], 4)
    model = IncrementalSVC(C=0.05, gamma=0.7).fit(X[:6], y[:6])
    assert not (model.status_ == Status.MARGIN).any()
    for case in cases(model, X[6:], y[6:]):
        regions = critical_regions(model, *case)
        assert abs(sum(r.area for r in regions) - 0.05 ** 2) <= 1e-9 * 0.05 ** 2
        assert all((r.status == Status.MARGIN).any() for r in regions)


def test_geometry():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert Region(square, np.zeros(0)).area == 1.0
    assert len(clip(square, np.array([1.0, 0.0]), -1.0)) == 0 and len(clip(square, np.array([1.0, 1.0]), 9.0)) == 4
    assert Region(clip(square, np.array([1.0, 1.0]), 1.0), np.zeros(0)).area == 0.5
    assert overlap(square, np.array([-1.0, 0.5]), np.array([3.0, 0.5])) == (0.25, 0.5)
    assert overlap(square, np.array([-1.0, 2.0]), np.array([3.0, 2.0])) == (0.0, 0.0)
    np.testing.assert_allclose(uncovered([Region(square, np.zeros(0))], np.array([0.0, 0.5]), np.array([3.0, 0.5]), 1e-9), [2.0, 0.5])


def test_refusals():
    model, X, y, _ = machine(0, "rbf", 1.0)
    before = snapshot(model)
    for case in ((X[:1], y[:1]), (None, None, [0]), (X, y, [0]), ()):
        with pytest.raises(ValueError, match="a map needs 2"): critical_regions(model, *case)
    with pytest.raises(KeyError, match="not held"): critical_regions(model, X[:1], y[:1], [99])
    with pytest.raises(NotFittedError): critical_regions(IncrementalSVC(), X, y)
    assert differing(before, snapshot(model)) == []


def test_a_window_does_not_change_the_map():
    X, y = moons(160)
    maps = [critical_regions(IncrementalSVC(C=2.0, gamma=1.0, window=w).fit(X[:20], y[:20]), X[20:22], 1 - y[20:22]) for w in (None, 20)]
    assert len(maps[0]) == len(maps[1])


@pytest.mark.parametrize("params, n", [(dict(class_weight={0: 3.0, 1: 1.0}), 20), (dict(), 2)])
def test_maps_of_weighted_or_emptied_models_are_refused(params, n):
    X, y = moons(160)
    model = IncrementalSVC(C=2.0, gamma=1.0, **params).fit(X[:n], y[:n])
    with pytest.raises(ValueError, match="A map needs"): critical_regions(model, remove=model.ids_[:2])
