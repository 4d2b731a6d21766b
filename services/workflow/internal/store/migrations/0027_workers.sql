-- +goose Up

-- Calls that workers carry out (location 2). Rows end with their calls.
ALTER TABLE call DROP CONSTRAINT call_location_check;
ALTER TABLE call ADD CONSTRAINT call_location_check CHECK (location IN (0, 1, 2));
-- Whose call it is; 0 unless a worker carries it out.
ALTER TABLE call ADD COLUMN organization bigint NOT NULL DEFAULT 0;
-- From when a worker may take it: when it was opened, when its holder is given up, or after the pause before the next attempt. NULL when it
-- is answered, and for calls that no worker carries out.
ALTER TABLE call ADD COLUMN offer_at timestamptz;
-- The session of the worker that has it; empty for none. Only that one may answer.
ALTER TABLE call ADD COLUMN holder text NOT NULL DEFAULT '';
CREATE INDEX call_offer ON call (organization, function, offer_at) WHERE offer_at IS NOT NULL;

-- Functions that workers have registered. A row ends 30 days after it was last seen at a worker.
CREATE TABLE worker_function (
    organization  bigint      NOT NULL CHECK (organization > 0),
    name          text        NOT NULL CHECK (length(name) BETWEEN 3 AND 200),
    declaration   jsonb       NOT NULL CHECK (jsonb_typeof(declaration) = 'object'),
    registered_at timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL,
    PRIMARY KEY (organization, name)
);

-- +goose Down
DROP TABLE worker_function;
DROP INDEX call_offer;
DELETE FROM call WHERE location = 2;
ALTER TABLE call DROP COLUMN holder;
ALTER TABLE call DROP COLUMN offer_at;
ALTER TABLE call DROP COLUMN organization;
ALTER TABLE call DROP CONSTRAINT call_location_check;
ALTER TABLE call ADD CONSTRAINT call_location_check CHECK (location IN (0, 1));
