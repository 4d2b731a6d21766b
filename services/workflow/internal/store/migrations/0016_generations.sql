-- +goose Up

-- The generations of runs behind the first: a run that goes on with an empty history (continue_with). Most runs have none, and cost
-- nothing for it.
CREATE TABLE generation (
    execution bigint      NOT NULL,
    number    integer     NOT NULL CHECK (number > 1),
    -- The last entry of the generation before.
    base_seq  bigint      NOT NULL CHECK (base_seq > 0),
    -- What it begins with: the value of that entry, which may have been forgotten.
    call      json        NOT NULL,
    began_at  timestamptz NOT NULL,
    -- Whether the entries of the generation before have been forgotten.
    forgotten boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (execution, number),
    CONSTRAINT generation_border UNIQUE (execution, base_seq)
);
CREATE INDEX generation_kept ON generation (began_at) WHERE NOT forgotten;

-- +goose Down
DROP TABLE generation;
