-- +goose Up

-- Whose a runnable execution is: after a crash, organizations have theirs claimed in turns (Claim). 0 where a process of an earlier release
-- has stored the row.
ALTER TABLE runnable ADD COLUMN organization bigint NOT NULL DEFAULT 0 CHECK (organization >= 0);
UPDATE runnable SET organization = execution.organization FROM execution WHERE execution.id = runnable.execution;
CREATE INDEX runnable_of_organization ON runnable (organization, execution);

-- +goose Down
DROP INDEX runnable_of_organization;
ALTER TABLE runnable DROP COLUMN organization;
