"Notebooks, twins, modules and stored outputs say the same thing."
import re, shutil, subprocess, sys
from pathlib import Path

import pytest
from nbdev.clean import clean_nb

from tools import readme
from tools.notebooks import NBS, ROOT, content, notebooks, read, run, twin_of, twins

NAMES = [str(p.relative_to(NBS)) for p in notebooks()]
TELLTALE = {
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}"),
    "a path of this machine": re.compile(r"(?<![\w.])/(?:home|root|tmp|usr|work|opt|Users|var)/|site-packages|ipykernel_"),
    "a timing": re.compile(r"\d\s?(?:ns|µs|us|ms|seconds|secs|s)\b(?! *=)"),
    "a warning": re.compile(r"\w*Warning:"),
}


def texts(nb) -> list[list]:
    "What each code cell printed or returned as text, and which kinds of picture it drew."
    def shown(output):
        data = output.get("data", {})
        kinds = {k: v if k.startswith("text/") else "" for k, v in data.items()}
        return output.output_type, output.get("name"), output.get("text"), kinds
    return [[shown(o) for o in c.outputs] for c in nb.cells if c.cell_type == "code"]


def test_every_notebook_has_a_twin_and_every_twin_a_notebook():
    assert {twin_of(p) for p in notebooks()} == set(twins())


@pytest.mark.parametrize("name", NAMES)
def test_twin_and_notebook_hold_the_same_cells(name):
    assert content(read(twin_of(NBS / name))) == content(read(NBS / name)), "run `make sync`"


@pytest.mark.parametrize("name", NAMES)
def test_first_cell_holds_title_and_description_alone(name):
    first = read(NBS / name).cells[0].source
    assert re.fullmatch(r"# .+\n\n> .+", first), "nbdev drops the rest: two blank lines in the twin part the cells"


@pytest.mark.parametrize("name", NAMES)
def test_notebook_is_clean_and_small(name):
    nb, cleaned = read(NBS / name), read(NBS / name)
    clean_nb(cleaned)
    assert nb == cleaned, "run `make sync`"
    assert (NBS / name).stat().st_size < 500_000
    assert nb.metadata.kernelspec.name == "python3"
    assert len({c.id for c in nb.cells}) == len(nb.cells)


@pytest.mark.parametrize("name", NAMES)
def test_running_again_gives_the_stored_outputs(name):
    stored = read(NBS / name)
    again = run(read(NBS / name), (NBS / name).parent)
    clean_nb(again)
    assert texts(again) == texts(stored), "run `make sync`"


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs_tell_nothing_of_the_machine(name):
    for outputs in texts(read(NBS / name)):
        for kind, _, text, data in outputs:
            assert kind != "error"
            for what, pattern in TELLTALE.items():
                for shown in filter(None, [text, *data.values()]):
                    assert not pattern.search(shown), f"{what} in a stored output: {pattern.search(shown)[0]!r}"


def test_exporting_into_an_empty_folder_gives_the_package(tmp_path):
    shutil.copy(ROOT / "settings.ini", tmp_path)
    shutil.copytree(NBS, tmp_path / "nbs", symlinks=True, ignore=shutil.ignore_patterns("_*", "mathjax"))
    (tmp_path / "isvm").mkdir()
    subprocess.run([sys.executable, "-c", "from nbdev.doclinks import nbdev_export as e; e()"],
                   cwd=tmp_path, check=True)
    def files(folder: Path) -> dict[str, str]:
        return {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*.py"))}
    made, kept = files(tmp_path / "isvm"), files(ROOT / "isvm")
    assert made.keys() == kept.keys(), "a module has no notebook, or a notebook no module"
    assert [n for n in made if made[n] != kept[n]] == [], "run `make sync`"


def test_readme_tells_the_story_of_the_index():
    text, pictures = readme.readme()
    assert (ROOT / "README.md").read_text() == text, "run `make sync`"
    for name, data in pictures.items():
        assert (readme.IMAGES / name).read_bytes() == data, "run `make sync`"
