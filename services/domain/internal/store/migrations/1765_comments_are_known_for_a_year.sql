-- After the account of a credential has changed, the one comment on a pull request is found by its address only: it is known for a year.

-- +goose Up
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_pulls(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), settled AS (
        SELECT p.organization_id, p.id FROM cd_forge_pulls p JOIN own ON own.id = p.organization_id
        WHERE p.state IN ('sent', 'failed') AND p.sent_at < before
          AND (p.link = '' AND p.answers_link = '' OR p.sent_at < before - interval '335 days') ORDER BY p.sent_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_pulls p USING settled WHERE p.organization_id = settled.organization_id AND p.id = settled.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_pulls(timestamptz, integer) IS 'A comment is no record: nothing is decided by it. Where it is, is known for 335 days longer.';

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION cd_forget_forge_pulls(before timestamptz, most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH own AS (
        SELECT NULLIF(current_setting('lockstep.organization', true), '')::bigint AS id
    ), settled AS (
        SELECT p.organization_id, p.id FROM cd_forge_pulls p JOIN own ON own.id = p.organization_id
        WHERE p.state IN ('sent', 'failed') AND p.sent_at < before ORDER BY p.sent_at LIMIT most
    ), gone AS (
        DELETE FROM cd_forge_pulls p USING settled WHERE p.organization_id = settled.organization_id AND p.id = settled.id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_forge_pulls(timestamptz, integer) IS 'A comment is no record: nothing is decided by it.';
