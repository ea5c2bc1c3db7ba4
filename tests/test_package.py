"What `pip install .` brings along."
import pytest
import subprocess, sys
from configparser import ConfigParser
from importlib.metadata import requires, version

import isvm
from tools.notebooks import ROOT

CONFIG = ConfigParser(delimiters=["="], interpolation=None)
CONFIG.read(ROOT / "settings.ini")


def test_version_is_the_one_in_settings():
    assert isvm.__version__ == version("isvm") == CONFIG["DEFAULT"]["version"]


def test_runtime_requirements_hold_no_notebook_package():
    runtime = {r for r in requires("isvm") if "extra ==" not in r}
    assert runtime == {"numpy", "scipy", "numba", "scikit-learn", "tqdm"}


def test_only_modules_that_draw_import_a_notebook_package():
    script = """
import importlib, pkgutil, sys, isvm
for m in pkgutil.walk_packages(isvm.__path__, "isvm."):
    if m.name not in ("isvm.__main__", "isvm.viz", "isvm.frames", "isvm.widgets"): importlib.import_module(m.name)
found = {"nbdev", "fastcore", "IPython", "matplotlib", "ipywidgets"} & set(sys.modules)
assert not found, found
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_package_is_typed():
    assert (ROOT / "isvm" / "py.typed").exists()


def run(*module):
    "What a module prints when run from the command line."
    return subprocess.run([sys.executable, "-m", *module], check=True, capture_output=True, text=True).stdout


def test_the_demo_runs_from_the_command_line():
    assert "KKT" in run("isvm")


def test_the_benchmark_runs_from_the_command_line():
    from isvm.datasets import local_copy
    if local_copy("mnist.npz") is None: pytest.skip("no local copy of MNIST: set ISVM_DATA to a folder that has mnist.npz")
    assert "MNIST" in run("isvm.bench", "--quick")
