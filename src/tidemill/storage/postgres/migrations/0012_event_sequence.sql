-- The events of all runs have one sequence, so that a reader can continue where it stopped. Here it is the id.

COMMENT ON COLUMN tidemill.run_events.id IS 'the sequence number of the event, over all runs';
