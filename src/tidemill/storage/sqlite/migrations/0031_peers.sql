-- How nodes reach each other without the mailbox, and which of them cannot.

CREATE TABLE peers (
    node TEXT NOT NULL PRIMARY KEY,
    url TEXT,
    public_key BLOB NOT NULL,
    at INTEGER NOT NULL
) STRICT;

CREATE TABLE unreached_peers (
    node TEXT NOT NULL,
    peer TEXT NOT NULL,
    url TEXT NOT NULL,
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (node, peer)
) STRICT;
