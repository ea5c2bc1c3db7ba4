"Packaging: everything is read from settings.ini."
from configparser import ConfigParser
from pathlib import Path
from setuptools import find_packages, setup

config = ConfigParser(delimiters=["="], interpolation=None)
config.read("settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    keywords=cfg["keywords"],
    license="BSD-3-Clause",
    python_requires=f">={cfg['min_python']}",
    packages=find_packages(include=["isvm", "isvm.*"]),
    package_data={"isvm": ["py.typed"]},
    install_requires=cfg["requirements"].split(),
    extras_require={"dev": cfg["dev_requirements"].split()},
    entry_points={"nbdev": ["isvm=isvm._modidx:d"]},
    zip_safe=False,
)
