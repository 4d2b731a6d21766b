-- Which sources of an organization are of a repository: their keys have a prefix in common (D60).

-- +goose Up
CREATE INDEX cd_artifact_sources_of_repository ON cd_artifact_sources (organization_id, match_key COLLATE "C");

-- +goose Down
DROP INDEX cd_artifact_sources_of_repository;
