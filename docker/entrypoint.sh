#!/bin/sh
# Starts the command line in place of this shell, so that it gets the signals of `docker stop`.
set -eu

# The kernels were compiled when the image was built. Numba wants a directory that it can write to, and the image may
# be mounted read-only, so they are copied to one; without them the first start compiles again.
kernels="${KERNELS_IN_IMAGE:-/opt/oubli/kernels}"
if [ -d "$kernels" ] && [ -n "${NUMBA_CACHE_DIR:-}" ] && [ ! -e "$NUMBA_CACHE_DIR" ]; then
    cp -R "$kernels" "$NUMBA_CACHE_DIR"
fi

exec oubli "$@"
