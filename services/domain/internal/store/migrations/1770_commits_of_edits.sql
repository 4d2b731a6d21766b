-- What an edit of a trigger has committed is found by the commit, and how many began within an hour (D58, R4-28). Both are columns of their
-- own: an index of an expression on JSON is not used under row security, since ->> is not leakproof.

-- +goose Up
ALTER TABLE cd_trigger_signals
    ADD COLUMN edit_commit text GENERATED ALWAYS AS (CASE WHEN edit ->> 'state' IN ('committed', 'proposed') THEN NULLIF(edit ->> 'commit', '') END) STORED,
    ADD COLUMN edit_begun timestamptz;
COMMENT ON COLUMN cd_trigger_signals.edit_commit IS 'What the edit has committed, or the head of what it has proposed; NULL for nothing. It is generated, so that it is right whatever release has written the edit.';
COMMENT ON COLUMN cd_trigger_signals.edit_begun IS 'When the first run of the edit began; NULL for none, and for edits of before it was kept.';
CREATE INDEX cd_trigger_signals_commits ON cd_trigger_signals (organization_id, trigger_id, edit_commit) WHERE edit_commit IS NOT NULL;
CREATE INDEX cd_trigger_signals_edits ON cd_trigger_signals (organization_id, trigger_id, edit_begun) WHERE edit_commit IS NOT NULL;

-- +goose Down
DROP INDEX cd_trigger_signals_edits;
DROP INDEX cd_trigger_signals_commits;
ALTER TABLE cd_trigger_signals
    DROP COLUMN edit_begun,
    DROP COLUMN edit_commit;
