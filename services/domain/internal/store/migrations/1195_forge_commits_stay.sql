-- What is said of the commits of version sets is what is so (D48).

-- +goose Up
COMMENT ON TABLE cd_forge_commits IS 'Which version sets that were rolled out come from a commit, in organizations with hooks: a report has their checks looked at while they are being rolled out. Rows stay, as version sets do.';

-- +goose Down
COMMENT ON TABLE cd_forge_commits IS 'Which version sets that were rolled out come from a commit, in organizations with hooks: a report has their checks looked at. Rows end with the version set.';
