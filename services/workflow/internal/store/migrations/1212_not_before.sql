-- A run that rests is not claimed before a time, so that claims need not name all that rest, and rests outlive a process.

-- +goose Up
ALTER TABLE runnable ADD COLUMN not_before timestamptz;

-- +goose Down
ALTER TABLE runnable DROP COLUMN not_before;
