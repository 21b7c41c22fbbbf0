"""The schema, as an ordered list of migrations.

Rules

- A migration never changes after it was released; add a new one at the end.
- A migration only adds: processes of the version before are still running while it is applied.
- Each is applied in a transaction, under a lock that other processes wait for. A table that is in
  use is waited for only briefly, because everybody else would queue up behind.

The number of applied migrations is the schema version of a database. A process that knows fewer
refuses to open it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from infloop.errors import StoreError
from infloop.store.postgresql.connections import SCHEMA
from infloop.store.postgresql.jobs_schema import jobs_schema

if TYPE_CHECKING:
    from infloop.store.postgresql.connections import Connection

MIGRATION_LOCK = 0x696E66_00
_WAIT = "5s"
_ATTEMPTS = 12

# `batch` has no foreign key: a run's row is locked whenever a batch is added or the run deleted,
# and the key would be checked for every append. Bodies are compressed already (`STORAGE EXTERNAL`).
_JOURNAL = """
CREATE TABLE definition (
    hash text COLLATE "C" PRIMARY KEY,
    body bytea NOT NULL
);
ALTER TABLE definition ALTER body SET STORAGE EXTERNAL;

CREATE TABLE run (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    workflow_id text COLLATE "C" NOT NULL,
    workflow_name text NOT NULL,
    definition text COLLATE "C" NOT NULL REFERENCES definition (hash),
    correlation_id text NOT NULL,
    cause text NOT NULL,
    owner text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    status text COLLATE "C" NOT NULL,
    error text NOT NULL DEFAULT '',
    failed_step text NOT NULL DEFAULT '',
    started_at bigint NOT NULL,
    finished_at bigint,
    last_seq bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    steps bigint NOT NULL DEFAULT 0,
    output_bytes bigint NOT NULL DEFAULT 0,
    indexed_seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 70); -- an append changes the row in its page, without touching an index
CREATE INDEX run_by_time ON run (started_at, id);
CREATE INDEX run_by_workflow ON run (workflow_id, started_at, id);
CREATE INDEX run_by_status ON run (status, started_at, id);
CREATE INDEX run_by_definition ON run (definition);
CREATE INDEX run_by_owner ON run (owner) WHERE status = 'running';

CREATE TABLE batch (
    run bigint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    events bigint NOT NULL,
    steps bigint NOT NULL,
    output_bytes bigint NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('events', 'output', 'dropped')),
    correlation_id text NOT NULL,
    blobs text,
    body bytea NOT NULL,
    PRIMARY KEY (run, first_seq)
);
ALTER TABLE batch ALTER body SET STORAGE EXTERNAL;

CREATE TABLE checkpoint (
    run bigint NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    seq bigint NOT NULL,
    state bytea NOT NULL,
    PRIMARY KEY (run, seq)
);
ALTER TABLE checkpoint ALTER state SET STORAGE EXTERNAL;

CREATE TABLE scope (
    run bigint PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    blobs text,
    body bytea NOT NULL
);
ALTER TABLE scope ALTER body SET STORAGE EXTERNAL;

CREATE TABLE blob (
    hash text COLLATE "C" PRIMARY KEY,
    characters bigint NOT NULL
);
CREATE TABLE blob_part (
    hash text COLLATE "C" NOT NULL REFERENCES blob (hash) ON DELETE CASCADE,
    number integer NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (hash, number)
);
ALTER TABLE blob_part ALTER body SET STORAGE EXTERNAL;
CREATE TABLE blob_use (
    run bigint NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    hash text COLLATE "C" NOT NULL REFERENCES blob (hash), -- refuses to delete what is used
    PRIMARY KEY (run, hash)
);
CREATE INDEX blob_use_by_hash ON blob_use (hash);

-- A path is one of a machine, and need not be valid text.
CREATE TABLE place (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    machine text COLLATE "C" NOT NULL,
    path bytea NOT NULL,
    UNIQUE (machine, path)
);
"""

# `body` is what was said, `words` the words of it in lower case without accents, each between
# spaces: a phrase is found there. The index has the words alone.
_SEARCH = """
CREATE TABLE document (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    path text NOT NULL,
    kind text NOT NULL,
    body text NOT NULL,
    words text NOT NULL,
    lexemes tsvector NOT NULL
);
CREATE INDEX document_by_run ON document (run);
CREATE INDEX document_by_word ON document USING gin (lexemes);
"""

# Nobody can be heard before the server runs. `beat_at` is the last heartbeat, `held_at` when
# the session that holds the lock was last seen.
_LIVENESS = """
CREATE FUNCTION server_started_at() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_postmaster_start_time()';

CREATE TABLE instance (
    key integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the lock that the process holds
    id text COLLATE "C" NOT NULL UNIQUE,
    pid bigint NOT NULL,
    process_started text NOT NULL,
    boot_id text NOT NULL,
    host text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    held_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);

CREATE TABLE stop_request (
    run bigint PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    reason text NOT NULL,
    time bigint NOT NULL
);
"""

# A call has its run's id and not its key, because it stays when the run is deleted. The indexes
# contain the cost, so that a sum reads nothing else. Amounts are billionths of a US dollar.
_LEDGER = """
CREATE TABLE call (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    path text NOT NULL,
    attempt bigint NOT NULL,
    provider text COLLATE "C" NOT NULL,
    model text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('agent', 'judge')),
    instance text COLLATE "C" NOT NULL,
    reserved_at bigint NOT NULL,
    cost bigint NOT NULL DEFAULT 0 CHECK (cost >= 0),
    cost_known boolean NOT NULL DEFAULT false,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    settled_at bigint,
    outcome text CHECK (outcome IN ('settled', 'abandoned')),
    held bigint NOT NULL DEFAULT 0 CHECK (held >= 0)
);
CREATE INDEX call_by_time ON call (reserved_at, instance) INCLUDE (cost);
CREATE INDEX call_by_run ON call (run) INCLUDE (cost);
CREATE INDEX call_open ON call (instance) WHERE outcome IS NULL;
CREATE INDEX call_holding ON call (run, instance, reserved_at) INCLUDE (held) WHERE held > 0;
"""

# A row stays for a day after the entry left the queue, without its inputs, for repeated requests.
_QUEUE = """
CREATE TABLE queued (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of arrival
    id text COLLATE "C" NOT NULL UNIQUE,
    run text COLLATE "C" NOT NULL UNIQUE,
    workflow text COLLATE "C" NOT NULL,
    correlation_id text NOT NULL,
    cause text NOT NULL,
    priority bigint NOT NULL,
    idempotency_key text COLLATE "C",
    fingerprint text COLLATE "C",
    queued_at bigint NOT NULL,
    first_position bigint NOT NULL DEFAULT 0,
    state text COLLATE "C" NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'taken', 'started', 'removed', 'dropped')),
    held boolean NOT NULL DEFAULT false,
    owner text COLLATE "C" NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    body bytea NOT NULL
);
CREATE INDEX queued_in_order ON queued (priority DESC, key) WHERE state = 'waiting';
CREATE INDEX queued_taken ON queued (owner) WHERE state = 'taken';
CREATE INDEX queued_by_idempotency_key ON queued (idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX queued_by_fingerprint ON queued (fingerprint) WHERE fingerprint IS NOT NULL;
CREATE INDEX queued_by_time ON queued (queued_at);

CREATE TABLE queue_hold (
    owner text COLLATE "C" PRIMARY KEY,
    reason text NOT NULL,
    since bigint NOT NULL
);
"""

# A question has its run's id and not its key, because it stays when the run is deleted.
_APPROVALS = """
CREATE TABLE approval (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order in which they were asked
    id text COLLATE "C" NOT NULL UNIQUE,
    run text COLLATE "C" NOT NULL,
    workflow text NOT NULL,
    path text NOT NULL,
    kind text NOT NULL,
    title text NOT NULL,
    asked_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'allowed', 'denied', 'expired', 'withdrawn')),
    answered_by text NOT NULL DEFAULT '',
    answered_at bigint,
    note text NOT NULL DEFAULT '',
    details bytea NOT NULL,
    action text COLLATE "C" NOT NULL DEFAULT '',
    used_at bigint
);
CREATE INDEX approval_by_state ON approval (state, key);
CREATE INDEX approval_by_time ON approval (asked_at);
CREATE INDEX approval_by_run ON approval (run, action);
"""

# Equal refusals are one row, and the number of rows is limited: senders cannot fill the disk.
_REFUSED_FIRINGS = """
CREATE TABLE refused_firing (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    trigger_id text COLLATE "C" NOT NULL, -- a fingerprint: the id itself is a credential
    name text NOT NULL,
    kind text NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    reason text COLLATE "C" NOT NULL,
    message text NOT NULL,
    correlation_id text NOT NULL,
    at bigint NOT NULL,
    first_at bigint NOT NULL,
    count bigint NOT NULL,
    UNIQUE (trigger_id, reason)
);
"""

# Which process takes an entry, how many runs of its workflow may be live, and what it executes.
_CLUSTER = """
ALTER TABLE queued ADD COLUMN requires text NOT NULL DEFAULT '[]';
ALTER TABLE queued ADD COLUMN max_concurrent bigint NOT NULL DEFAULT 0;
ALTER TABLE queued ADD COLUMN definition text COLLATE "C" REFERENCES definition (hash);
CREATE INDEX queued_by_definition ON queued (definition) WHERE definition IS NOT NULL;
ALTER TABLE instance ADD COLUMN kind text NOT NULL DEFAULT 'run';
ALTER TABLE instance ADD COLUMN labels text NOT NULL DEFAULT '[]';
ALTER TABLE instance ADD COLUMN capacity bigint NOT NULL DEFAULT 0;
"""

_RESULTS = """
CREATE TABLE result_pack (
    run bigint NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    number bigint NOT NULL,
    size bigint NOT NULL,
    digest text NOT NULL,
    PRIMARY KEY (run, number)
);
CREATE TABLE result_part (
    run bigint NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    number bigint NOT NULL,
    part bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (run, number, part)
);
ALTER TABLE result_part ALTER body SET STORAGE EXTERNAL;
"""

# Finds whether an entry waits whose workflow is limited. `times` is what `encoding/rates` makes.
_LIMITS = """
CREATE INDEX queued_limited ON queued (workflow) WHERE state = 'waiting' AND max_concurrent > 0;

CREATE TABLE rate (
    name text COLLATE "C" PRIMARY KEY,
    times text NOT NULL,
    last bigint NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX rate_by_last ON rate (last);
"""

# After how long a silent process is dead, as it chose itself; and when it last got its whole time
# again, because nobody could reach the database.
_OUTAGES = """
ALTER TABLE instance ADD COLUMN timeout interval NOT NULL DEFAULT interval '30 seconds';
ALTER TABLE instance ADD COLUMN excused_at timestamptz NOT NULL DEFAULT '-infinity';
"""

# Who may add to the queue must be able to number its jobs: older grants name no sequences.
_JOBS = """
ALTER TABLE queued ADD COLUMN job bigint;
ALTER TABLE queued ADD COLUMN queue text COLLATE "C" NOT NULL DEFAULT ''; -- of its job
CREATE INDEX queued_by_queue ON queued (queue) WHERE state = 'waiting' AND NOT held;
ALTER TABLE instance ADD COLUMN worker bigint;
DO $$
DECLARE
    who text;
BEGIN
    FOR who IN
        SELECT DISTINCT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END
        FROM pg_class, aclexplode(relacl)
        WHERE pg_class.oid = 'queued'::regclass AND privilege_type = 'INSERT'
    LOOP
        EXECUTE 'GRANT USAGE ON SEQUENCE procrastinate_jobs_id_seq, procrastinate_events_id_seq TO '
            || who;
    END LOOP;
END;
$$;
"""

_COMMIT_MARKS = """
CREATE TABLE commit_mark (
    writer bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    mark bigint NOT NULL DEFAULT 0,
    at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50); -- every transaction changes a row, in its page
"""


def _jobs() -> str:
    return jobs_schema() + _JOBS


MIGRATIONS: tuple[str | Callable[[], str], ...] = (
    _JOURNAL,
    _SEARCH,
    _LIVENESS,
    _LEDGER,
    _QUEUE,
    _APPROVALS,
    _REFUSED_FIRINGS,
    _CLUSTER,
    _RESULTS,
    _LIMITS,
    _OUTAGES,
    _jobs,
    _COMMIT_MARKS,
)


async def migrate(connection: Connection, shown: str, upto: int = len(MIGRATIONS)) -> None:
    """Apply the migrations up to version `upto`; a database of a newer infloop is refused."""
    if await _checked_version(connection, shown) >= upto:
        return
    await connection.execute(f"SELECT pg_advisory_lock({MIGRATION_LOCK})")
    try:
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        await connection.execute("CREATE TABLE IF NOT EXISTS version (number integer NOT NULL)")
        version = await _checked_version(connection, shown)
        for number in range(version + 1, upto + 1):
            await _apply(connection, number)
    finally:
        await connection.execute(f"SELECT pg_advisory_unlock({MIGRATION_LOCK})")


def _sql(migration: str | Callable[[], str]) -> bytes:
    return (migration if isinstance(migration, str) else migration()).encode()


async def _apply(connection: Connection, number: int) -> None:
    for attempt in range(_ATTEMPTS):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = '{_WAIT}'")
                await connection.execute(_sql(MIGRATIONS[number - 1]))
                await connection.execute("DELETE FROM version")
                await connection.execute("INSERT INTO version VALUES (%s)", (number,))
        except psycopg.errors.LockNotAvailable:
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            return


async def _checked_version(connection: Connection, shown: str) -> int:
    version = await schema_version(connection)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{shown} was changed by a newer infloop: it has schema version {version} and this "
            f"one supports up to {len(MIGRATIONS)}; install the version of infloop that the other "
            "processes have"
        )
    return version


async def schema_version(connection: Connection) -> int:
    """Return the number of applied migrations; 0 for an empty database."""
    exists = await connection.execute(f"SELECT to_regclass('{SCHEMA}.version')::text")
    if await exists.fetchone() in (None, (None,)):
        return 0
    found = await (await connection.execute(f"SELECT number FROM {SCHEMA}.version")).fetchone()  # noqa: S608  (a constant)
    return found[0] if found else 0
