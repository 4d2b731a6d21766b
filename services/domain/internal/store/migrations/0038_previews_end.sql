-- Previews are of use for as long as what they were made of: old ones are forgotten when a new one is asked for. No rollout refers
-- to one, and what a rollout has changed is kept with its deployments.

-- +goose Up
CREATE INDEX cd_rollout_previews_by_age ON cd_rollout_previews (organization_id, created_at);
-- The role that the service works as deletes nothing of an organization. This runs as the owner, who is behind the walls as well:
-- it forgets those of the organization that the transaction has entered, and no others.
-- +goose StatementBegin
CREATE FUNCTION cd_forget_previews(before timestamptz, at_most integer) RETURNS bigint LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT AS $$
    WITH old AS (
        SELECT id FROM cd_rollout_previews
        WHERE organization_id = NULLIF(current_setting('lockstep.organization', true), '')::bigint AND created_at < before ORDER BY created_at LIMIT at_most
    ), gone AS (DELETE FROM cd_rollout_previews p USING old WHERE p.id = old.id RETURNING p.id)
    SELECT count(*) FROM gone
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forget_previews(timestamptz, integer) IS 'Previews are no record: nothing is decided by them, and nothing refers to them.';

-- +goose Down
DROP FUNCTION cd_forget_previews(timestamptz, integer);
DROP INDEX cd_rollout_previews_by_age;
