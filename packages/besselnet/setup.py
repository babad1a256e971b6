"""Builds the native kernel where there is a C compiler; without one, everything else is installed.

A plain C library, loaded with ctypes: it links neither Python nor torch, so that one wheel serves every
version of both. Set BESSELNET_NO_BUILD=1 to leave it out. Everything else is in pyproject.toml.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

NATIVE = Path("native")
SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"
LIBRARY = Path("besselnet", "kernels", f"libbesselnet{SUFFIX}")
# Larger kernels go to torch; the same number is in besselnet/kernels/_call.py.
MOST_TAPS = 64
FLAGS = [
    *("-O3", "-std=gnu11", "-fPIC", "-fno-math-errno", "-fno-trapping-math"),
    *("-fvisibility=hidden", f"-DBESSEL_MOST_TAPS={MOST_TAPS}"),
]
# By name: bytes of a vector, vector registers, compiler flags. Never the flags of the machine that builds.
AVX512 = [
    "-mavx512f",
    "-mavx512vl",
    "-mavx512bw",
    "-mavx512dq",
    "-mfma",
    "-mprefer-vector-width=512",
]
INSTRUCTION_SETS = {
    "x86_64": {
        "avx512": (64, 32, AVX512),
        "avx2": (32, 16, ["-mavx2", "-mfma"]),
        "baseline": (16, 16, []),
    },
    "aarch64": {"neon": (16, 32, [])},
    "other": {"baseline": (16, 16, [])},
}


class NotBuilt(Exception):
    """Why there is no library."""


def find_compiler() -> list[str]:
    if os.environ.get("BESSELNET_NO_BUILD", "0") not in ("", "0"):
        raise NotBuilt("BESSELNET_NO_BUILD is set")
    named = shlex.split(os.environ.get("CC", ""))
    for command in (named, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    raise NotBuilt("no C compiler was found (CC, cc, gcc, clang)")


def processor(compiler: list[str]) -> str:
    """What the compiler builds for."""
    done = subprocess.run([*compiler, "-dumpmachine"], capture_output=True, text=True)
    name = done.stdout.partition("-")[0].replace("arm64", "aarch64")
    return name if name in INSTRUCTION_SETS else "other"


def run_all(commands: list[list[str]]) -> None:
    """Run the commands at once; raise with the first error of the first that fails."""
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for command in commands
    ]
    printed = [process.communicate()[0] for process in running]
    for process, text in zip(running, printed):
        if process.returncode:
            errors = [line for line in text.splitlines() if "error" in line]
            said = errors[0] if errors else f"exit code {process.returncode}"
            raise NotBuilt(f"the C compiler failed ({said})")


def build_library(target: Path, workspace: Path, extra: tuple[str, ...] = ()) -> None:
    """Compile and link the library; a library that is in use is replaced, not overwritten."""
    compiler = find_compiler()
    workspace.mkdir(parents=True, exist_ok=True)
    objects = [workspace / "library.o"]
    compile_ = [*compiler, *FLAGS, *extra, "-c"]
    commands = [[*compile_, str(NATIVE / "library.c"), "-o", str(objects[0])]]
    for name, (size, registers, flags) in INSTRUCTION_SETS[processor(compiler)].items():
        objects.append(workspace / f"{name}.o")
        about = [
            f"-DBESSEL_VECTOR_BYTES={size}",
            f"-DBESSEL_REGISTERS={registers}",
            f"-DBESSEL_KERNEL=bessel_{name}",
            f'-DBESSEL_NAME="{name}"',
        ]
        kernel = [str(NATIVE / "kernel.c"), "-o", str(objects[-1])]
        commands.append([*compile_, *flags, *about, *kernel])
    run_all(commands)
    linked = workspace / target.name
    run_all(
        [[*compiler, "-shared", *extra, "-o", str(linked), *map(str, objects), "-lpthread", "-lm"]]
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target first: the workspace may lie on another disk.
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(linked, beside)
    os.replace(beside, target)


class BuildLibrary(build_ext):
    """Builds the library into the wheel, or into the source for an editable install."""

    def run(self) -> None:
        root = Path("src") if self.inplace else Path(self.build_lib)
        self.target = root / LIBRARY
        # No library is better than an old one.
        self.target.unlink(missing_ok=True)
        try:
            build_library(self.target, Path(self.build_temp))
        except NotBuilt as error:
            print(
                f"besselnet: the native kernel is not built: {error}. The layers work without it, in "
                "torch operations, and take longer.",
                file=sys.stderr,
            )

    def get_outputs(self) -> list[str]:
        built = Path(self.build_lib) / LIBRARY
        return [str(built)] if built.exists() else []

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class TaggedWheel(bdist_wheel):
    """py3-none-<platform> with the library, py3-none-any without it."""

    def run(self) -> None:
        self.run_command("build_ext")
        self.root_is_pure = not self.get_finalized_command("build_ext").get_outputs()
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", "any" if self.root_is_pure else super().get_tag()[2])


if __name__ == "__main__":
    setup(
        # Its build is BuildLibrary's; what stands here says that there is something to build.
        ext_modules=[Extension("besselnet.kernels.libbesselnet", ["native/library.c"])],
        cmdclass={"build_ext": BuildLibrary, "bdist_wheel": TaggedWheel},
    )
