-- The failed attempts at a call are kept with its result, and until then beside the call.

-- +goose Up
ALTER TABLE entry ADD COLUMN tries json;
ALTER TABLE call ADD COLUMN tries json;
ALTER TABLE delivery ADD COLUMN tries json;

-- +goose Down
ALTER TABLE delivery DROP COLUMN tries;
ALTER TABLE call DROP COLUMN tries;
ALTER TABLE entry DROP COLUMN tries;
