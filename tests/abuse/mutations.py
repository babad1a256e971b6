"""Damage to files, as hypothesis strategies: flipped bits, cuts, other values in JSON and in archives."""

import io
import json
import re
import reprlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from hypothesis import strategies as st

# In JSON, stands for more brackets than a parser that calls itself can follow.
_DEEP = "brackets within brackets"
_NESTED = "[" * 100_000 + "]" * 100_000
# What no reader expects. NaN and infinity are what `json` writes and reads, though they are not JSON.
VALUES = st.sampled_from(
    [
        *(None, True, "", "text", "../../etc/passwd", "\udcff", "<script>", "=1+1", [], {}, [None]),
        *(
            0,
            -1,
            0.5,
            10**9,
            2**63,
            10**400,
            1e308,
            float("nan"),
            float("inf"),
            _DEEP,
            {"a": _DEEP},
        ),
        "x" * 100_000,
    ]
)


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """`content` with bits flipped, a piece cut out or exchanged, or its end missing."""
    place = st.integers(0, max(0, len(content) - 1))
    kind = draw(st.sampled_from(["flip", "flip", "flip", "end", "cut", "zeros", "twice", "ones"]))
    if kind == "flip":
        changed = bytearray(content)
        for _ in range(draw(st.integers(1, 3))):
            changed[draw(place)] ^= 1 << draw(st.integers(0, 7))
        return bytes(changed)
    start = draw(place)
    if kind == "end":
        return content[:start]
    length = draw(st.integers(1, 16))
    piece = content[start : start + length]
    new = {"cut": b"", "zeros": bytes(len(piece)), "twice": piece * 2, "ones": b"\xff" * len(piece)}
    return content[:start] + new[kind] + content[start + length :]


def _ways(values: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value in JSON, to the outermost too."""
    yield ()
    if isinstance(values, dict | list):
        for key in values if isinstance(values, dict) else range(len(values)):
            yield from ((key, *way) for way in _ways(values[key]))


@st.composite
def _changed(draw: st.DrawFn, values: Any, way: tuple[Any, ...]) -> Any:
    """`values` with the value at `way` exchanged or removed."""
    if not way:
        # Checkpoints and ONNX files have texts that are JSON again.
        inner = isinstance(values, str) and values.startswith(("{", "["))
        return draw(other_json(values) if inner and draw(st.booleans()) else VALUES)
    copy = values.copy()
    if len(way) == 1 and draw(st.integers(0, 4)) == 0:
        del copy[way[0]]
    else:
        copy[way[0]] = draw(_changed(values[way[0]], way[1:]))
    return copy


@st.composite
def other_json(draw: st.DrawFn, text: str) -> str:
    """JSON with one value exchanged or removed."""
    values = json.loads(text)
    changed = draw(_changed(values, draw(st.sampled_from(list(_ways(values))))))
    return json.dumps(changed).replace(f'"{_DEEP}"', _NESTED)


@st.composite
def _other_header(draw: st.DrawFn, content: bytes) -> bytes:
    """safetensors: the length of a JSON header, the header, the tensors."""
    length = int.from_bytes(content[:8], "little")
    header, tensors = content[8 : 8 + length], content[8 + length :]
    other = draw(other_json(header.decode()).map(str.encode) | damaged(header))
    return len(other).to_bytes(8, "little") + other + tensors


@st.composite
def _other_metadata(draw: st.DrawFn, content: bytes) -> bytes:
    """An ONNX file with another value in what it says of itself."""
    model = onnx.load_from_string(content)
    for entry in model.metadata_props:
        entry.value = draw(other_json(entry.value)).encode(errors="replace").decode()
    return model.SerializeToString()


@st.composite
def _other_member(draw: st.DrawFn, content: bytes) -> bytes:
    """A zip archive whose checksums are right, with damage to a file in it, or to the shape it states."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = draw(st.sampled_from(sorted(members)))
    shape = re.search(rb"\((\d+),[^)]*\), }", members[name])
    if shape and draw(st.booleans()):
        number = draw(st.sampled_from([b"0", b"-1", b"9" * len(shape[1]), b"9" * 9, b"9" * 30]))
        grown = len(number) - len(shape[1])
        # The spaces that fill up the header give way.
        spaces = b" " * max(0, grown)
        before, after = members[name][: shape.start(1)], members[name][shape.end(1) :]
        members[name] = before + number + after.replace(spaces, b"", 1)
    else:
        members[name] = draw(damaged(members[name]))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, inside in members.items():
            archive.writestr(member, inside)
    return packed.getvalue()


@dataclass(frozen=True)
class Damage:
    """What a damaged file holds; `repacked` if its checksums are right all the same."""

    content: bytes
    repacked: bool = False

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows it."""
        printer.text(f"{reprlib.repr(self.content)} of {len(self.content)} bytes")


def damaged_file(path: Path) -> st.SearchStrategy[Damage]:
    """Any damage to the file, by what it is."""
    content = path.read_bytes()
    outside = damaged(content).map(Damage)
    if path.suffix in (".npz", ".zip"):
        return outside | _other_member(content).map(lambda other: Damage(other, repacked=True))
    if path.suffix == ".json":
        return outside | other_json(content.decode()).map(str.encode).map(Damage)
    if path.suffix == ".safetensors":
        return outside | _other_header(content).map(Damage)
    if path.suffix == ".onnx":
        return outside | _other_metadata(content).map(Damage)
    return outside
