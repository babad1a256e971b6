"""Write docs/licences.md: the licence of everything that an installation of besselnet can bring along.

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


def table() -> dict[str, str]:
    """The licence of each installed package that some extra of besselnet needs."""
    extras = set(metadata.metadata("besselnet").get_all("Provides-Extra") or [])
    return {name: licence(name) for name in sorted(closure("besselnet", extras))}


def main() -> None:
    lines = [
        "# Licences",
        "",
        "besselnet is under the MIT licence and contains no code of others. What an installation with all",
        "extras brings along, directly or through a dependency, as the packages themselves state it",
        "(`python tools/licences.py` wrote this page):",
        "",
        "| package | licence |",
        "|---|---|",
        *(f"| {name} | {text} |" for name, text in table().items()),
    ]
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
