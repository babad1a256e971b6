"""The build of the native kernel: with a compiler, without one, and under the sanitizers."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from besselnet.kernels import MOST_TAPS

PACKAGE = Path(__file__).parents[2]
TESTS = Path(__file__).parents[1]


def build(folder, **variables):
    """Run the build into the folder: the library or None, and the lines on standard error."""
    kept = {name: value for name, value in os.environ.items() if name != "CC"}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-temp", folder / "objects"]
    done = subprocess.run(
        [*command, "--build-lib", folder],
        cwd=PACKAGE,
        env={**kept, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = [*folder.glob("besselnet/kernels/*")]
    return found[0] if found else None, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"BESSELNET_NO_BUILD": "1"}, "BESSELNET_NO_BUILD"),
        ({"PATH": ""}, "no C compiler"),
        ({"CC": "false"}, "compiler failed"),
    ],
    ids=["switched off", "no compiler", "compiler fails"],
)
def test_without_a_library_one_line_says_why(variables, said, tmp_path):
    library, lines = build(tmp_path, **variables)
    assert library is None
    assert len(lines) == 1
    assert lines[0].startswith("besselnet: ")
    assert said in lines[0]


def test_the_build_and_the_calls_agree_on_the_largest_kernel():
    assert runpy.run_path(str(PACKAGE / "setup.py"))["MOST_TAPS"] == MOST_TAPS


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_library_links_neither_python_nor_torch(tmp_path):
    library, lines = build(tmp_path)
    assert lines == []
    needed = subprocess.run(["ldd", library], capture_output=True, text=True).stdout
    names = {line.split()[0].partition(".")[0] for line in needed.splitlines()}
    assert names <= {"linux-vdso", "libc", "libm", "libpthread", "/lib64/ld-linux-x86-64"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing")
def test_the_sanitizers_find_nothing_in_random_layers(tmp_path, monkeypatch):
    """AddressSanitizer and UndefinedBehaviorSanitizer end the process at the first finding."""
    monkeypatch.chdir(PACKAGE)
    monkeypatch.setenv("CC", "gcc")
    library = tmp_path / "libbesselnet.so"
    checks = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
    runpy.run_path("setup.py")["build_library"](library, tmp_path / "objects", checks)
    runtimes = [
        subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True)
        for name in ("libasan.so", "libubsan.so")
    ]
    done = subprocess.run(
        [sys.executable, TESTS / "kernels" / "fuzz.py", library, "0", "500"],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "LD_PRELOAD": " ".join(found.stdout.strip() for found in runtimes),
            # Python keeps memory to its end.
            "ASAN_OPTIONS": "detect_leaks=0",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith("500 cases")
