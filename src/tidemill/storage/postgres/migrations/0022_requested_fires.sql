-- Fires of requests with an idempotency key are deleted with their requests.

CREATE INDEX fires_by_request ON tidemill.fires (at) WHERE key >= 'request:' AND key < 'request;';
