-- How nodes reach each other without the mailbox, and which of them cannot.

CREATE TABLE tidemill.peers (
    node text NOT NULL PRIMARY KEY,
    url text,
    public_key bytea NOT NULL,
    at timestamptz NOT NULL
);

CREATE TABLE tidemill.unreached_peers (
    node text NOT NULL,
    peer text NOT NULL,
    url text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (node, peer)
);
