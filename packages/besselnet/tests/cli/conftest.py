"""What the tests of the commands share."""

import pytest

from besselnet.cli import main


@pytest.fixture
def call(capsys):
    """Call the command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        return (end.value.code, *capsys.readouterr())

    return run
