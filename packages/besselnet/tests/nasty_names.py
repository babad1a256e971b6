"""Names of folders and files that a program may stumble over."""

import os

NASTY = (
    "$100_$200",
    r"$\frac{$",
    r"a\$b$c$",
    "_hidden",
    "%s {0} {name}",
    "🐍🧬",
    "שלום עולם",
    "مرحبا",
    "ภาษาไทย",
    "ﷺ e\u0301\u200d\u202eabc",
    "bell\x07 tab\t line\nend\x1b[31m",
    "a" * 200,
    "=1+1,\"'<b>|",
    # Not UTF-8.
    os.fsdecode(b"caf\xe9 \xff\xfe"),
)
