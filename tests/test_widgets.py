"The stepping control: its knobs turned by a program, then by a hand in JupyterLab."
import json, os, shutil, socket, subprocess, sys, time
from html import unescape
from urllib.request import urlopen

import numpy as np
import pytest

from conftest import needs_browser
from isvm import IncrementalSVC, widgets
from isvm.datasets import moons
from isvm.engine.core import Outcome, PathError, Status
from isvm.widgets import Stepper
from tools.notebooks import NBS, ROOT, notebooks, read

X, y = moons(30)


@pytest.fixture
def stepper():
    return Stepper(X, y, held=range(28))


@pytest.fixture
def drawn(monkeypatch):
    "The frames drawn, in order."
    frames, png = [], widgets.png
    monkeypatch.setattr(widgets, "png", lambda recording, i, waiting: frames.append(i) or png(recording, i, waiting, dpi=30))
    return frames


def said(stepper) -> str:
    return unescape(stepper.sentence.value).split("\u2002")[1]


def decision(held, C=10.0, gamma=0.5):
    return IncrementalSVC(C=C, gamma=gamma).fit(X[held], y[held]).decision_function(X)


def test_the_slider_moves_picture_and_sentence(stepper):
    pictures = set()
    for i in range(len(stepper.recording)):
        stepper.slider.value = i
        assert said(stepper) == stepper.recording.sentence(i)
        pictures.add(bytes(stepper.picture.value))
    assert stepper.slider.max == stepper.play.max == i == 12
    assert len(pictures) == 13 and all(p.startswith(b"\x89PNG") for p in pictures)


def test_play_and_slider_are_one(stepper):
    stepper.play.value = 4
    assert stepper.slider.value == 4 and said(stepper) == stepper.recording.sentence(4)
    stepper.slider.value = 7
    assert stepper.play.value == 7


def test_buttons_step_and_stop_at_the_ends(stepper):
    stepper.back.click()
    assert stepper.slider.value == 0
    for _ in range(15): stepper.forth.click()
    assert stepper.slider.value == stepper.play.value == 12
    stepper.back.click()
    assert stepper.slider.value == 11


def test_adding_and_removing_end_where_a_fresh_fit_does(stepper):
    everyone = list(range(28))
    for row in (28, 29, 0, 6, 2):
        stepper.point.value = row
        rows = [r for r in everyone if r != row] if row in everyone else [*everyone, row]
        np.testing.assert_allclose(stepper.recording.decision(0, X), decision(everyone), atol=1e-8)
        np.testing.assert_allclose(stepper.recording.decision(-1, X), decision(rows), atol=1e-8)
        k = stepper.recording.moving[0]
        assert stepper.recording.ids[k] == row and stepper.slider.value == 0
        if row in everyone: assert stepper.recording.frames[-1].status[k] == Status.REMOVED


def test_another_c_or_gamma_is_a_fresh_model(stepper):
    stepper.slider.value = 5
    stepper.C.value = 0.5
    assert stepper.slider.value == 0 and stepper.slider.max == stepper.play.max == len(stepper.recording) - 1
    np.testing.assert_allclose(stepper.recording.decision(0, X), decision(range(28), C=0.5), atol=1e-8)
    stepper.gamma.value = 5.0
    np.testing.assert_allclose(stepper.recording.decision(0, X), decision(range(28), 0.5, 5.0), atol=1e-8)
    again = Stepper(X, y, held=range(28), C=0.5, gamma=5.0)
    assert again.picture.value == stepper.picture.value


def test_every_change_draws_once(drawn):
    stepper = Stepper(X, y, held=range(28))
    assert drawn == [0]
    stepper.slider.value = 12
    stepper.point.value = 29
    stepper.keep.click()
    stepper.gamma.value = 2.0
    stepper.point.value = 2  # nothing has to move: one frame
    assert drawn == [0, 12, 0, 0, 0, 0] and stepper.slider.max == 0


def test_points_kept_one_by_one_until_none_is_left_and_back(drawn):
    some, labels = X[:4], np.array(["yes", "no", "yes", "no"])
    stepper = Stepper(some, labels, held=[0, 2])
    for row in (2, 0):
        stepper.point.value = row
        stepper.keep.click()
    assert stepper.held == [] and "g = " in said(stepper)
    for row in range(4):
        assert stepper.point.value == row and stepper.point.label.startswith(f"add {row}")
        stepper.keep.click()
    assert stepper.held == [0, 1, 2, 3] and stepper.point.label.startswith("remove 0")


@pytest.mark.parametrize("error", [PathError(Outcome.STALLED), ValueError("gamma = <inf>; expected a finite number.")])
def test_a_failure_is_a_sentence_and_locks_the_walk(stepper, monkeypatch, error):
    picture, recording = stepper.picture.value, stepper.recording
    def fail(*_): raise error
    with monkeypatch.context() as broken:
        broken.setattr(widgets, "recorded", fail)
        stepper.C.value = 1.0
    assert str(error) in unescape(stepper.sentence.value) and "<inf>" not in stepper.sentence.value
    assert stepper.picture.value == picture and stepper.recording is recording
    assert stepper.slider.disabled and stepper.keep.disabled and stepper.play.disabled
    stepper.C.value = 2.0
    assert said(stepper) == stepper.recording.sentence(0) and not stepper.slider.disabled


@pytest.mark.parametrize("arguments, message", [
    ((np.ones((3, 4)), y[:3]), "4 features"), ((X, np.ones(30)), "classes"), ((X, y, [30]), "rows 0 to 29"),
    ((X, y, np.arange(30) < 28), "Pass row numbers"),
    ((X, y[:9]), "30 points, 9 labels"), ((X, y, None, -1.0), "C = -1.0"), ((X, y, None, 1.0, np.inf), "γ = inf")])
def test_bad_input_is_refused_at_the_door(arguments, message):
    with pytest.raises(ValueError, match=message): Stepper(*arguments)


def test_values_beyond_the_sliders_are_kept():
    assert Stepper(X, y, C=1e5, gamma=1e-4).C.value == 1e5


def test_without_ipywidgets_the_import_says_what_to_install():
    script = "import sys; sys.modules['ipywidgets'] = None; import isvm; import isvm.widgets"
    failed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert failed.returncode and "pip install ipywidgets matplotlib" in failed.stderr.splitlines()[-1]


def test_no_notebook_stores_a_live_view():
    for path in notebooks():
        nb = read(path)
        assert "widgets" not in nb.metadata
        for cell in nb.cells:
            for output in cell.get("outputs", []): assert not any("widget-view" in kind for kind in output.get("data", {}))


@pytest.fixture
def lab(tmp_path):
    "JupyterLab on loopback with settings and a folder of its own, which holds the page; its address."
    root, settings = tmp_path / "root", tmp_path / "settings"
    quiet = settings / "@jupyterlab" / "apputils-extension" / "notification.jupyterlab-settings"
    for folder in (root, quiet.parent): folder.mkdir(parents=True)
    quiet.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    shutil.copy(NBS / "widgets.ipynb", root)
    own = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "RUNTIME", "DATA")}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(settings), "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / "workspaces"),
            "IPYTHONDIR": str(tmp_path / "ipython"), "MATPLOTLIBRC": str(ROOT / "tools" / "matplotlibrc")}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
               "--ServerApp.port_retries=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={root}"]
    with open(tmp_path / "lab.log", "w") as log:
        server = subprocess.Popen([sys.executable, *command], env=os.environ | own, cwd=root, stdout=log, stderr=log)
    try:
        for _ in range(150):
            assert server.poll() is None, (tmp_path / "lab.log").read_text()
            try: urlopen(f"http://127.0.0.1:{port}/api", timeout=5).close()
            except OSError: time.sleep(0.2)
            else: break
        yield f"http://127.0.0.1:{port}/lab/tree/widgets.ipynb"
    finally:
        server.terminate()
        server.wait(20)


@needs_browser
def test_in_jupyterlab_the_control_steps_and_plays(lab, browser, stepper, tmp_path):
    from playwright.sync_api import expect
    expect.set_options(timeout=15_000)
    page, errors = browser.new_page(viewport={"width": 1400, "height": 1100}), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(lab)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()  # run before that, Lab asks for a kernel
    for item in ("Run", "Run All Cells"): page.get_by_role("menuitem", name=item, exact=True).click()
    page.mouse.move(900, 500)
    for _ in range(150):  # cells far below are not rendered until scrolled to
        if page.locator(".widget-play").count(): break
        if page.locator(".jp-Dialog").count(): page.locator(".jp-Dialog .jp-mod-accept").click()  # it asks all the same
        page.mouse.wheel(0, 1500)
        page.wait_for_timeout(200)
    page.locator(".widget-image").scroll_into_view_if_needed()

    def reads(recording, i, who=page.locator(".widget-html-content")):
        "Slider and sentence stand at frame i, and a picture is there."
        expect(who).to_have_text(f"{i} of {len(recording) - 1}\u2002{recording.sentence(i)}")
        expect(page.locator(".widget-hslider").last.locator(".widget-readout")).to_have_text(str(i))
        page.wait_for_function("img => img.complete && img.naturalWidth > 500", arg=page.locator(".widget-image").element_handle())
        return page.locator(".widget-image").get_attribute("src")

    seen = [reads(stepper.recording, 0)]
    for i in (1, 2):
        page.get_by_title("One event forward").click()
        seen.append(reads(stepper.recording, i))
    page.get_by_title("One event backward").click()
    reads(stepper.recording, 1)
    assert len(set(seen)) == 3

    handle = page.locator(".widget-hslider").last.locator(".noUi-handle")
    handle.press("End")
    reads(stepper.recording, 12)
    for _ in range(2): handle.press("ArrowLeft")
    reads(stepper.recording, 10)
    page.locator(".widget-play button").first.click()
    reads(stepper.recording, 12)  # it plays on by itself, and stops
    page.locator(".widget-html-content").scroll_into_view_if_needed()
    page.screenshot(path=tmp_path / "stepping.png")

    for row in (2, 29):  # nothing has to move; then a path again
        stepper.point.value = row
        page.locator(".widget-dropdown select").select_option(label=stepper.point.label)
        reads(stepper.recording, 0)
    handle.press("ArrowRight")
    reads(stepper.recording, 1)
    page.close()
    assert errors == []
