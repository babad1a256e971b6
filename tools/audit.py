"""Check installed packages against a database of known vulnerabilities: `audit.py SITE_PACKAGES`.

pip-audit does the work, but says "No known vulnerabilities found" also where it could ask nobody. Here a
package counts as checked only if the database answered for it. Exit codes: 0, all checked and none known to
be vulnerable; 1, some are; 3, not all checked.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

GOOD, VULNERABLE, NOT_CHECKED = 0, 1, 3
# In no database.
OURS = ("besselnet", "besselnet-lab")
PIP_AUDIT = (sys.executable, "-m", "pip_audit")


def verdict(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """The exit code, and what to say, for a report that pip-audit wrote as JSON."""
    packages = [package for package in report["dependencies"] if package["name"] not in OURS]
    checked = [package for package in packages if "skip_reason" not in package]
    skipped = [package for package in packages if "skip_reason" in package]
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in "
        f"{', '.join(found['fix_versions']) or 'no version'}"
        for package in checked
        for found in package["vulns"]
    ]
    code = VULNERABLE if lines else GOOD
    if not checked:
        return NOT_CHECKED, [
            _not_checked(f"the database answered for none of {len(packages)} packages")
        ]
    if not lines:
        lines.append(f"{len(checked)} packages checked: no known vulnerability")
    if skipped:
        names = ", ".join(package["name"] for package in skipped)
        lines.append(f"NOT CHECKED: {len(skipped)} packages: {names}")
        code = code or NOT_CHECKED
    return code, lines


def _not_checked(reason: str) -> str:
    return f"NOT CHECKED for known vulnerabilities: {' '.join(reason.split())}; try again with a connection"


def audit(place: str, program: Sequence[str] = PIP_AUDIT) -> tuple[int, list[str]]:
    """`verdict` on the packages in the folder `place`."""
    options = ("--path", place, "--format", "json", "--progress-spinner", "off")
    done = subprocess.run([*program, *options], capture_output=True, text=True)
    try:
        return verdict(json.loads(done.stdout))
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["pip-audit gave no report"])[-1]
        return NOT_CHECKED, [_not_checked(last)]


def main() -> int:
    code, lines = audit(sys.argv[1])
    print(*lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
