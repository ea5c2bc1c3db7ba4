"README.md: the index notebook, as plain markdown."
import base64, re

from tools.notebooks import NBS, ROOT, read

IMAGES = NBS / "images"
HIDDEN = re.compile(r"^#\|\s*hide\b", re.MULTILINE)
LINK = re.compile(r"\]\((?![a-z]+:|#)")


def readme() -> tuple[str, dict[str, bytes]]:
    "The text of README.md, and the pictures it shows by file name."
    blocks, pictures = [], {}
    for cell in read(NBS / "index.ipynb").cells:
        if cell.cell_type == "markdown": blocks.append(LINK.sub("](nbs/", cell.source))
        elif not HIDDEN.search(cell.source):
            blocks.append(f"```python\n{cell.source}\n```")
            for output in cell.outputs:
                data = output.get("data", {})
                if "image/png" in data:
                    name = f"index-{len(pictures) + 1}.png"
                    pictures[name] = base64.b64decode(data["image/png"])
                    blocks.append(f"![](nbs/images/{name})")
                else:
                    text = output.get("text") or data["text/plain"]
                    blocks.append(f"```text\n{text.rstrip()}\n```")
    return "\n\n".join(blocks) + "\n", pictures


def write() -> bool:
    "Bring README.md and its pictures up to date; say whether anything changed."
    text, pictures = readme()
    wanted = {ROOT / "README.md": text.encode()} | {IMAGES / n: p for n, p in pictures.items()}
    stale = {p: b for p, b in wanted.items() if not p.exists() or p.read_bytes() != b}
    for path, data in stale.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return bool(stale)
