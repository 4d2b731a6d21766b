-- +goose Up

-- Which execution a process tries that is suspected of killing processes (core/engine/quarantine.go), and whether the process ended in order. A process
-- that died without one says that something else kills: unexplained is that of the one before under this name.
ALTER TABLE lease
    ADD COLUMN trial       bigint,
    ADD COLUMN ended       boolean NOT NULL DEFAULT false,
    ADD COLUMN unexplained boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE lease DROP COLUMN trial, DROP COLUMN ended, DROP COLUMN unexplained;
