"""A hook of mkdocs: the playground as a part of the site, in the folder playground/.

A site that is built without onnxruntime-web, for want of a connection, has the page, which then says so.
"""

import logging

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from besselnet.play import page_files, runtime_files

log = logging.getLogger("mkdocs.hooks.playground")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the playground to those of the site."""
    found = page_files()
    try:
        found |= {f"runtime/{name}": path for name, path in runtime_files().items()}
    except (OSError, ValueError) as error:
        # Not a warning: those end a strict build.
        log.info("the playground will not run: %s", error)
    for name, path in found.items():
        files.append(File.generated(config, f"playground/{name}", abs_src_path=str(path)))
    return files
