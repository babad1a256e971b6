"""The lab uses the library through its public names alone, and its own rooms from left to right."""

import ast
import importlib
import importlib.util
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest

import besselnet_lab

PACKAGE = Path(besselnet_lab.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

# What each room imports from others; a room may import from those above it only.
MAY_IMPORT = {
    "paper": set(),
    "study": {"paper"},
    "report": {"paper"},
    "benchmarks": {"paper"},
    "figures": set(),
    "cli": {"benchmarks", "figures", "paper", "report", "study"},
}


def is_private(name: str) -> bool:
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def wrong_uses(source: str) -> list[str]:
    """Names of besselnet that `source` imports or reads from an imported module, and that are not public."""
    tree = ast.parse(source)
    modules: dict[str, ModuleType] = {}
    wrong = []

    def check(module: str, name: str | None) -> None:
        if is_private(module):
            wrong.append(f"{module} is private")
        elif name is not None and name not in importlib.import_module(module).__all__:
            wrong.append(f"{module}.{name} is not in __all__")

    def is_module(name: str) -> bool:
        try:
            return importlib.util.find_spec(name) is not None
        except ModuleNotFoundError:
            return False

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "besselnet":
                    check(alias.name, None)
                    # `import besselnet.x` binds besselnet, `import besselnet.x as y` binds the module.
                    bound = alias.name if alias.asname else "besselnet"
                    modules[alias.asname or "besselnet"] = importlib.import_module(bound)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "besselnet":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if alias.name == "*":
                    wrong.append(f"everything of {node.module}")
                elif is_module(inner):
                    check(inner, None)
                    modules[alias.asname or alias.name] = importlib.import_module(inner)
                else:
                    check(str(node.module), alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is None or node.attr == "__version__":
                continue
            if is_module(f"{module.__name__}.{node.attr}"):
                check(f"{module.__name__}.{node.attr}", None)
            else:
                check(module.__name__, node.attr)
    return wrong


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_source_uses_public_names_of_the_library_alone(path):
    assert not wrong_uses(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "from besselnet.train import _run",
        "from besselnet.train._run import train_run",
        "import besselnet.train._run",
        "from besselnet.functional import direct",
        "from besselnet.functional import *",
        "from besselnet import train\ntrain.write_json",
        "from besselnet import train as training\ntraining._run.train_run",
        "import besselnet\nbesselnet._version",
    ],
)
def test_the_check_finds_a_private_name(source):
    assert wrong_uses(source)


def test_the_check_passes_public_names():
    source = "from besselnet import train as t\nfrom besselnet.nn import BesselConv2d\nt.train_run"
    assert not wrong_uses(source)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def imports_between_rooms() -> list[tuple[Path, str]]:
    """File, and the room of the lab that it imports from."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                parts = name.split(".")
                if parts[0] == "besselnet_lab" and len(parts) > 1 and parts[1] in MAY_IMPORT:
                    found.append((path, parts[1]))
    return found


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in SOURCES if path.parent != PACKAGE} == MAY_IMPORT.keys()


def test_a_room_imports_only_from_its_left():
    rooms = list(MAY_IMPORT)
    for number, room in enumerate(rooms):
        assert MAY_IMPORT[room] <= set(rooms[:number]), room
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {target}"
        for path, target in imports_between_rooms()
        if path.parent != PACKAGE
        and target != room_of(path)
        and target not in MAY_IMPORT[room_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def test_every_permission_is_used():
    used = defaultdict(set)
    for path, target in imports_between_rooms():
        used[room_of(path)].add(target)
    unused = {room: allowed - used[room] for room, allowed in MAY_IMPORT.items()}
    assert not any(unused.values()), unused
