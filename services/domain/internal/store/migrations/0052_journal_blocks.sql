-- The journals are sealed into a chain of blocks for each organization, so that rows that are changed, removed or put in between afterwards are
-- found (D50). Writers of rows have no part in it. Rows from before are sealed as well, by the service, from the beginning.

-- +goose Up
CREATE TABLE cd_journal_blocks (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_journal_blocks_organization REFERENCES cd_organizations (id),
    number          bigint NOT NULL CONSTRAINT cd_journal_blocks_number_from_1 CHECK (number > 0),
    above           bigint NOT NULL,
    upto            bigint NOT NULL,
    row_count       integer NOT NULL CONSTRAINT cd_journal_blocks_have_rows CHECK (row_count > 0),
    previous        text NOT NULL,
    digest          text NOT NULL CONSTRAINT cd_journal_blocks_digest_is_sha256 CHECK (digest ~ '^[0-9a-f]{64}$'),
    sealed_at       timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_journal_blocks_are_in_a_row UNIQUE (organization_id, number),
    CONSTRAINT cd_journal_blocks_go_up CHECK (upto > above),
    CONSTRAINT cd_journal_blocks_follow_one CHECK ((number = 1) = (previous = ''))
);
COMMENT ON TABLE cd_journal_blocks IS 'Each block covers the rows of all four journals between two positions, and the block before; append-only (D50).';
COMMENT ON COLUMN cd_journal_blocks.above IS 'The position that the block begins behind: where the block before ends.';
COMMENT ON COLUMN cd_journal_blocks.upto IS 'The position of its last row.';
COMMENT ON COLUMN cd_journal_blocks.previous IS 'The digest of the block before; empty for the first.';
COMMENT ON COLUMN cd_journal_blocks.digest IS 'SHA-256, as hexadecimal, of the block and the canonical form of its rows.';
CREATE INDEX cd_journal_blocks_by_position ON cd_journal_blocks (organization_id, upto);
CREATE TRIGGER cd_journal_blocks_are_append_only BEFORE UPDATE OR DELETE ON cd_journal_blocks FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_journal_blocks_are_kept BEFORE TRUNCATE ON cd_journal_blocks EXECUTE FUNCTION cd_refuse();

CREATE TABLE cd_journal_checks (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organization_id bigint NOT NULL CONSTRAINT cd_journal_checks_organization REFERENCES cd_organizations (id),
    block           bigint NOT NULL,
    head            text NOT NULL,
    upto            bigint NOT NULL,
    problem         text NOT NULL DEFAULT '',
    checked_at      timestamptz NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_journal_checks_one_each UNIQUE (organization_id)
);
COMMENT ON TABLE cd_journal_checks IS 'How far the chain of an organization was checked by the schedule, and what was found.';
COMMENT ON COLUMN cd_journal_checks.block IS 'The last block that is right; 0 for none.';
COMMENT ON COLUMN cd_journal_checks.head IS 'The digest of that block: the chain must still have it.';
COMMENT ON COLUMN cd_journal_checks.problem IS 'The first thing that is wrong; empty for nothing.';
CREATE TRIGGER cd_journal_checks_touch BEFORE UPDATE ON cd_journal_checks FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose StatementBegin
CREATE FUNCTION cd_journal_health() RETURNS TABLE (problems bigint, oldest_check timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM set_config('lockstep.across', 'on', true);
    RETURN QUERY SELECT count(*) FILTER (WHERE c.problem <> ''), COALESCE(min(c.checked_at), 'epoch'::timestamptz) FROM cd_journal_checks c;
    PERFORM set_config('lockstep.across', '', true);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_journal_health() IS 'For whoever operates the installation: in how many organizations the chain is broken, and nothing of what is in it.';

-- +goose Down
DROP FUNCTION cd_journal_health();
DROP TABLE cd_journal_checks;
DROP TABLE cd_journal_blocks;
