-- A run belongs to the trace of the request that started it, whichever node runs its tasks. NULL: it is not traced.

ALTER TABLE runs ADD COLUMN trace TEXT;
