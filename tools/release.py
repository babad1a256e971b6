"""What `make release` asks of a release: one version everywhere, a changelog, badges, whole packages.

`python tools/release.py` checks the repository; with `dist` it also checks what was built there. It uploads
nothing.
"""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "besselnet": ROOT / "packages/besselnet",
    "besselnet_lab": ROOT / "packages/besselnet-lab",
}
BADGES = ROOT / "docs" / "images" / "badges"


def version_of(package: str) -> str:
    """The version that a package gives itself."""
    text = (PACKAGES[package] / "src" / package / "_version.py").read_text()
    return re.findall(r'"(.+)"', text)[0]


def problems_of_repository() -> list[str]:
    """What stands between this repository and a release."""
    version = version_of("besselnet")
    changes = (ROOT / "CHANGELOG.md").read_text()
    unreleased = changes.partition("## [Unreleased]")[2].partition("\n## ")[0].strip()
    dates = re.findall(rf"^## \[{re.escape(version)}\] - (\S+)$", changes, re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    checks = {
        f"besselnet-lab is {version_of('besselnet_lab')}, besselnet {version}": version_of(
            "besselnet_lab"
        )
        == version,
        f"CHANGELOG.md has no dated section [{version}]": len(dates) == 1,
        f"CHANGELOG.md: move what is under [Unreleased] to [{version}]": not unreleased,
        f"CITATION.cff has another version than {version}": f"\nversion: {version}\n" in citation,
        "CITATION.cff has another date than CHANGELOG.md": bool(dates)
        and f"\ndate-released: {dates[0]}\n" in citation,
        "the badges are old: run tools/release.py --badges": badges()
        == {path.name: path.read_text() for path in BADGES.glob("*.svg")},
    }
    return [problem for problem, good in checks.items() if not good]


def problems_of_files(folder: Path) -> list[str]:
    """What is wrong with the wheels and source archives in `folder`."""
    problems = []
    version = version_of("besselnet")
    for package in PACKAGES:
        wheels = list(folder.glob(f"{package}-{version}-*.whl"))
        archives = list(folder.glob(f"{package}-{version}.tar.gz"))
        if (len(wheels), len(archives)) != (1, 1):
            problems.append(f"{folder} must hold one wheel and one archive of {package} {version}")
            continue
        with zipfile.ZipFile(wheels[0]) as wheel, tarfile.open(archives[0]) as archive:
            inside, sources = wheel.namelist(), archive.getnames()
        kernels = [name for name in inside if Path(name).stem == "libbesselnet"]
        tops = {name.partition("/")[0] for name in inside}
        checks = {
            f"the wheel of {package} has other folders: {tops}": tops
            == {package, f"{package}-{version}.dist-info"},
            f"the wheel of {package} has no types": f"{package}/py.typed" in inside,
            f"the archive of {package} has no licence": f"{package}-{version}/LICENSE" in sources,
            "the wheel of besselnet has no native kernel: is there a C compiler?": bool(kernels)
            or package != "besselnet",
        }
        problems += [problem for problem, good in checks.items() if not good]
    return problems


def badges() -> dict[str, str]:
    """Badges of the README by file name, from what they speak of."""
    about = (PACKAGES["besselnet"] / "pyproject.toml").read_text()
    python = re.findall(r'^requires-python = ">=(.+)"', about, re.MULTILINE)[0]
    licence = re.findall(r'^license = "(.+)"', about, re.MULTILINE)[0]
    facts = {"version": version_of("besselnet"), "python": f"{python}+", "licence": licence}
    return {f"{name}.svg": _badge(name, value) for name, value in facts.items()}


def _badge(name: str, value: str) -> str:
    left, right = (10 + 7 * len(text) for text in (name, value))
    text = 'text-anchor="middle" fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{name}: {value}"><title>{name}: {value}</title>\n'
        f'<rect width="{left + right}" height="20" rx="3" fill="#3f51b5"/>'
        f'<path d="M3 0h{left - 3}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#555"/>\n'
        f'<g {text}><text x="{left / 2:g}" y="14">{name}</text>'
        f'<text x="{left + right / 2:g}" y="14">{value}</text></g></svg>\n'
    )


def main(arguments: list[str]) -> int:
    """Print what is wrong; the exit code."""
    if arguments == ["--badges"]:
        BADGES.mkdir(parents=True, exist_ok=True)
        for name, picture in badges().items():
            (BADGES / name).write_text(picture)
        return 0
    problems = problems_of_repository()
    for folder in arguments:
        problems += problems_of_files(Path(folder))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
