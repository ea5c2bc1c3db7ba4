"""What the hunting tests share: data, kernels by their formulas, the certificate, and models that live through a history.

Kernel values here come from explicit formulas, and the certificate from the definition; neither shares code with `isvm`."""
import itertools, signal, sys
from pathlib import Path

import numpy as np

import isvm
from isvm import IncrementalSVC
from isvm.engine.problem import Problem
from isvm.engine.reference import reference_solve

EVENTS = 20, 200  # at most 20 n + 200 events a call


def differences(A, B): return A[:, None] - B[None]


KERNELS = {  # parameters of the estimator, and the formula they stand for
    "linear": (dict(kernel="linear"), lambda A, B: np.einsum("id,jd->ij", A, B)),
    "poly2": (dict(kernel="poly", degree=2, gamma=1.0, coef0=1.0), lambda A, B: (np.einsum("id,jd->ij", A, B) + 1) ** 2),
    "poly3": (dict(kernel="poly", degree=3, gamma=0.5, coef0=1.0), lambda A, B: (0.5 * np.einsum("id,jd->ij", A, B) + 1) ** 3),
    "rbf": (dict(kernel="rbf", gamma=0.7), lambda A, B: np.exp(-0.7 * (differences(A, B) ** 2).sum(-1))),
    "narrow": (dict(kernel="rbf", gamma=50.0), lambda A, B: np.exp(-50.0 * (differences(A, B) ** 2).sum(-1))),
    "wide": (dict(kernel="rbf", gamma=1e-3), lambda A, B: np.exp(-1e-3 * (differences(A, B) ** 2).sum(-1))),
    "callable": (dict(kernel=lambda A, B: 1.0 + A @ B.T), lambda A, B: 1.0 + np.einsum("id,jd->ij", A, B)),
}


def scaled(name, scale):
    "Parameters and formula of a kernel for data that has been multiplied by `scale`; linear feels the scale, as it should."
    params, formula = KERNELS[name]
    if "gamma" not in params: return params, formula
    return params | {"gamma": params["gamma"] / scale**2}, lambda A, B: formula(A / scale, B / scale)


def monks(k):
    "The k-th of the Monk's problems on its full grid of 432 points, by its definition."
    X = np.array(list(itertools.product((1, 2, 3), (1, 2, 3), (1, 2), (1, 2, 3), (1, 2, 3, 4), (1, 2))), float)
    a1, a2, _, a4, a5, _ = X.T
    rule = {1: (a1 == a2) | (a5 == 1), 2: (X == 1).sum(1) == 2, 3: (a5 == 3) & (a4 == 1) | (a5 != 4) & (a2 != 3)}
    return X, rule[k].astype(int)


def certificate(alpha, bias, K, a, u):
    "Worst violation of any KKT condition, and what the contract allows: 1e-9, or 1e-14 of the largest Σ|Q|α."
    worst = violation(alpha, bias, K @ (a * alpha), a, u)
    return worst, max(1e-9, 1e-14 * (np.abs(K) @ alpha).max(initial=0.0))


def violation(alpha, bias, f, a, u):
    "Worst violation of any KKT condition, f = Σ a α K without the bias."
    g = a * f - 1.0 + bias * a
    short, over = g[(alpha < u) & (u > 0)], g[(alpha > 0) & (u > 0)]     # weight 0: the margin is unconstrained
    return np.max([(-short).max(initial=0.0), over.max(initial=0.0), (-alpha).max(initial=0.0), (alpha - u).max(initial=0.0),
                   abs(a @ alpha)])  # a NaN shows


def signs(model, y): return np.where(y == model.classes_[-1], 1.0, -1.0)


def assert_exact(model, K, y, weight=1.0):
    "A model whose ids are row numbers of K and y satisfies the contract."
    at, alpha, bias = model.ids_.astype(int), model.alpha_, model.intercept_[0]
    a, u, coef = signs(model, y[at]), np.broadcast_to(model.C * weight, len(y))[at], np.zeros(len(y))
    coef[at] = a * alpha
    if violation(alpha, bias, (K @ coef)[at], a, u) <= 1e-9: return  # without copies of a large K
    worst, allowed = certificate(alpha, bias, K[np.ix_(at, at)], a, u)
    assert worst <= allowed, f"KKT residual {worst:.2e}, allowed {allowed:.2e}, {len(at)} points"


def assert_few_events(model, held):
    "Events of the last call, in which `held` points took part, are bounded."
    assert model.n_events_ <= EVENTS[0] * held + EVENTS[1], f"{model.n_events_} events for {held} points"


def snapshot(model):
    "Everything an update may change, as copies, for comparison to the last bit."
    names = ("ids_", "alpha_", "margins_", "status_", "intercept_", "classes_", "n_features_in_", "n_events_", "C")
    seen = {name: np.array(getattr(model, name)) for name in names}
    state = model._held.state
    seen |= {"X": state.rows.X[state.sample], "signs": state.a.copy(), "bounds": state.u.copy()}
    seen |= {"weight": model._held.weight.copy(), "next": np.array(model._held.next)}
    return seen | {"table": getattr(state.rows.kernel, "held", np.zeros(0)).sum()}


def differing(before, after):
    "Names of what differs between two snapshots, in any bit."
    return [name for name in before if not np.array_equal(before[name], after[name])]


def interrupt_at_line(k, run):
    "Run, with Ctrl-C at the k-th line of isvm's code; how many lines there were, and whether it got through."
    home, lines = str(Path(isvm.__file__).parent), 0

    def watch(frame, kind, _):
        nonlocal lines
        if not frame.f_code.co_filename.startswith(home): return None
        if kind == "line":
            lines += 1
            if lines == k: signal.raise_signal(signal.SIGINT)
        return watch
    tracer = sys.gettrace()
    sys.settrace(watch)
    try: run()
    except KeyboardInterrupt: return lines, True
    finally: sys.settrace(tracer)
    return lines, False


KINDS = ("plain", "grid", "duplicates", "contradictions", "separable", "constant", "one class", "tiny", "huge", "weighted")
SCALES = {"tiny": 1e-6, "huge": 1e6}
ACTIONS = ("add", "remove", "update", "relabel", "retune", "reweight", "all but two")


def draw(kind, m, rng):
    "m labelled, weighted points of one kind."
    X = rng.normal(size=(m, 2))
    y, w = (X[:, 0] + 0.6 * rng.normal(size=m) > 0).astype(int), np.ones(m)
    if kind == "grid": X = np.round(X)
    if kind == "duplicates": X = np.round(X[rng.integers(0, max(1, m // 3), m)], 1)
    if kind == "contradictions": X, y = np.round(X[rng.integers(0, max(1, m // 2), m)], 1), rng.integers(0, 2, m)
    if kind == "separable": X[:, 0] += np.where(y == 1, 3.0, -3.0)
    if kind == "constant": X[:] = 1.0
    if kind == "one class": y[:] = rng.random() < 0.3
    if kind == "weighted": w = rng.choice([0.0, 0.5, 1.0, 3.0], m)
    return X * SCALES.get(kind, 1.0), y, w


class Walk:
    "A model, and beside it the plain list of what it should hold."

    def __init__(self, kernel, kind, C, seed, balanced=False, precomputed=False):
        self.rng, self.kind, self.balanced, self.precomputed = np.random.default_rng(seed), kind, balanced, precomputed
        params, self.formula = scaled(kernel, SCALES.get(kind, 1.0))
        if kind == "huge" and "gamma" not in params: C = min(C, 1.0)  # beyond C·K of 1e13 double precision holds no answer
        if precomputed: params = dict(kernel="precomputed")
        self.model = IncrementalSVC(C=C, class_weight="balanced" if balanced else None, **params)
        self.data, self.next = {}, 0   # id → (x, y, w)

    def fresh(self, m):
        "New points as the model wants them, and as the list notes them."
        X, y, w = draw(self.kind, m, self.rng)
        ids = list(range(self.next, self.next + m))
        self.next += m
        given = self.formula(X, np.concatenate([self.arrays()[0], X])) if self.precomputed else X
        return given, y, w, ids, {i: (x, int(b), v) for i, x, b, v in zip(ids, X, y, w)}

    def some(self, m):
        ids = list(self.data)
        return [ids[i] for i in self.rng.choice(len(ids), min(m, len(ids)), replace=False)]

    def act(self, action, m):
        "One call that changes the model, and the same change of the list."
        model, rng = self.model, self.rng
        if action == "add" or not self.data:
            X, y, w, ids, notes = self.fresh(m)
            model.partial_fit(X, y, sample_weight=w, ids=ids)
            self.data |= notes
        elif action in ("remove", "all but two"):
            gone = self.some(m if action == "remove" else max(0, len(self.data) - 2))
            model.unlearn(gone)
            for i in gone: del self.data[i]
        elif action == "update":
            gone, (X, y, w, ids, notes) = self.some(m), self.fresh(1 + m // 2)
            model.update(X, y, remove=gone, sample_weight=w, ids=ids)
            for i in gone: del self.data[i]
            self.data |= notes
        elif action == "relabel":
            ids = self.some(m)
            y = rng.integers(0, 2, len(ids))
            model.relabel(ids, y)
            for i, b in zip(ids, y): self.data[i] = (self.data[i][0], int(b), self.data[i][2])
        elif action == "retune": model.retune(C=float(model.C * rng.choice([0.1, 0.5, 2.0, 10.0])))
        elif action == "reweight":
            ids = self.some(m)
            w = rng.choice([0.0, 0.3, 1.0, 2.0], len(ids))
            model.reweight(ids, w)
            for i, v in zip(ids, w): self.data[i] = (*self.data[i][:2], v)

    def arrays(self):
        "Points, labels and weights on the list."
        rows = list(self.data.values())
        X = np.array([r[0] for r in rows]).reshape(-1, 2)
        return X, np.array([r[1] for r in rows], int), np.array([r[2] for r in rows], float)

    def problem(self):
        "What training from scratch would have to solve: K, and signs and bounds."
        X, y, w = self.arrays()
        a, u = signs(self.model, y), self.model.C * w
        if self.balanced and len(y):
            counts = np.bincount(y, minlength=2)
            u = u * (len(y) / ((counts > 0).sum() * counts[y]))
        return self.formula(X, X), a, u

    def residual(self):
        "KKT residual over what the contract allows; ids in order."
        assert list(self.model.ids_) == list(self.data)
        worst, allowed = certificate(self.model.alpha_, self.model.intercept_[0], *self.problem())
        return worst / allowed

    def gap(self):
        "Distance from the oracle's decision function over what the contract allows."
        if not self.data: return 0.0
        K, a, u = self.problem()
        alpha, bias = reference_solve(a[:, None] * K * a, Problem(np.ones(len(a)), a, u, 0.0))
        probe = np.concatenate([self.arrays()[0], draw(self.kind, 5, np.random.default_rng(0))[0]])
        K_probe = self.formula(probe, self.arrays()[0])
        f = self.model.decision_function(K_probe if self.precomputed else probe)
        sums = (np.abs(K_probe) @ alpha).max(initial=0.0)
        return np.abs(f - (K_probe @ (a * alpha) + bias)).max() / max(1e-8, 1e-12 * sums)
