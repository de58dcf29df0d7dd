#!/bin/sh
# Run once, when the image of PostgreSQL has made its data directory: roles, the database of the journal, and the rule that
# a commit is on the disk of the standby as well.
set -eu

SECRETS="${SECRETS_FROM:-/run/secrets}"
export SECRETS

psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --username="${POSTGRES_USER:-postgres}" --dbname=postgres <<'SQL'
\set oubli_password `cat "$SECRETS/oubli_password"`
\set replication_password `cat "$SECRETS/replication_password"`
CREATE ROLE oubli LOGIN PASSWORD :'oubli_password';
CREATE ROLE replicator LOGIN REPLICATION PASSWORD :'replication_password';
CREATE DATABASE oubli OWNER oubli;
-- After an erasure the server begins a new file of the WAL and writes a checkpoint, so that old files are removed.
GRANT pg_checkpoint TO oubli;
\connect oubli
GRANT EXECUTE ON FUNCTION pg_switch_wal() TO oubli;
-- The last one: from the next start on, each commit waits for the standby.
ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (oubli_standby)';
SQL

echo "host replication replicator all scram-sha-256" >>"$PGDATA/pg_hba.conf"
