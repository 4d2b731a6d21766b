-- +goose Up

-- What distinguishes this installation from others that work in the same clusters: objects that it creates there carry the number. A restored
-- database is the same installation; so is a copy, which must not be given the agents of the original. One row, which never ends.
CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id  text    NOT NULL CHECK (id ~ '^[0-9a-f]{16}$')
);
INSERT INTO installation (id) VALUES (left(replace(gen_random_uuid()::text, '-', ''), 16));

-- +goose Down
DROP TABLE installation;
