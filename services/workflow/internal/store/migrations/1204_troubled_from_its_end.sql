-- Lists of executions that ended badly read an index of both columns from its end.

-- +goose Up
CREATE INDEX execution_by_trouble ON execution (organization, id) WHERE troubled;
DROP INDEX execution_troubled;

-- +goose Down
CREATE INDEX execution_troubled ON execution (organization, id DESC) WHERE troubled;
DROP INDEX execution_by_trouble;
