"""Exit 0 when the server in this container is ready to answer, 1 when not; needs nothing but Python."""

import http.client
import os
import ssl
import sys
import urllib.request

PORT = os.environ.get("OUBLI_PORT", "8000")
# The certificate names the host that others ask for, not this address; nothing secret is sent or believed.
TLS = ssl._create_unverified_context()  # noqa: S323


def main() -> int:
    """Ask the server whether it is ready, without TLS or with it, whichever it speaks."""
    return 0 if any(is_ready(scheme) for scheme in ("http", "https")) else 1


def is_ready(scheme: str) -> bool:
    """Whether the server says so; false also when it does not speak this protocol."""
    try:
        url = f"{scheme}://127.0.0.1:{PORT}/readyz"
        with urllib.request.urlopen(url, timeout=4, context=TLS if scheme == "https" else None) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):  # refused, timed out, an answer such as 503, or the other protocol
        return False


if __name__ == "__main__":
    sys.exit(main())
