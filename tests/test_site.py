"The built site: complete, self-contained, and alive in a browser."
import re
from html.parser import HTMLParser

import pytest

from conftest import needs_browser
from tools.docs import bare
from tools.notebooks import NBS, notebooks

LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class Loads(HTMLParser):
    "Collects what a page loads and where it links."
    def __init__(self, text: str):
        super().__init__()
        self.loads, self.links, self.ids = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs: self.ids.add(attrs["id"])
        if attrs.get(LOADING.get(tag)): self.loads.append(attrs[LOADING[tag]])
        if tag == "a" and attrs.get("href"): self.links.append(attrs["href"])


@pytest.fixture(scope="module")
def pages(site):
    return {p.relative_to(site): Loads(p.read_text(encoding="utf-8")) for p in site.rglob("*.html")}


def test_every_notebook_has_a_page(site):
    for path in notebooks():
        assert (site / bare(path.relative_to(NBS))).with_suffix(".html").exists()


def test_pages_load_nothing_from_elsewhere(site, pages):
    for name, page in pages.items():
        assert not [u for u in page.loads if re.match(r"(?:[a-z]+:)?//", u)], name
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", sheet.read_text()), sheet


def test_links_between_pages_arrive(site, pages):
    for name, page in pages.items():
        for link in page.links:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", path) or not anchor and not path: continue
            target = (site / name).parent.joinpath(path).resolve() if path else site / name
            assert target.exists(), f"{name} links to {link}"
            if anchor and target.suffix == ".html": assert anchor in pages[target.relative_to(site)].ids, f"{name}: {link}"


@pytest.fixture
def open_page(browser, site):
    "Open a page by its path; nothing it asks for may lie outside the site."
    elsewhere = []
    page = browser.new_page()
    page.on("request", lambda r: None if r.url.startswith((site.as_uri(), "data:", "blob:")) else elsewhere.append(r.url))
    yield lambda path: (page.goto(f"{site.as_uri()}/{path}"), page)[1]
    page.close()
    assert not elsewhere


@needs_browser
def test_mathematics_and_figures_are_drawn(open_page):
    page = open_page("engine/problem.html")
    page.wait_for_selector("mjx-container [data-mml-node=mlabeledtr]")  # an equation with its tag
    assert page.evaluate("[...document.querySelectorAll('.cell_output img')].some(i => i.naturalWidth > 100)")


@needs_browser
@pytest.mark.parametrize("name", [bare(p.relative_to(NBS).with_suffix(".html")) for p in notebooks()])
def test_no_equation_fails(open_page, name):
    page = open_page(name)
    page.evaluate("window.MathJax ? MathJax.startup.promise : null")
    failed = page.locator("[data-mml-node=merror]").evaluate_all("errors => errors.map(e => e.textContent)")
    assert failed == []
    assert page.locator(".math:not(:has(mjx-container))").count() == 0


@needs_browser
def test_search_finds_a_function(open_page):
    page = open_page("search.html?q=kkt_residual")
    page.wait_for_selector("ul.search li a")
    assert "problem" in " ".join(page.locator("ul.search li a").evaluate_all("links => links.map(a => a.href)"))


@needs_browser
def test_light_and_dark_differ(open_page):
    page = open_page("index.html")
    def background(scheme):
        page.emulate_media(color_scheme=scheme)
        return page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background("light") != background("dark")
