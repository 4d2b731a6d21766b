-- +goose Up
ALTER TABLE cd_forge_pulls ADD COLUMN answers_link text NOT NULL DEFAULT '';
ALTER TABLE cd_forge_pulls ADD CONSTRAINT cd_forge_pulls_answers_link_is_bounded CHECK (octet_length(answers_link) <= 2000);
COMMENT ON COLUMN cd_forge_pulls.answers_link IS 'Where the comment with answers to commands is; empty before there is one, and where a release before this one has written it.';

-- +goose Down
ALTER TABLE cd_forge_pulls DROP COLUMN answers_link;
