"The repository's root on the path, a numba cache of our own, one built site for all who look at it, and a browser to look with."
import os, shutil, sys, tempfile, warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# Compiled code of an older source must not answer a test, in this process or in a kernel;
# numba reads the setting when it is first imported, hence here and not in a fixture.
CACHE = tempfile.TemporaryDirectory()
os.environ.setdefault("MPLCONFIGDIR", CACHE.name)
os.environ.update(XDG_CACHE_HOME=CACHE.name, NUMBA_CACHE_DIR=CACHE.name)


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    "The documentation, built afresh."
    from tools import docs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Sphinx's notes to the authors of its extensions
        return docs.build(tmp_path_factory.mktemp("site") / "html")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def browser():
    "Chromium, for one module: longer, and playwright's event loop would disturb the notebook runner's."
    from playwright.sync_api import sync_playwright
    with sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield chromium
        chromium.close()
