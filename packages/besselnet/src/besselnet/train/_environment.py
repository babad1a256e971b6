"""The environment of a result: versions, source, kind of machine and commit, without names."""

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import besselnet
from besselnet.kernels import status

PACKAGES = ("torch", "numpy", "scipy", "lightning-fabric", "torchmetrics", "safetensors")


def describe_environment() -> dict[str, Any]:
    """Describe the software and the machine as JSON values, without host or user names."""
    return {
        "versions": {
            "besselnet": besselnet.__version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in PACKAGES},
        },
        "source": source_digest(Path(besselnet.__file__).parent),
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "kernel": status().instruction_set,
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        },
        "commit": _commit(),
    }


def source_digest(folder: Path) -> str:
    """Return a digest of all Python files in the folder, which changes with any code."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str | None:
    """The commit of besselnet's own source, when it runs from a checkout; "+" if changed since."""
    source = Path(besselnet.__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *arguments], cwd=source, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # Only a repository that tracks this very file is besselnet's own.
    if git("ls-files", "--error-unmatch", Path(besselnet.__file__).name) is None:
        return None
    commit = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", ".")
    return f"{commit}+" if commit and changed else commit
