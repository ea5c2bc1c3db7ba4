"`make docs`: the site into _docs/, by Quarto where it is installed, otherwise by Sphinx."
import json, re, shutil, sys
from importlib.metadata import distribution
from pathlib import Path

import yaml
from nbdev.config import get_config
from nbdev.quarto import nbdev_docs
from nbdev.serve import proc_nbs

import tools.pages  # mends nbdev's processing for Quarto and Sphinx alike
from tools.notebooks import NBS, ROOT

PROC, SITE = ROOT / "_proc", ROOT / "_docs"
FRONT = re.compile(r"\A---\n(.*?)\n---\s*", re.DOTALL)
DIRECTIVE = re.compile(r"^#\|.*\n?", re.MULTILINE)
HEADING = re.compile(r"\A---\n+(#+ ([\w.]+))$", re.MULTILINE)
SIGNATURE = re.compile(r"^```python\n.*?^```\n", re.MULTILINE | re.DOTALL)
SOURCE_LINK = re.compile(r"^\[source\]\(.*\)\n+", re.MULTILINE)
DISPLAY = re.compile(r"^\$\$(.*?)\$\$", re.MULTILINE | re.DOTALL)
PAGE_LINK = re.compile(r"\]\((?!https?:)([^)#]*\.ipynb)")
ATTRIBUTES = re.compile(r"(?<=\))\{[^}]*\}")  # Quarto's, behind a link


def mathjax(folder: Path) -> None:
    "The one file of MathJax the pages need."
    package = distribution("sphinx-mathjax-offline")
    (folder / "mathjax").mkdir(parents=True, exist_ok=True)
    shutil.copy(package.locate_file("sphinx-mathjax-offline/static/mathjax/tex-svg.js"), folder / "mathjax")


def bare(path: Path | str) -> str:
    "A page's path as nbdev has it: without the number."
    return str(Path(path).with_name(re.sub(r"^\d+[a-zA-Z0-9]*_", "", Path(path).name.lower())))


def title(text: str) -> str:
    "Front matter as a heading and a lead."
    fields = yaml.safe_load(FRONT.match(text)[1])
    lead = f"\n\n> {fields['description']}" if "description" in fields else ""
    return f"# {fields['title']}{lead}\n\n" + text[FRONT.match(text).end():]


def display(equation: re.Match) -> str:
    "Sphinx would put an equation with line breaks into `split`, where a tag is refused."
    body = equation[1].strip()
    return f"\\begin{{equation*}}\n{body}\n\\end{{equation*}}" if r"\\" in body else equation[0]


def markdown(text: str) -> str:
    "Links between notebooks as links between pages, without Quarto's attributes; equations with their tags."
    return DISPLAY.sub(display, PAGE_LINK.sub(lambda m: f"]({bare(m[1])}", ATTRIBUTES.sub("", text)))


def anchored(heading: re.Match) -> str:
    "An API heading with nbdev's anchor, where Sphinx would make another one."
    name = heading[2].lower()
    return heading[1] if name.isalnum() else f'<a id="{name}"></a>\n\n{heading[1]}'


def entry(text: str, shown: bool) -> str:
    "What show_doc says, under nbdev's anchor; the source, if shown below, says the signature better."
    text = HEADING.sub(anchored, SOURCE_LINK.sub("", ATTRIBUTES.sub("", text)))
    return SIGNATURE.sub("", text, count=1) if shown else text


def prepare(path: Path) -> None:
    "Rewrite a notebook processed by nbdev for myst-nb."
    nb = json.loads(path.read_text(encoding="utf-8"))
    nb["metadata"] = {"kernelspec": nb["metadata"]["kernelspec"]}
    for cell, following in zip(nb["cells"], nb["cells"][1:] + [{}]):
        source = "".join(cell["source"])
        documented = "show_doc(" in source and [
            o["data"]["text/markdown"] for o in cell.get("outputs", []) if "text/markdown" in o.get("data", {})]
        if cell["cell_type"] == "raw": source = title(source)
        elif documented: source = entry("".join(documented[0]), "code-summary" in "".join(following.get("source", "")))
        elif "echo: false" in source: cell["metadata"]["tags"] = ["remove-input"]
        if documented or cell["cell_type"] == "raw":
            kept = {"cell_type": "markdown", "id": cell["id"], "metadata": {}}
            cell.clear(), cell.update(kept)
        cell["source"] = DIRECTIVE.sub("", source) if cell["cell_type"] == "code" else markdown(source)
    nb["cells"] = [c for c in nb["cells"] if c["source"]]
    path.rename(bare(path)).write_text(json.dumps(nb), encoding="utf-8")


def inside(page: Path, site: Path) -> None:
    "Make nbdev's links relative; a method is found at its class."
    cfg, up = get_config(), "../" * (len(page.relative_to(site).parts) - 1)
    link = re.compile(re.escape(f"{cfg.doc_host}{cfg.doc_baseurl}/") + r"([^\"#]*)(#\w+)?[.\w]*")
    text = page.read_text(encoding="utf-8")
    page.write_text(link.sub(lambda m: up + m[1] + (m[2] or ""), text), encoding="utf-8")


def toctree(contents: list, caption: str = "") -> str:
    "The navigation of _quarto.yml as Sphinx's."
    pages = [bare(c).rsplit(".", 1)[0] for c in contents if isinstance(c, str)]
    lines = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else []), "",
             *("Home <self>" if page == "index" else page for page in pages), "```", ""]
    return "\n".join([*lines, *(toctree(c["contents"], c["section"]) for c in contents if isinstance(c, dict))])


def sphinx(out: Path) -> None:
    "Render the processed notebooks in _proc/ into `out`."
    from sphinx.application import Sphinx
    site = yaml.safe_load((ROOT / "_quarto.yml").read_text())["website"]
    for path in PROC.rglob("*.qmd"):
        path.with_suffix(".md").write_text(title(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in list(PROC.rglob("*.ipynb")): prepare(path)
    index = json.loads((PROC / "index.ipynb").read_text())
    index["cells"].append({"cell_type": "markdown", "id": "toc", "metadata": {},
                           "source": toctree(site["sidebar"]["contents"])})
    (PROC / "index.ipynb").write_text(json.dumps(index))
    static = PROC / "_static"
    mathjax(static)
    shutil.copy(ROOT / "tools" / "site.css", static)
    build = PROC / "_build" / "html"
    app = Sphinx(PROC, None, build, PROC / "_build" / "doctrees", "html", status=None, warning=sys.stderr, confoverrides={
        "project": site["title"], "html_title": site["title"], "html_theme": "furo",
        "extensions": ["myst_nb"], "exclude_patterns": ["_build", "*.qmd"],
        "source_suffix": {".ipynb": "myst-nb", ".md": "myst-nb"},
        "nb_execution_mode": "off", "nb_ipywidgets_js": {}, "nb_merge_streams": True,
        "myst_enable_extensions": ["dollarmath", "amsmath", "colon_fence"], "myst_heading_anchors": 3,
        "html_static_path": ["_static"], "html_css_files": ["site.css"],
        "mathjax_path": "mathjax/tex-svg.js", "html_show_copyright": False, "html_show_sphinx": False,
        "html_copy_source": False, "html_show_sourcelink": False, "suppress_warnings": ["myst.header"]})
    app.build()
    if app.statuscode: raise SystemExit("the site could not be built")
    for page in build.rglob("*.html"): inside(page, build)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(build, out, ignore=shutil.ignore_patterns(".buildinfo", "_sources"))


def build(out: Path = SITE) -> Path:
    "Build the site and say where it is: Quarto's is always in _docs/."
    if shutil.which("quarto"):
        mathjax(NBS)
        nbdev_docs()
        return SITE
    proc_nbs(force=True)
    sphinx(out)
    return out


if __name__ == "__main__":
    build()
    print(f"Open {(SITE / 'index.html').relative_to(ROOT)} in a browser; no server needed.")
