#!/bin/sh
# Makes the secrets of the profile `cluster` in docker/secrets/; those that are there stay as they are.
#
# Compose mounts the files with the mode that they have here, for users of the containers whom this machine does not know. So
# the files can be read by all, and the folder only by its owner.
set -eu

folder="${1:-$(dirname "$0")/secrets}"
(umask 077 && mkdir -p "$folder")
chmod 700 "$folder"
umask 022

make() {
    [ -s "$folder/$1" ] || printf '%s\n' "$2" >"$folder/$1"
}
random() {
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
}

make cluster_secret "$(random)"
make postgres_password "$(random)"
make replication_password "$(random)"
make oubli_password "$(random)"
make pgpass "*:*:*:oubli:$(cat "$folder/oubli_password")"
echo "the secrets are in $folder"
