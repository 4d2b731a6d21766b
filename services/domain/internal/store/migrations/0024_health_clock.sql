-- The clock of "a while on degraded" runs off the health cache: it starts, stops and starts again as services degrade and
-- recover, until a rollback has come of it or was dropped (D13, R46, E74).

-- +goose Up
ALTER TABLE cd_automatic_rollbacks ALTER COLUMN due_at DROP NOT NULL;
ALTER TABLE cd_automatic_rollbacks ADD CONSTRAINT cd_automatic_rollbacks_only_a_clock_stands CHECK (due_at IS NOT NULL OR cause = 'degraded' AND state = 0);
COMMENT ON COLUMN cd_automatic_rollbacks.due_at IS 'NULL while nothing is degraded: the clock stands, and starts anew with the next degradation.';

-- +goose Down
-- A clock that stands comes back with the next degradation; without NULL there is no word for it but that it was dropped.
UPDATE cd_automatic_rollbacks SET due_at = updated_at, state = 2, outcome = 'recovered' WHERE due_at IS NULL;
ALTER TABLE cd_automatic_rollbacks DROP CONSTRAINT cd_automatic_rollbacks_only_a_clock_stands;
ALTER TABLE cd_automatic_rollbacks ALTER COLUMN due_at SET NOT NULL;
