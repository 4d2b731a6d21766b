-- A list by a status value reads the executions that report it, and no others.

-- +goose Up
CREATE INDEX status_by_value ON status (organization, key, value, execution);

-- +goose Down
DROP INDEX status_by_value;
