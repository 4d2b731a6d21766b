-- Who registered a Function of workers as it is: the name of the token, the worker's name, and its version. Null for those of before.

-- +goose Up
ALTER TABLE worker_function
    ADD COLUMN registered_by text CHECK (length(registered_by) <= 400),
    ADD COLUMN registered_by_worker text CHECK (length(registered_by_worker) <= 200),
    ADD COLUMN registered_by_version text CHECK (length(registered_by_version) <= 100);

-- +goose Down
ALTER TABLE worker_function DROP COLUMN registered_by, DROP COLUMN registered_by_worker, DROP COLUMN registered_by_version;
