-- +goose Up
-- Comments of 0060 in plainer words.
COMMENT ON COLUMN cd_freezes.ended_at IS 'When it was ended before its time; null if it was not.';
COMMENT ON TABLE cd_passage_reviews IS 'Rollouts whose requested passages are evaluated again at a time. A row is deleted when that was done. No foreign key: adding a row must not wait for the rollout''s lock.';

-- +goose Down
COMMENT ON COLUMN cd_freezes.ended_at IS 'When somebody ended it before its time; null for nobody.';
COMMENT ON TABLE cd_passage_reviews IS 'Rollouts whose requested passages are evaluated again at a time. A row ends when that was done. No foreign key: whoever adds a row must not wait for the rollout''s lock.';
