-- A route whose expression cannot be evaluated says so (D62).

-- +goose Up
ALTER TABLE cd_notification_routes ADD COLUMN problem text NOT NULL DEFAULT ''
    CONSTRAINT cd_notification_routes_problem_is_bounded CHECK (octet_length(problem) <= 4000);
COMMENT ON COLUMN cd_notification_routes.problem IS 'Why its expression could not be evaluated, of the latest moment for which that was so since it was saved; empty for none.';

-- +goose Down
ALTER TABLE cd_notification_routes DROP COLUMN problem;
