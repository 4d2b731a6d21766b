-- +goose Up
-- To note that an event was sent must change no index: it happens to every event. So the time of the next attempt is in none.
-- What was never sent is found by its position, what was sent among the lowest positions, and what has no position here.
DROP INDEX outbox_due;
CREATE INDEX outbox_unreceipted ON outbox (id) WHERE NOT receipted;
-- Room for the next version of a row on its own page, for all rows of a page at once.
ALTER TABLE outbox SET (fillfactor = 50);

-- +goose Down
ALTER TABLE outbox RESET (fillfactor);
DROP INDEX outbox_unreceipted;
CREATE INDEX outbox_due ON outbox (next_attempt_at);
