"""What `import besselnet` gives, and what it costs."""

import subprocess
import sys

import pytest

import besselnet


@pytest.mark.parametrize("name", besselnet.__all__)
def test_every_public_name_is_there(name):
    assert getattr(besselnet, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="BesselConv3d"):
        besselnet.BesselConv3d  # noqa: B018


def test_import_and_help_do_not_import_torch():
    program = (
        "import sys, besselnet, besselnet.cli\n"
        "assert besselnet.cli.program().run(['--help']) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=120)


def test_import_takes_little_over_torch():
    program = (
        "import time, torch\n"
        "start = time.process_time()\n"
        "import besselnet\n"
        "print(time.process_time() - start)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, timeout=120, text=True)
    assert float(done.stdout) <= 0.3
