"nbdev's page processing, with one thing mended."
import nbdev.serve
from nbdev.processors import FilterDefaults, _default_exp, exec_show_docs


class show_docs_with_module(exec_show_docs):
    "As nbdev's, with the finished module's names at hand: an annotation may name what comes further down the page."
    def begin(self):
        super().begin()
        module = _default_exp(self.nb)
        if module: self.k.run_cell(f"from isvm.{module} import *")


class Pages(FilterDefaults):
    def base_procs(self):
        return [show_docs_with_module if p is exec_show_docs else p for p in super().base_procs()]


nbdev.serve.FilterDefaults = Pages
