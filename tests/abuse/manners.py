"""What a command line may do, whatever it is given: its work, or one line of error."""

import json
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, settings

from abuse.fork_server import Ended

_NO_MEMORY = re.compile(
    r"(unable to|can't|cannot|failed to) allocate|allocation failed|memoryerror|bad_alloc|out of memory",
    re.IGNORECASE,
)


def fuzzing(examples: int) -> Any:
    """Settings of hypothesis: the same examples each time, which may take their time."""
    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        suppress_health_check=list(HealthCheck),
    )


def check_manners(ended: Ended, command: Sequence[str]) -> str:
    """Success, or exit code 2 and one line of error, which is returned."""
    assert ended.code in (0, 2), f"{ended.code}: {ended.error[-3000:]}"
    assert "Traceback" not in ended.error, ended.error[-3000:]
    assert not _NO_MEMORY.search(ended.error), ended.error
    ours = [
        line
        for line in ended.error.splitlines()
        if line.startswith(f"{command[0]}: ") and not line.startswith(f"{command[0]}: warning: ")
    ]
    if ended.code == 0:
        assert not ours
        if "--json" in command and "--help" not in command:
            only_json(ended.output)
        return ""
    # A group of commands called without one shows its help, on either stream.
    assert len(ours) == 1 or "Usage: " in ended.output + ended.error, ended.error
    return ours[0] if ours else ""


def only_json(text: str) -> list[Any]:
    """The answers of a command with --json, one for all or one a line: JSON, which has no NaN."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON: {text[:1000]}")

    lines = [text] if text.startswith(("{\n", "[\n")) else text.splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]
