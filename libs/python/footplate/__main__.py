"""`python -m footplate sync`: sends what spool files hold."""

from __future__ import annotations

import argparse
import sys
from typing import List, Optional

from . import __version__, _sync
from ._door import FootplateError


def main(arguments: Optional[List[str]] = None) -> int:
    """Returns the exit code: 0 done, 2 usage, 4 something was refused, 5 no platform, or something has to wait."""
    parser = argparse.ArgumentParser(prog="python -m footplate", description="What the footplate package keeps on disk.")
    parser.add_argument("--version", action="version", version=__version__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("sync", help="send what spool files hold")
    verb.add_argument("folder", nargs="?", help="the spool folder (FOOTPLATE_SPOOL unless given)")
    options = parser.parse_args(arguments)
    try:
        return _sync.tell(_sync.sync(options.folder))
    except FootplateError as fault:
        print("footplate: {}".format(fault), file=sys.stderr)
        return 5


if __name__ == "__main__":
    sys.exit(main())
