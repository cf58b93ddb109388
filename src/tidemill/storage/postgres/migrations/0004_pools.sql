-- The sizes of pools, as the last node that was given them has set them.

CREATE TABLE tidemill.pools (
    name text COLLATE "C" PRIMARY KEY,
    slots bigint NOT NULL
);
