-- Where versions come from (D52).

-- name: OrganizationsWithDueLookups :many
-- Across organizations, on purpose: there is one worker for all.
SELECT organization_id::bigint FROM cd_organizations_with_due_lookups(@at) AS organization_id;

-- name: ClaimLookup :many
-- The version that is due first, for the caller until a time; what others have locked is skipped.
UPDATE cd_version_lookups l SET due_at = @until
FROM cd_versions v
WHERE l.organization_id = @organization_id AND l.version_id = (
    SELECT d.version_id FROM cd_version_lookups d WHERE d.organization_id = @organization_id AND d.due_at <= @at ORDER BY d.due_at LIMIT 1 FOR UPDATE SKIP LOCKED
) AND v.organization_id = l.organization_id AND v.id = l.version_id
RETURNING l.version_id, v.reference, v.created_at, l.failures;

-- name: SettleLookup :exec
UPDATE cd_version_lookups SET due_at = sqlc.narg(due_at), looked_at = COALESCE(sqlc.narg(looked_at), looked_at), failures = @failures, problem = @problem
WHERE organization_id = @organization_id AND version_id = @version_id;

-- name: RequestLookup :one
-- The number of versions of the organization: 1, or 0 for one that it does not have, or that is no image.
WITH wanted AS (
    INSERT INTO cd_version_lookups AS l (organization_id, version_id, due_at)
    SELECT v.organization_id, v.id, @at::timestamptz FROM cd_versions v WHERE v.organization_id = @organization_id AND v.id = @version_id AND v.reference NOT LIKE 'git:%'
    ON CONFLICT (organization_id, version_id) DO UPDATE SET due_at = LEAST(l.due_at, excluded.due_at)
    RETURNING 1
)
SELECT count(*) FROM wanted;

-- name: LookupsOfVersions :many
SELECT version_id, due_at, looked_at, problem FROM cd_version_lookups WHERE organization_id = @organization_id AND version_id = ANY(@versions::bigint[]);

-- name: ReportsOfVersions :many
-- The latest of each.
SELECT DISTINCT ON (version_id) version_id, id, report, created_at FROM cd_version_reports
WHERE organization_id = @organization_id AND version_id = ANY(@versions::bigint[]) ORDER BY version_id, id DESC;

-- name: InsertReport :exec
INSERT INTO cd_version_reports (organization_id, version_id, report, created_at) VALUES (@organization_id, @version_id, @report, @created_at);

-- name: ForgetComponents :one
SELECT cd_forget_components(@version_id::bigint)::bigint;

-- name: InsertComponents :exec
-- In the order of the lists.
INSERT INTO cd_version_components (organization_id, version_id, ordinal, name, version, purl)
SELECT @organization_id, @version_id, row_number() OVER (), c.name, c.version, c.purl
FROM (SELECT unnest(@names::text[]) AS name, unnest(@versions::text[]) AS version, unnest(@purls::text[]) AS purl) c;

-- name: ComponentsOfVersions :many
SELECT version_id, name, version, purl FROM cd_version_components
WHERE organization_id = @organization_id AND version_id = ANY(@versions::bigint[]) ORDER BY version_id, ordinal;

-- name: WhereComponent :many
-- Where versions are live that have a component; an empty version or package URL is any.
SELECT c.application_id, c.environment_id, e.service_id, e.version_id, c.live_since, k.name, k.version, k.purl
FROM cd_version_components k
JOIN cd_version_set_entries e ON e.organization_id = k.organization_id AND e.version_id = k.version_id
JOIN cd_cells c ON c.organization_id = e.organization_id AND c.live_version_set_id = e.version_set_id
WHERE k.organization_id = @organization_id AND k.name = @name AND (@version::text = '' OR k.version = @version::text) AND (@purl::text = '' OR k.purl = @purl::text)
ORDER BY c.application_name, c.environment_id, e.service_id, k.version, k.purl LIMIT @at_most;

-- name: CountComponents :one
-- How many versions have a component, counted up to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM cd_version_components k WHERE k.organization_id = @organization_id AND k.name = @name LIMIT @at_most
) counted;

-- name: WhereCommonComponent :many
-- As WhereComponent, from what is live: for a component of many versions, most of which are not.
WITH live AS MATERIALIZED (
    SELECT c.application_id, c.environment_id, c.application_name, c.live_since, e.service_id, e.version_id
    FROM cd_cells c
    JOIN cd_version_set_entries e ON e.organization_id = c.organization_id AND e.version_set_id = c.live_version_set_id
    WHERE c.organization_id = @organization_id AND c.live_version_set_id IS NOT NULL
)
SELECT l.application_id, l.environment_id, l.service_id, l.version_id, l.live_since, k.name, k.version, k.purl
FROM live l
CROSS JOIN LATERAL (
    SELECT o.name, o.version, o.purl FROM cd_version_components o
    WHERE o.organization_id = @organization_id AND o.version_id = l.version_id AND o.name = @name
      AND (@version::text = '' OR o.version = @version::text) AND (@purl::text = '' OR o.purl = @purl::text)
    OFFSET 0
) k
ORDER BY l.application_name, l.environment_id, l.service_id, k.version, k.purl LIMIT @at_most;

-- name: WhereDigest :many
-- Where versions with a digest are live.
SELECT c.application_id, c.environment_id, e.service_id, e.version_id, c.live_since
FROM cd_versions v
JOIN cd_version_set_entries e ON e.organization_id = v.organization_id AND e.version_id = v.id
JOIN cd_cells c ON c.organization_id = e.organization_id AND c.live_version_set_id = e.version_set_id
WHERE v.organization_id = @organization_id AND v.digest = @digest
ORDER BY c.application_name, c.environment_id, e.service_id LIMIT @at_most;
