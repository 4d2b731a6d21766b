-- A feed of the windows of schedules (D64).

-- +goose Up
ALTER TABLE cd_feeds DROP CONSTRAINT cd_feeds_kind_is_known;
ALTER TABLE cd_feeds ADD CONSTRAINT cd_feeds_kind_is_known CHECK (kind IN ('production_changes', 'freezes', 'windows'));

-- +goose Down
ALTER TABLE cd_feeds DROP CONSTRAINT cd_feeds_kind_is_known;
ALTER TABLE cd_feeds ADD CONSTRAINT cd_feeds_kind_is_known CHECK (kind IN ('production_changes', 'freezes')) NOT VALID;
