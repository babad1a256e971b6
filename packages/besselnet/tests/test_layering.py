"""The rooms of the library and who may import whom, read from the source itself."""

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import besselnet

PACKAGE = Path(besselnet.__file__).parent

# What each room imports from others, from left to right: a room may import from those above it only.
MAY_IMPORT = {
    "atomic": set(),
    "locking": {"atomic"},
    "checks": set(),
    "untrusted": set(),
    "_pixels": {"checks", "untrusted"},
    "_rows": {"_pixels", "atomic", "untrusted"},
    "_progress": set(),
    "cluster": set(),
    "core": set(),
    "kernels": set(),
    "functional": {"checks", "core", "kernels"},
    "nn": {"checks", "core", "functional"},
    "models": {"atomic", "checks", "functional", "nn", "untrusted"},
    "masks": {"_pixels", "_rows", "atomic", "checks", "functional", "nn"},
    "testing": {"checks", "functional", "nn"},
    "conversion": {"checks", "functional", "nn", "testing"},
    "export": {"_pixels", "atomic", "checks", "functional", "models", "nn", "untrusted"},
    "hub": {"_pixels", "atomic", "models", "untrusted"},
    "data": {"_pixels", "atomic", "checks", "functional", "untrusted"},
    "robust": {"atomic", "checks", "data", "functional", "nn", "untrusted"},
    "drawing": {"_pixels", "atomic", "checks", "data", "masks", "nn"},
    "train": {
        *("_progress", "_rows", "atomic", "checks", "cluster", "data", "drawing", "export"),
        *(
            "functional",
            "kernels",
            "locking",
            "masks",
            "models",
            "nn",
            "robust",
            "testing",
            "untrusted",
        ),
    },
    "sklearn": {"checks", "data", "train"},
    "demo": {"atomic", "data", "drawing", "functional", "nn", "testing", "train"},
    "play": {"atomic", "data", "drawing", "export", "models", "nn", "train"},
    "cli": {
        *("_pixels", "_progress", "_rows", "atomic", "checks", "data", "demo", "drawing"),
        *("export", "hub", "kernels", "locking", "masks", "models", "play", "robust", "train"),
    },
}
# What `pip install besselnet` brings: these rooms, and what they need.
BARE_ROOMS = ("nn", "kernels", "models", "testing", "conversion", "hub", "export", "cli")
DOORS = tuple(room for room in MAY_IMPORT if not room.startswith("_") and room != "sklearn")
HARD = {"torch", "numpy", "scipy", "safetensors"}
# By module, as the rooms import them; `importlib` is used for some.
OTHER_EXTRAS = {
    *("pooch", "requests", "h5py", "mlxtend", "skimage", "tensorboard", "huggingface_hub"),
    *("onnx", "onnxscript", "onnxruntime", "pyarrow", "zarr", "fsspec", "ray", "sklearn"),
}
TRAIN = {"lightning_fabric", "torchmetrics", "typer", "rich", "PIL", "matplotlib", "filelock"}
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


def imports_between_rooms() -> list[tuple[Path, str, list[str]]]:
    """File, the room it imports from, and the parts of the imported name."""
    return [
        (path, parts[1], parts)
        for path in sources()
        for parts in (name.split(".") for name in imported_modules(path))
        if parts[0] == "besselnet" and len(parts) > 1 and parts[1] in MAY_IMPORT
        if parts[1] != room_of(path)
    ]


def test_every_room_is_in_the_table():
    assert {room_of(path) for path in sources()} == MAY_IMPORT.keys()


def test_a_room_imports_only_from_its_left():
    rooms = list(MAY_IMPORT)
    for number, room in enumerate(rooms):
        assert MAY_IMPORT[room] <= set(rooms[:number]), room
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {'.'.join(parts)}"
        for path, target, parts in imports_between_rooms()
        if target not in MAY_IMPORT[room_of(path)]
    ]
    assert not wrong, "\n".join(wrong)


def test_every_permission_is_used():
    used = defaultdict(set)
    for path, target, _ in imports_between_rooms():
        used[room_of(path)].add(target)
    unused = {room: allowed - used[room] for room, allowed in MAY_IMPORT.items()}
    assert not any(unused.values()), {room: names for room, names in unused.items() if names}


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


def test_private_modules_are_imported_by_their_own_room_only():
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {'.'.join(parts)}"
        for path, _, parts in imports_between_rooms()
        if any(map(is_private, parts[2:]))
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_no_function_shares_the_name_of_its_module():
    shared = [
        f"{path.relative_to(PACKAGE)}: {node.name}"
        for path in sources()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name in {path.stem, path.parent.name}
    ]
    assert not shared


def test_the_doors_say_what_is_public():
    for path in sources():
        place = path.parent if path.name == "__init__.py" else path
        if place.parent == PACKAGE and not is_private(place.stem):
            assert "__all__ = [" in path.read_text(), path.relative_to(PACKAGE)


def test_the_library_does_not_know_the_lab():
    for path in PACKAGE.rglob("*.py"):
        assert "besselnet_lab" not in path.read_text(), path.relative_to(PACKAGE)


def test_the_core_knows_only_numpy_and_scipy():
    allowed = CORE_LIBRARIES | set(sys.stdlib_module_names) | {"besselnet"}
    for path in sources():
        if room_of(path) == "core":
            roots = {name.split(".")[0] for name in imported_modules(path)}
            assert roots <= allowed, f"{path.relative_to(PACKAGE)}: {roots - allowed}"


def third_party() -> set[str]:
    """Everything that some module of the library imports, and that is not Python's nor its own."""
    roots = {name.split(".")[0] for path in sources() for name in imported_modules(path)}
    return roots - set(sys.stdlib_module_names) - {"besselnet"}


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
for room in {rooms!r}:
    door = __import__("besselnet." + room, fromlist=["x"])
    for name in {names}:
        getattr(door, name)
"""


@pytest.mark.parametrize(
    ("rooms", "installed", "names"),
    [
        (BARE_ROOMS, HARD, "()"),
        (BARE_ROOMS[:6], HARD, "door.__all__"),
        (DOORS, HARD | TRAIN, "door.__all__"),
        # Its class is a child of scikit-learn's.
        (("sklearn",), HARD | TRAIN | {"sklearn"}, "door.__all__"),
    ],
    ids=["doors of the bare library", "bare library", "with the extra train", "with sklearn"],
)
def test_rooms_import_only_what_their_extra_brings(rooms, installed, names):
    missing = (third_party() | TRAIN | OTHER_EXTRAS) - installed
    program = WITHOUT.format(missing=missing, rooms=rooms, names=names)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
