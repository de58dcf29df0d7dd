#!/bin/sh
# Starts PostgreSQL in its image. Where CLONE_OF names a host and there is no data yet, the data is copied from there, and this
# server becomes the synchronous standby of that one. What has data starts as what it was.
set -eu

secrets="${SECRETS_FROM:-/run/secrets}"
passfile="${REPLICATION_PASSFILE:-/tmp/replication.pgpass}"

# Written at each start, in memory: libpq takes it only when no other user may read it.
(umask 077 && printf '*:*:*:replicator:%s\n' "$(cat "$secrets/replication_password")" >"$passfile")

if [ -n "${CLONE_OF:-}" ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    case "$CLONE_OF" in
        *:*) source="host=${CLONE_OF%:*} port=${CLONE_OF##*:}" ;;
        *) source="host=$CLONE_OF port=5432" ;;
    esac
    source="$source user=replicator passfile=$passfile application_name=oubli_standby"
    # The slot of a standby that is no more would keep WAL for ever.
    psql --no-psqlrc --quiet --output=/dev/null --dbname="$source dbname=postgres" \
        --command="SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'oubli_standby' AND NOT active"
    pg_basebackup --dbname="$source" --pgdata="$PGDATA" --wal-method=stream --checkpoint=fast \
        --create-slot --slot=oubli_standby --write-recovery-conf
fi

exec docker-entrypoint.sh "$@"
