-- +goose Up

-- Until when a generation is held back that has begun too soon after others (core/engine/pace.go); null: it goes on at once.
ALTER TABLE generation ADD COLUMN held_until timestamptz;

-- +goose Down
ALTER TABLE generation DROP COLUMN held_until;
