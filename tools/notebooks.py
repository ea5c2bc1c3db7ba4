"Notebooks and their twins: find, read, pair, run, write."
import hashlib, re
from difflib import SequenceMatcher
from pathlib import Path

import jupytext, nbformat
from nbclient import NotebookClient
from nbdev.clean import clean_nb

ROOT = Path(__file__).resolve().parent.parent
NBS, TEXT = ROOT / "nbs", ROOT / "nbs" / "_text"
SKIPPED = re.compile(r"^#\|\s*(eval:\s*false|slow|notest)\b", re.MULTILINE)


def twins() -> list[Path]:
    "Every twin, in reading order."
    return sorted(TEXT.rglob("*.md"))


def notebooks() -> list[Path]:
    "Every notebook, in reading order."
    found = (p.relative_to(NBS) for p in NBS.rglob("*.ipynb"))
    return [NBS / p for p in sorted(found) if not any(part[0] in "._" for part in p.parts)]


def notebook_of(twin: Path) -> Path:
    return (NBS / twin.relative_to(TEXT)).with_suffix(".ipynb")


def twin_of(notebook: Path) -> Path:
    return (TEXT / notebook.relative_to(NBS)).with_suffix(".md")


def read(path: Path) -> nbformat.NotebookNode:
    "The notebook at `path`, or the one its twin at `path` describes."
    return jupytext.read(path) if path.suffix == ".md" else nbformat.read(path, as_version=4)


def content(nb: nbformat.NotebookNode) -> list[tuple[str, str]]:
    "What a twin and its notebook share."
    return [(c.cell_type, c.source) for c in nb.cells]


def code(nb: nbformat.NotebookNode) -> str:
    return "\n\n".join(source for kind, source in content(nb) if kind == "code")


def merge(new: nbformat.NotebookNode, old: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    "The cells of `new` with the ids and outputs of `old`; a cell never seen gets an id made from its text."
    matched = {}
    matcher = SequenceMatcher(None, content(old), content(new), autojunk=False)
    for tag, i, i_end, j, j_end in matcher.get_opcodes():
        if tag in ("equal", "replace"):
            matched |= dict(zip(range(j, j_end), old.cells[i:i_end]))
    taken = {c.id for c in old.cells}
    for j, cell in enumerate(new.cells):
        before = matched.get(j)
        if before is not None and before.cell_type == cell.cell_type:
            cell.id = before.id
            if cell.cell_type == "code": cell.outputs = before.outputs
        else:
            cell.id, salt = "", 0
            while not cell.id or cell.id in taken:
                cell.id = hashlib.sha256(f"{name} {salt} {cell.source}".encode()).hexdigest()[:8]
                salt += 1
            taken.add(cell.id)
    new.metadata = {"kernelspec": {"display_name": "python3", "language": "python", "name": "python3"}}
    new.nbformat_minor = 5
    return new


class Client(NotebookClient):
    "A notebook client that leaves out the cells nbdev_test leaves out."
    async def async_execute_cell(self, cell, cell_index, **kwargs):
        if cell.cell_type == "code" and SKIPPED.search(cell.source): return cell
        return await super().async_execute_cell(cell, cell_index, **kwargs)


def run(nb: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    "Execute `nb` in place, top to bottom in a fresh kernel."
    Client(nb, timeout=600, kernel_name="python3", store_widget_state=False, record_timing=False,
           coalesce_streams=True,  # how print calls are cut into messages is chance
           extra_arguments=["--log-level=ERROR"], resources={"metadata": {"path": str(folder)}}).execute()
    return nb


def write(nb: nbformat.NotebookNode, path: Path) -> bool:
    "Write the cleaned notebook if that changes the file; say whether it did."
    clean_nb(nb)
    text = nbformat.writes(nb).rstrip("\n") + "\n"
    if path.exists() and path.read_text(encoding="utf-8") == text: return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True
