-- Owners and descriptions of a workflow and its tasks, as JSON: other nodes and the command line show them without the code.

ALTER TABLE tidemill.workflow_versions ADD COLUMN about text NOT NULL DEFAULT '';
