#!/bin/sh
# Starts the command line in place of this shell, so that it gets the signals of `docker stop`.
set -eu

. "$(dirname "$0")/processor.sh"

# The kernels were compiled when the image was built. Numba wants a directory that it can write to, and the image may
# be mounted read-only, so they are copied to one; without them the first start compiles again.
kernels="${KERNELS_IN_IMAGE:-/opt/oubli/kernels}"
if [ -d "$kernels" ] && [ -n "${NUMBA_CACHE_DIR:-}" ] && [ ! -e "$NUMBA_CACHE_DIR" ]; then
    cp -R "$kernels" "$NUMBA_CACHE_DIR"
fi

# Secrets are mounted with a mode that lets others read them too: that of the host (Compose), or with the pod's group (Kubernetes).
# The server and libpq take such files only when no other user may read them, so they are copied, to memory.
if [ -n "${SECRETS_FROM:-}" ]; then
    (
        umask 077
        mkdir -p "$SECRETS_TO"
        for file in "$SECRETS_FROM"/*; do
            cp "$file" "$SECRETS_TO/"
        done
    )
fi

exec oubli "$@"
