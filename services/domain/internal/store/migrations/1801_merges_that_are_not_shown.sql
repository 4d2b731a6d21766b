-- Why the engine cannot show that a merge by hand is of exactly what was proposed, and nothing of an earlier merge stays with a later one,
-- also where a replica of an earlier release writes, which does not know the columns (D55).

-- +goose Up
ALTER TABLE cd_rollout_proposals
    ADD COLUMN unshown text NOT NULL DEFAULT '' CONSTRAINT cd_rollout_proposals_unshown_is_bounded CHECK (octet_length(unshown) <= 255);
COMMENT ON COLUMN cd_rollout_proposals.unshown IS 'Why it is not known that a person has merged exactly what was proposed; empty if it is, and before.';

-- +goose StatementBegin
CREATE FUNCTION cd_rollout_proposals_forget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.ended_branch := '';
    NEW.unshown := '';
    NEW.answered_head := '';
    NEW.answer := '';
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER cd_rollout_proposals_forget BEFORE UPDATE ON cd_rollout_proposals FOR EACH ROW WHEN (NEW.state <> 'merged')
    EXECUTE FUNCTION cd_rollout_proposals_forget();

-- +goose Down
DROP TRIGGER cd_rollout_proposals_forget ON cd_rollout_proposals;
DROP FUNCTION cd_rollout_proposals_forget();
ALTER TABLE cd_rollout_proposals DROP COLUMN unshown;
