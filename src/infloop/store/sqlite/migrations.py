"""The schema, as an ordered list of migrations.

A migration never changes after it was released; add a new one at the end. The number of applied
migrations is the schema version of a database. Table `stretch` has the batches of `batches.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infloop.errors import StoreError

if TYPE_CHECKING:
    import sqlite3

_JOURNAL = """
CREATE TABLE schema (version INTEGER NOT NULL) STRICT;
INSERT INTO schema VALUES (0);

CREATE TABLE definition (
    hash TEXT PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE run (
    key INTEGER PRIMARY KEY AUTOINCREMENT, -- a forgotten run's key never means another run
    id TEXT NOT NULL UNIQUE,
    workflow_id TEXT NOT NULL,
    workflow_name TEXT NOT NULL,
    definition TEXT NOT NULL REFERENCES definition (hash),
    correlation_id TEXT NOT NULL,
    cause TEXT NOT NULL,
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    status TEXT NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    failed_step TEXT NOT NULL DEFAULT '',
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    last_seq INTEGER NOT NULL,
    events INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX run_by_time ON run (started_at, id);
CREATE INDEX run_by_workflow ON run (workflow_id, started_at, id);
CREATE INDEX run_by_status ON run (status, started_at, id);
CREATE INDEX run_by_definition ON run (definition);

-- The ranges of a run's stretches do not overlap. `events`, `steps` and `output_bytes` are what the
-- run adds up to at the end of the stretch. `body` stands last so that a scan over
-- the other columns does not read it.
CREATE TABLE stretch (
    run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    events INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('events', 'output', 'dropped')),
    correlation_id TEXT NOT NULL,
    blobs TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (run, first_seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoint (
    run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    state BLOB NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE scope (
    run INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    blobs TEXT,
    body BLOB NOT NULL
) STRICT;

CREATE TABLE blob (
    hash TEXT PRIMARY KEY,
    characters INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE blob_part (
    hash TEXT NOT NULL REFERENCES blob (hash) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (hash, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE blob_use (
    run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    hash TEXT NOT NULL REFERENCES blob (hash) ON DELETE CASCADE,
    PRIMARY KEY (run, hash)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_use_by_hash ON blob_use (hash);

CREATE TABLE stop_request (
    run INTEGER PRIMARY KEY REFERENCES run (key) ON DELETE CASCADE,
    reason TEXT NOT NULL,
    time INTEGER NOT NULL
) STRICT;

CREATE TABLE instance (
    id TEXT PRIMARY KEY,
    pid INTEGER NOT NULL,
    process_started TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    host TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

_SEARCH = """
ALTER TABLE run ADD COLUMN indexed_seq INTEGER NOT NULL DEFAULT 0;

CREATE TABLE document (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE INDEX document_by_run ON document (run);

CREATE VIRTUAL TABLE document_words USING fts5 (
    body, content = 'document', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);
CREATE TRIGGER document_added AFTER INSERT ON document BEGIN
    INSERT INTO document_words (rowid, body) VALUES (new.id, new.body);
END;
CREATE TRIGGER document_removed AFTER DELETE ON document BEGIN
    INSERT INTO document_words (document_words, rowid, body) VALUES ('delete', old.id, old.body);
END;
"""

# A call has its run's id and not its key, because it stays when the run is deleted. The indexes
# contain the cost, so that a sum reads nothing else.
_LEDGER = """
CREATE TABLE call (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL,
    workflow TEXT NOT NULL,
    path TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('agent', 'judge')),
    instance TEXT NOT NULL,
    reserved_at INTEGER NOT NULL,
    cost INTEGER NOT NULL DEFAULT 0 CHECK (cost >= 0), -- billionths of a US dollar
    cost_known INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    settled_at INTEGER,
    outcome TEXT CHECK (outcome IN ('settled', 'abandoned'))
) STRICT;
CREATE INDEX call_by_time ON call (reserved_at, instance, cost);
CREATE INDEX call_by_run ON call (run, cost);
CREATE INDEX call_open ON call (instance) WHERE outcome IS NULL;
"""

# A row stays for a day after the entry left the queue, without its inputs, for repeated requests.
_QUEUE = """
CREATE TABLE queued (
    key INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of arrival
    id TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    cause TEXT NOT NULL,
    priority INTEGER NOT NULL,
    idempotency_key TEXT,
    queued_at INTEGER NOT NULL,
    first_position INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'taken', 'started', 'removed', 'dropped')),
    owner TEXT NOT NULL DEFAULT '',
    reason TEXT NOT NULL DEFAULT '',
    body BLOB NOT NULL
) STRICT;
CREATE INDEX queued_in_order ON queued (state, priority DESC, key);
CREATE INDEX queued_by_idempotency_key ON queued (idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX queued_by_time ON queued (queued_at);

CREATE TABLE queue_hold (
    owner TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    since INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

# A question has its run's id and not its key, because it stays when the run is deleted.
_APPROVALS = """
CREATE TABLE approval (
    key INTEGER PRIMARY KEY AUTOINCREMENT, -- the order in which they were asked
    id TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL,
    workflow TEXT NOT NULL,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    asked_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    owner TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting'
        CHECK (state IN ('waiting', 'allowed', 'denied', 'expired', 'withdrawn')),
    answered_by TEXT NOT NULL DEFAULT '',
    answered_at INTEGER,
    note TEXT NOT NULL DEFAULT '',
    details BLOB NOT NULL
) STRICT;
CREATE INDEX approval_by_state ON approval (state, key);
CREATE INDEX approval_by_time ON approval (asked_at);
"""

# Appending to a table with row ids moves no other rows, which halves the pages that a step writes.
# The id is the run's key and the first sequence number of the batch.
_ROW_IDS = """
CREATE TABLE row_stretch (
    id INTEGER PRIMARY KEY, -- run key << 32 | first sequence number
    last_seq INTEGER NOT NULL,
    events INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    output_bytes INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('events', 'output', 'dropped')),
    correlation_id TEXT NOT NULL,
    blobs TEXT,
    body BLOB NOT NULL
) STRICT;
INSERT INTO row_stretch
    SELECT run << 32 | first_seq, last_seq, events, steps, output_bytes, kind, correlation_id,
        blobs, body
    FROM stretch ORDER BY run, first_seq;
DROP TABLE stretch;
ALTER TABLE row_stretch RENAME TO stretch;
CREATE TRIGGER run_forgotten AFTER DELETE ON run BEGIN
    DELETE FROM stretch WHERE id BETWEEN old.key << 32 AND old.key << 32 | 0xFFFFFFFF;
END;
"""

# Paths are bytes: they need not be valid text.
_KNOWN_DIRECTORIES = """
CREATE TABLE place (
    key INTEGER PRIMARY KEY, -- the order in which they became known
    path BLOB NOT NULL UNIQUE
) STRICT;
"""

# A signed request that arrives again under another id.
_FINGERPRINTS = """
ALTER TABLE queued ADD COLUMN fingerprint TEXT;
CREATE INDEX queued_by_fingerprint ON queued (fingerprint) WHERE fingerprint IS NOT NULL;
"""

# The money of requests in progress. Only few calls hold any, so the index is small.
_HELD = """
ALTER TABLE call ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0);
CREATE INDEX call_holding ON call (run, instance, reserved_at, held) WHERE held > 0;
"""

# An entry that could not start waits, and is not handed out while it is held.
_HELD_ENTRIES = """
ALTER TABLE queued ADD COLUMN held INTEGER NOT NULL DEFAULT 0 CHECK (held IN (0, 1));
"""

# Equal refusals are one row, and the number of rows is limited: senders cannot fill the disk.
_REFUSED_FIRINGS = """
CREATE TABLE refused_firing (
    key INTEGER PRIMARY KEY,
    trigger_id TEXT NOT NULL, -- a fingerprint: the id itself is a credential
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    workflow TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    count INTEGER NOT NULL,
    UNIQUE (trigger_id, reason)
) STRICT;
"""

# The digest of what a question asks for, and when its answer was used: a run that was interrupted
# while it waited finds its answer.
_ACTIONS = """
ALTER TABLE approval ADD COLUMN action TEXT NOT NULL DEFAULT '';
ALTER TABLE approval ADD COLUMN used_at INTEGER;
UPDATE approval SET used_at = answered_at WHERE state <> 'waiting';
CREATE INDEX approval_by_run ON approval (run, action);
"""

# Ids of documents begin with the start of their run, and the index knows the beginnings of words.
# The runs that are not indexed yet are found without reading all of them.
_NEWEST_FIRST = """
CREATE TABLE new_document (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL
) STRICT;
INSERT INTO new_document
    SELECT (started_at << 21 | (key & 1023) << 11)
        + row_number() OVER (PARTITION BY run ORDER BY document.id) - 1, run, path, kind, body
    FROM document JOIN run ON run.key = document.run;
DROP TABLE document_words;
DROP TABLE document;
ALTER TABLE new_document RENAME TO document;
CREATE INDEX document_by_run ON document (run);

CREATE VIRTUAL TABLE document_words USING fts5 (
    body, content = 'document', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2',
    prefix = '1 2 3'
);
INSERT INTO document_words (document_words) VALUES ('rebuild');
CREATE TRIGGER document_added AFTER INSERT ON document BEGIN
    INSERT INTO document_words (rowid, body) VALUES (new.id, new.body);
END;
CREATE TRIGGER document_removed AFTER DELETE ON document BEGIN
    INSERT INTO document_words (document_words, rowid, body) VALUES ('delete', old.id, old.body);
END;

CREATE INDEX run_to_index ON run (key) WHERE status <> 'running' AND indexed_seq < last_seq;
"""

# Which process takes an entry, how many runs of its workflow may be live, and what it executes.
_CLUSTER = """
ALTER TABLE queued ADD COLUMN requires TEXT NOT NULL DEFAULT '[]';
ALTER TABLE queued ADD COLUMN max_concurrent INTEGER NOT NULL DEFAULT 0;
ALTER TABLE queued ADD COLUMN definition TEXT;
CREATE INDEX queued_by_definition ON queued (definition) WHERE definition IS NOT NULL;
ALTER TABLE instance ADD COLUMN kind TEXT NOT NULL DEFAULT 'run';
ALTER TABLE instance ADD COLUMN labels TEXT NOT NULL DEFAULT '[]';
ALTER TABLE instance ADD COLUMN capacity INTEGER NOT NULL DEFAULT 0;
"""

# `times` is what `encoding/rates` makes.
_RATES = """
CREATE TABLE rate (
    name TEXT PRIMARY KEY,
    times TEXT NOT NULL,
    last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

_RESULTS = """
CREATE TABLE result_pack (
    run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    size INTEGER NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (run, number)
) STRICT;
CREATE TABLE result_part (
    run INTEGER NOT NULL REFERENCES run (key) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    part INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (run, number, part)
) STRICT;
"""

# Whether an entry is held is in the index: `put` and `take` read no entries that wait.
_QUEUE_ORDER = """
DROP INDEX queued_in_order;
CREATE INDEX queued_in_order ON queued (state, held, priority DESC, key);
"""

MIGRATIONS = (
    _JOURNAL,
    _SEARCH,
    _LEDGER,
    _QUEUE,
    _APPROVALS,
    _ROW_IDS,
    _KNOWN_DIRECTORIES,
    _FINGERPRINTS,
    _HELD,
    _HELD_ENTRIES,
    _REFUSED_FIRINGS,
    _ACTIONS,
    _NEWEST_FIRST,
    _CLUSTER,
    _RESULTS,
    _QUEUE_ORDER,
    _RATES,
)


def migrate(connection: sqlite3.Connection, path: str, upto: int = len(MIGRATIONS)) -> None:
    """Apply the migrations up to version `upto`, each in a transaction.

    The caller must hold a lock against other processes. A database of a newer infloop is refused.
    """
    version = schema_version(connection)
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{path!r} was written by a newer infloop: it has schema version {version} and this "
            f"one supports up to {len(MIGRATIONS)}; use an infloop that supports schema version "
            f"{version}, or another data directory"
        )
    for number, migration in enumerate(MIGRATIONS[version:upto], version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{migration}\nUPDATE schema SET version = {number:d};\nCOMMIT;"
        )


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of applied migrations; 0 for an empty database."""
    exists = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema'").fetchone()
    if exists is None:
        return 0
    version: int = connection.execute("SELECT version FROM schema").fetchone()[0]
    return version
