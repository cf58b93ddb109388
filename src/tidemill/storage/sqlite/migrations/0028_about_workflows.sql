-- Owners and descriptions of a workflow and its tasks, as JSON: other nodes and the command line show them without the code.

ALTER TABLE workflow_versions ADD COLUMN about TEXT NOT NULL DEFAULT '';
