"""The rooms of the package and who may import whom, read from the source itself."""

import ast
from pathlib import Path

import besselnet

PACKAGE = Path(besselnet.__file__).parent

# What each room may import from the others. A room left out of this table fails the test.
MAY_IMPORT = {
    "atomic": set(),
    "core": set(),
    "functional": {"core"},
    "nn": {"core", "functional"},
    "models": {"core", "functional", "nn"},
    "data": {"atomic"},
    "testing": {"core", "functional", "nn", "data"},
    "conversion": {"core", "functional", "nn", "testing"},
    "plots": {"core", "functional", "nn", "models", "data", "testing"},
    "export": {"atomic", "core", "functional", "nn", "models"},
    "hub": {"atomic", "models"},
    "engine": {"atomic", "core", "functional", "nn", "models", "data", "testing", "plots"},
    "benchmarks": {"core", "functional", "nn", "models", "plots"},
    "study": {
        *("atomic", "core", "functional", "nn", "models", "data", "testing", "plots", "export"),
        "engine",
    },
    "cli": {
        *("core", "functional", "nn", "models", "data", "testing", "plots", "export", "engine"),
        *("atomic", "benchmarks", "hub", "study"),
    },
}
# The core is mathematics: it may be read, tested and used without torch.
CORE_LIBRARIES = {"numpy", "scipy"}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """Absolute names of everything `path` imports, at any depth of the file."""
    found = set()
    package_parts = ("besselnet", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package_parts[: len(package_parts) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            found |= {stem, *(f"{stem}.{alias.name}" for alias in node.names)}
    return found


def sources() -> list[Path]:
    doors = {"__init__.py", "__main__.py", "_version.py"}
    return [p for p in PACKAGE.rglob("*.py") if not (p.parent == PACKAGE and p.name in doors)]


def test_every_room_is_in_the_table():
    assert {room_of(p) for p in sources()} <= MAY_IMPORT.keys()


def test_a_room_imports_only_from_its_left():
    wrong = []
    for path in sources():
        room = room_of(path)
        for name in imported_modules(path):
            parts = name.split(".")
            if parts[0] == "besselnet" and len(parts) > 1 and parts[1] in MAY_IMPORT:
                target = parts[1]
                if target != room and target not in MAY_IMPORT[room]:
                    wrong.append(f"{path.relative_to(PACKAGE)} ({room}) imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_core_knows_only_numpy_and_scipy():
    import sys

    allowed = CORE_LIBRARIES | set(sys.stdlib_module_names) | {"besselnet"}
    for path in sources():
        if room_of(path) == "core":
            roots = {name.split(".")[0] for name in imported_modules(path)}
            assert roots <= allowed, f"{path.relative_to(PACKAGE)}: {roots - allowed}"
