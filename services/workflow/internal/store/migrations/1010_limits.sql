-- What organizations may use, and how long ended runs are kept.

-- +goose Up
-- What an organization may use; organization 0 has what holds for those without a row. 0 in a column is no limit. A row ends with the limits.
CREATE TABLE usage_limit (
    organization      bigint PRIMARY KEY CHECK (organization >= 0),
    open_runs         bigint NOT NULL CHECK (open_runs >= 0),
    starts_per_second bigint NOT NULL CHECK (starts_per_second >= 0),
    events_per_second bigint NOT NULL CHECK (events_per_second >= 0),
    storage_bytes     bigint NOT NULL CHECK (storage_bytes >= 0)
);

-- How long runs that have ended are kept, by a label; an empty label is for all of an organization. A row ends with the rule.
CREATE TABLE retention_rule (
    organization bigint NOT NULL CHECK (organization > 0),
    label        text NOT NULL,
    value        text NOT NULL,
    keep         interval NOT NULL CHECK (keep > '00:00:00'::interval),
    PRIMARY KEY (organization, label, value),
    CONSTRAINT retention_rule_check CHECK (label <> '' OR value = '')
);

CREATE TABLE setting_change (
    organization bigint NOT NULL CHECK (organization >= 0),
    changed_at   timestamptz NOT NULL,
    id           bigint GENERATED ALWAYS AS IDENTITY,
    setting      text NOT NULL CHECK (setting IN ('limits', 'retention')),
    changed_by   text NOT NULL,
    reason       text NOT NULL,
    before       json,
    after        json,
    PRIMARY KEY (organization, changed_at, id)
);
COMMENT ON TABLE setting_change IS 'The journal of limits and rules of retention. Kept.';

-- +goose Down
DROP TABLE setting_change;
DROP TABLE retention_rule;
DROP TABLE usage_limit;
