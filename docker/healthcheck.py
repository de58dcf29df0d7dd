"""Exit 0 when the server in this container is ready to answer, 1 when not; needs nothing but Python."""

import os
import sys
import urllib.request

URL = f"http://127.0.0.1:{os.environ.get('OUBLI_PORT', '8000')}/readyz"


def main() -> int:
    """Ask the server whether it is ready."""
    try:
        with urllib.request.urlopen(URL, timeout=4) as answer:
            return 0 if answer.status == 200 else 1
    except OSError:  # refused, timed out, or an answer such as 503
        return 1


if __name__ == "__main__":
    sys.exit(main())
