-- +goose Up

-- One transaction carries the turns of many executions, so what a row costs is what a workflow costs. A foreign key costs
-- a look at the other table and a lock on its row for every row written; every row below is written by the transaction
-- that holds the fence of its execution, and executions, programs and shapes are never deleted.
ALTER TABLE execution DROP CONSTRAINT execution_program_fkey;
ALTER TABLE entry DROP CONSTRAINT entry_execution_fkey;
ALTER TABLE timer DROP CONSTRAINT timer_execution_fkey;
ALTER TABLE delivery DROP CONSTRAINT delivery_execution_fkey;
ALTER TABLE call DROP CONSTRAINT call_execution_fkey;
ALTER TABLE channel DROP CONSTRAINT channel_execution_fkey;
ALTER TABLE wait DROP CONSTRAINT wait_execution_fkey;
ALTER TABLE wait DROP CONSTRAINT wait_shape_fkey;
-- Keys are deleted with their events, by the statement that forgets these.
ALTER TABLE event_key DROP CONSTRAINT event_key_event_fkey;

-- Events and waits are matched in the transaction that stores them: there is nothing left to look for later.
ALTER TABLE event DROP COLUMN looked;
ALTER TABLE wait DROP COLUMN looked;

-- Rows come in the order of time, and only the oldest are ever looked for by it.
DROP INDEX event_received;
CREATE INDEX event_received ON event USING brin (received_at);

-- Room for the next version of a row on its own page, so that a turn changes no index.
ALTER TABLE execution SET (fillfactor = 80);

-- +goose Down
ALTER TABLE execution RESET (fillfactor);
DROP INDEX event_received;
CREATE INDEX event_received ON event (received_at);
ALTER TABLE event ADD COLUMN looked boolean NOT NULL DEFAULT true;
ALTER TABLE wait ADD COLUMN looked boolean NOT NULL DEFAULT true;
CREATE INDEX event_not_looked ON event (received_at) WHERE NOT looked;
CREATE INDEX wait_not_looked ON wait (created_at) WHERE NOT looked;
ALTER TABLE event_key ADD CONSTRAINT event_key_event_fkey FOREIGN KEY (event) REFERENCES event ON DELETE CASCADE;
ALTER TABLE wait ADD CONSTRAINT wait_shape_fkey FOREIGN KEY (shape) REFERENCES shape;
ALTER TABLE wait ADD CONSTRAINT wait_execution_fkey FOREIGN KEY (execution) REFERENCES execution;
ALTER TABLE channel ADD CONSTRAINT channel_execution_fkey FOREIGN KEY (execution) REFERENCES execution;
ALTER TABLE call ADD CONSTRAINT call_execution_fkey FOREIGN KEY (execution) REFERENCES execution;
ALTER TABLE delivery ADD CONSTRAINT delivery_execution_fkey FOREIGN KEY (execution) REFERENCES execution;
ALTER TABLE timer ADD CONSTRAINT timer_execution_fkey FOREIGN KEY (execution) REFERENCES execution;
ALTER TABLE entry ADD CONSTRAINT entry_execution_fkey FOREIGN KEY (execution) REFERENCES execution;
ALTER TABLE execution ADD CONSTRAINT execution_program_fkey FOREIGN KEY (program) REFERENCES program;
