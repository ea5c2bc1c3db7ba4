"The repository's root on the path, a numba cache of our own, and one built site for all who look at it."
import os, sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


@pytest.fixture(scope="session", autouse=True)
def fresh_numba_cache(tmp_path_factory):
    "Compiled code of an older source must not answer a test, in this process or in a kernel."
    folder = str(tmp_path_factory.mktemp("cache"))
    before = dict(os.environ)
    os.environ.setdefault("MPLCONFIGDIR", folder)
    os.environ.update(XDG_CACHE_HOME=folder, NUMBA_CACHE_DIR=folder)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    "The documentation, built afresh."
    from tools import docs
    return docs.build(tmp_path_factory.mktemp("site") / "html")
