"`make sync`: twins into notebooks, notebooks into modules, and new outputs where code changed."
import hashlib, json, os, re, tempfile
from importlib.util import resolve_name
from pathlib import Path

import nbformat
from nbclient.exceptions import CellExecutionError
from nbdev.doclinks import nbdev_export

from tools import readme
from tools.notebooks import NBS, ROOT, code, merge, notebook_of, notebooks, read, run, twins, write

LIB, RECORD = ROOT / "isvm", ROOT / ".sync.json"
IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([\w.]+)(?:[ \t]+import[ \t]+([\w, ]+))?", re.MULTILINE)


def modules(source: str, package: str = "isvm") -> set[Path]:
    "Files of the library that `source` names in its imports."
    found = set()
    for base, names in IMPORT.findall(source):
        if base.startswith("."): base = resolve_name(base, package)
        for name in [base, *(f"{base}.{n.strip()}" for n in names.split(","))]:
            stem = ROOT.joinpath(*name.split("."))
            found |= {f for f in (stem.with_suffix(".py"), stem / "__init__.py")
                      if name.split(".")[0] == "isvm" and f.exists()}
    return found


def fingerprint(notebook: Path) -> str:
    "A digest of the notebook's code, of the tables beside it and of every module it imports, directly or not."
    source = code(read(notebook))
    reached, todo = set(), modules(source)
    while todo:
        file = todo.pop()
        reached.add(file)
        package = ".".join(file.relative_to(ROOT).parts[:-1])
        todo |= modules(file.read_text(encoding="utf-8"), package) - reached
    texts = [source, *(f.read_text(encoding="utf-8") for f in sorted([*reached, *notebook.parent.glob("*.csv")]))]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def fingerprints() -> dict[str, str]:
    return {str(p.relative_to(NBS)): fingerprint(p) for p in notebooks()}


def export() -> None:
    "Notebooks into modules; compiled code of the old modules goes."
    nbdev_export()
    for cached in (*LIB.rglob("*.nbi"), *LIB.rglob("*.nbc")): cached.unlink()


def main() -> None:
    done = fingerprints()  # what a fresh clone holds is in step; afterwards the record knows better
    if RECORD.exists(): done |= json.loads(RECORD.read_text())
    for twin in twins():
        path = notebook_of(twin)
        old = read(path) if path.exists() else nbformat.v4.new_notebook()
        if write(merge(read(twin), old, path.stem), path): print("updated ", path.relative_to(ROOT))
    export()
    failed = []
    for name, now in fingerprints().items():
        if done.get(name) == now: continue
        print("running ", name, flush=True)
        nb = read(NBS / name)
        try:
            write(run(nb, (NBS / name).parent), NBS / name)
            done[name] = now
        except CellExecutionError as error:
            failed.append(name)
            done[name] = "failed"
            print(error)
    RECORD.write_text(json.dumps(done, indent=1))
    if readme.write(): print("updated  README.md")
    if failed: raise SystemExit(f"failed: {', '.join(failed)}. Mend the twin, then `make sync` again.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:  # numba must not answer with code of an older source
        os.environ.update(XDG_CACHE_HOME=cache, NUMBA_CACHE_DIR=cache)
        main()
