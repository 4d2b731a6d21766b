-- name: SourcesByMatchKeys :many
SELECT a.match_key, a.id AS source_id, a.service_id, s.application_id, a.source_ref, a.source_config
FROM cd_artifact_sources a
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id AND s.retired_at IS NULL
JOIN cd_applications p ON p.organization_id = s.organization_id AND p.id = s.application_id AND p.archived_at IS NULL
WHERE a.organization_id = @organization_id AND a.match_key = ANY(@match_keys::text[]) AND a.disabled_at IS NULL AND a.removed_at IS NULL
ORDER BY s.application_id, a.id;

-- name: VersionsTaken :many
-- Versions that have one of some names on some source, or one of some digests: the lists go side by side. The parts are
-- looked up one by one, by their unique indexes, however many versions a source has.
SELECT n.id, n.artifact_source_id, n.name, n.digest
FROM (SELECT unnest(@sources_of_names::bigint[]) AS source, unnest(@names::text[]) AS name) asked
CROSS JOIN LATERAL (SELECT v.id, v.artifact_source_id, v.name, v.digest FROM cd_versions v
    WHERE v.organization_id = @organization_id AND v.artifact_source_id = asked.source AND v.name = asked.name LIMIT 1) n
UNION
SELECT d.id, d.artifact_source_id, d.name, d.digest
FROM (SELECT unnest(@sources_of_digests::bigint[]) AS source, unnest(@digests::text[]) AS digest) asked
CROSS JOIN LATERAL (SELECT v.id, v.artifact_source_id, v.name, v.digest FROM cd_versions v
    WHERE v.organization_id = @organization_id AND v.artifact_source_id = asked.source AND v.digest = asked.digest LIMIT 1) d;

-- name: InsertVersions :many
-- In the order of the lists, which is that of the identifiers. The signatures and attestations of images are looked up at once.
WITH made AS (
    INSERT INTO cd_versions (organization_id, artifact_source_id, name, digest, reference, published_at, commit_message)
    SELECT @organization_id, unnest(@artifact_sources::bigint[]), unnest(@names::text[]), unnest(@digests::text[]), unnest(@refs::text[]), unnest(@published::timestamptz[]), unnest(@commit_messages::text[])
    RETURNING organization_id, id, artifact_source_id, digest, reference
), due AS (
    INSERT INTO cd_version_lookups (organization_id, version_id, due_at) SELECT organization_id, id, now() FROM made WHERE reference NOT LIKE 'git:%'
)
SELECT id, artifact_source_id, digest FROM made ORDER BY id;

-- name: RecordPublications :exec
-- Says that the transaction adds the publications of its versions itself.
SELECT set_config('lockstep.publications', 'recorded', true);

-- name: PublicationsOfVersions :many
SELECT artifact_source_id, version_id, tag, COALESCE(rank, '')::text AS rank, published_at, announced_at, arrival, taken, digest_seen, GREATEST(published_at, alive_at)::timestamptz AS alive_at
FROM cd_publications WHERE organization_id = @organization_id AND version_id = ANY(@versions::bigint[]) ORDER BY version_id, tag;

-- name: NewestPublications :many
-- The newest publication of every source of applications that decides on their version sets, in the order of sources, some versions left out;
-- version 0 where there is none. Sources that were removed are among them where another one replaces them.
SELECT s.application_id, s.id AS service_id, a.id AS artifact_source_id, (a.disabled_at IS NOT NULL)::boolean AS disabled, (a.removed_at IS NOT NULL)::boolean AS removed,
    COALESCE(a.replaced_by, 0)::bigint AS replaced_by,
    EXISTS (SELECT FROM cd_versions v WHERE v.organization_id = @organization_id AND v.artifact_source_id = a.id) AS has_versions,
    (EXISTS (SELECT FROM cd_newest_version_sets n WHERE n.organization_id = @organization_id AND n.application_id = s.application_id)
      OR EXISTS (SELECT FROM cd_version_sets m WHERE m.organization_id = @organization_id AND m.application_id = s.application_id AND NOT m.curated))::boolean AS has_sets, COALESCE(p.version_id, 0)::bigint AS version_id, COALESCE(p.rank, '')::text AS rank,
    COALESCE(p.published_at, 'epoch')::timestamptz AS published_at, COALESCE(p.announced_at, 'epoch')::timestamptz AS announced_at, COALESCE(p.arrival, 0)::bigint AS arrival
FROM cd_services s
JOIN cd_artifact_sources a ON a.organization_id = s.organization_id AND a.service_id = s.id
LEFT JOIN LATERAL (
    SELECT l.version_id, l.rank, l.published_at, l.announced_at, l.arrival FROM cd_publications l
    WHERE l.organization_id = @organization_id AND l.artifact_source_id = a.id AND l.rank IS NOT NULL AND l.taken AND l.digest_seen IS NOT FALSE
      AND NOT (l.version_id = ANY(@without::bigint[]))
    ORDER BY l.rank DESC, l.published_at DESC, l.announced_at DESC, l.arrival DESC LIMIT 1
) p ON true
WHERE s.organization_id = @organization_id AND s.application_id = ANY(@applications::bigint[]) AND s.retired_at IS NULL
  AND (a.removed_at IS NULL OR a.replaced_by IS NOT NULL)
ORDER BY s.application_id, a.id;

-- name: SavePublications :exec
-- In the order of the lists, which is that of arrival.
INSERT INTO cd_publications AS p (organization_id, artifact_source_id, version_id, tag, rank, published_at, announced_at, taken, digest_seen, alive_at)
SELECT @organization_id, unnest(@artifact_sources::bigint[]), unnest(@versions::bigint[]), unnest(@tags::text[]), unnest(@ranks::text[]),
    unnest(@published::timestamptz[]), unnest(@announced::timestamptz[]), true, NULLIF(unnest(@seen::text[]), '')::boolean, unnest(@alive::timestamptz[])
ON CONFLICT ON CONSTRAINT cd_publications_are_unique DO UPDATE
SET rank = excluded.rank, published_at = excluded.published_at, announced_at = excluded.announced_at, arrival = excluded.arrival, taken = true, digest_seen = excluded.digest_seen,
    alive_at = GREATEST(p.alive_at, p.published_at, excluded.alive_at), updated_at = now();

-- name: SaveAlive :exec
-- Publications that count as they were, and were seen again: the lists go side by side.
UPDATE cd_publications p SET alive_at = GREATEST(p.alive_at, p.published_at, asked.alive_at), updated_at = now()
FROM (SELECT unnest(@versions::bigint[]) AS version_id, unnest(@tags::text[]) AS tag, unnest(@alive::timestamptz[]) AS alive_at) asked
WHERE p.organization_id = @organization_id AND p.version_id = asked.version_id AND p.tag = asked.tag;

-- name: SaveDeletions :exec
-- What was deleted on sources, each once: the lists go side by side.
INSERT INTO cd_artifact_deletions AS d (organization_id, artifact_source_id, digest, tag, deleted_at)
SELECT @organization_id, unnest(@artifact_sources::bigint[]), unnest(@digests::text[]), unnest(@tags::text[]), unnest(@deleted::timestamptz[])
ON CONFLICT ON CONSTRAINT cd_artifact_deletions_are_unique DO UPDATE
SET deleted_at = GREATEST(d.deleted_at, excluded.deleted_at), updated_at = now();

-- name: ForgetDeletions :exec
SELECT cd_forget_artifact_deletions(@before, @at_most);

-- name: VersionsOfDeletions :many
-- The versions that deletions may concern: those of a digest, or those published under a tag. The lists go side by side.
SELECT v.id::bigint AS version_id
FROM (SELECT unnest(@sources_of_digests::bigint[]) AS source, unnest(@digests::text[]) AS digest) asked
JOIN cd_versions v ON v.organization_id = @organization_id AND v.artifact_source_id = asked.source AND v.digest = asked.digest
UNION
SELECT p.version_id::bigint
FROM (SELECT unnest(@sources_of_tags::bigint[]) AS source, unnest(@tags::text[]) AS tag) asked
JOIN cd_publications p ON p.organization_id = @organization_id AND p.artifact_source_id = asked.source AND p.tag = asked.tag;

-- name: MarkDeleted :exec
-- Marks the publications of versions that were deleted, whichever of the two arrived first.
UPDATE cd_publications p
SET tag_deleted_at = GREATEST(p.tag_deleted_at, known.tag_deleted_at), image_deleted_at = GREATEST(p.image_deleted_at, known.image_deleted_at), updated_at = now()
FROM (
    SELECT l.id, max(d.deleted_at) FILTER (WHERE d.tag <> '') AS tag_deleted_at, max(d.deleted_at) FILTER (WHERE d.tag = '') AS image_deleted_at
    FROM cd_publications l
    JOIN cd_versions v ON v.organization_id = @organization_id AND v.id = l.version_id
    CROSS JOIN LATERAL (VALUES (v.digest, ''), (v.digest, l.tag), ('', l.tag)) AS named (digest, tag)
    JOIN cd_artifact_deletions d ON d.organization_id = @organization_id AND d.artifact_source_id = l.artifact_source_id AND d.digest = named.digest AND d.tag = named.tag
    WHERE l.organization_id = @organization_id AND l.version_id = ANY(@versions::bigint[])
    GROUP BY l.id
) known
WHERE p.id = known.id
  AND (known.tag_deleted_at > COALESCE(p.tag_deleted_at, '-infinity') OR known.image_deleted_at > COALESCE(p.image_deleted_at, '-infinity'));

-- name: DeletedVersions :many
-- Versions whose image was deleted and not published since, or of whose tags none is left: those that named them last were deleted. A tag that named
-- another version before it was deleted says nothing about this one.
SELECT o.version_id, max(o.deleted_at)::timestamptz AS deleted_at
FROM (
    SELECT p.version_id, p.image_deleted_at, p.alive_at, p.deleted_at, p.tag <> '' AND EXISTS (
            SELECT FROM cd_publications n WHERE n.organization_id = @organization_id AND n.artifact_source_id = p.artifact_source_id AND n.tag = p.tag
              AND n.version_id <> p.version_id AND GREATEST(n.published_at, n.alive_at) > p.alive_at
              AND (p.deleted_at IS NULL OR p.deleted_at < p.alive_at OR GREATEST(n.published_at, n.alive_at) <= p.deleted_at)
        ) AS moved
    FROM (
        SELECT q.version_id, q.artifact_source_id, q.tag, q.image_deleted_at, GREATEST(q.published_at, q.alive_at) AS alive_at,
            GREATEST(q.tag_deleted_at, q.image_deleted_at) AS deleted_at
        FROM cd_publications q
        WHERE q.organization_id = @organization_id AND q.version_id = ANY(@ids::bigint[])
          AND EXISTS (SELECT FROM cd_publications m WHERE m.organization_id = @organization_id AND m.version_id = q.version_id
              AND (m.tag_deleted_at IS NOT NULL OR m.image_deleted_at IS NOT NULL))
    ) p
) o
GROUP BY o.version_id
HAVING max(o.image_deleted_at) >= max(o.alive_at)
    OR bool_and(o.moved OR COALESCE(o.deleted_at >= o.alive_at, false)) AND bool_or(NOT o.moved);

-- name: SaveSeenDigests :exec
-- Whether the digests of versions were seen: the lists go side by side.
UPDATE cd_publications p SET digest_seen = asked.seen, updated_at = now()
FROM (SELECT unnest(@versions::bigint[]) AS version_id, unnest(@seen::boolean[]) AS seen) asked
WHERE p.organization_id = @organization_id AND p.version_id = asked.version_id AND p.digest_seen IS DISTINCT FROM asked.seen;

-- name: SeenDigests :many
-- Of versions for which it was reported whether their digest was seen.
SELECT version_id, bool_or(digest_seen)::boolean AS seen FROM cd_publications
WHERE organization_id = @organization_id AND version_id = ANY(@ids::bigint[]) AND digest_seen IS NOT NULL GROUP BY version_id;

-- name: UnrankedPublications :many
SELECT p.id, p.tag, s.application_id, a.source_ref, a.source_config
FROM cd_publications p
JOIN cd_artifact_sources a ON a.organization_id = p.organization_id AND a.id = p.artifact_source_id
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
WHERE p.organization_id = @organization_id AND p.rank IS NULL AND s.application_id = ANY(@applications::bigint[])
ORDER BY p.id LIMIT @at_most;

-- name: ApplicationWithUnranked :one
SELECT s.application_id
FROM cd_publications p
JOIN cd_artifact_sources a ON a.organization_id = p.organization_id AND a.id = p.artifact_source_id
JOIN cd_services s ON s.organization_id = a.organization_id AND s.id = a.service_id
WHERE p.organization_id = @organization_id AND p.rank IS NULL LIMIT 1;

-- name: RankPublications :exec
-- The lists go side by side.
UPDATE cd_publications p SET rank = asked.rank, taken = asked.taken, updated_at = now()
FROM (SELECT unnest(@ids::bigint[]) AS id, unnest(@ranks::text[]) AS rank, unnest(@taken::boolean[]) AS taken) asked
WHERE p.organization_id = @organization_id AND p.id = asked.id;

-- name: ForgetRanks :exec
UPDATE cd_publications SET rank = NULL, updated_at = now() WHERE organization_id = @organization_id AND artifact_source_id = @artifact_source_id;

-- name: ReconsiderVersionSet :exec
-- One publication of an application loses its place in the order of its selection, so that the place is worked out again, and with it the newest set.
UPDATE cd_publications SET rank = NULL, updated_at = now()
WHERE cd_publications.organization_id = @organization_id AND cd_publications.id = (
    SELECT p.id FROM cd_services s
    JOIN cd_artifact_sources a ON a.organization_id = s.organization_id AND a.service_id = s.id
    JOIN cd_publications p ON p.organization_id = a.organization_id AND p.artifact_source_id = a.id
    WHERE s.organization_id = @organization_id AND s.application_id = @application_id LIMIT 1);

-- name: VersionsNamed :many
-- The versions of an application with one of some names.
SELECT v.* FROM cd_services s
JOIN cd_artifact_sources a ON a.organization_id = s.organization_id AND a.service_id = s.id
JOIN cd_versions v ON v.organization_id = a.organization_id AND v.artifact_source_id = a.id AND v.name = ANY(@names::text[])
WHERE s.organization_id = @organization_id AND s.application_id = @application_id
ORDER BY v.id;

-- name: InsertCuratedVersionSet :exec
INSERT INTO cd_curated_version_sets (organization_id, application_id, version_set_id, name, reason, from_set_id, principal_type, principal_id, principal_name)
VALUES (@organization_id, @application_id, @version_set_id, @name, @reason, NULLIF(@from_set_id::bigint, 0), @principal_type, @principal_id, @principal_name);

-- name: CuratedVersionSets :many
-- Who put sets together: the first twenty of each.
SELECT * FROM cd_curated_version_sets c
WHERE c.organization_id = @organization_id AND c.id = ANY(ARRAY(
  SELECT first.id FROM unnest(@ids::bigint[]) AS asked(version_set)
  CROSS JOIN LATERAL (SELECT n.id FROM cd_curated_version_sets n
    WHERE n.organization_id = @organization_id AND n.version_set_id = asked.version_set ORDER BY n.id LIMIT 20) first
))
ORDER BY c.version_set_id, c.id;

-- name: CuratedBefore :one
-- Whether the principal has put a set together in the same words, and how many rows an application has, counted up to a bound.
SELECT EXISTS (SELECT FROM cd_curated_version_sets c WHERE c.organization_id = @organization_id AND c.version_set_id = @version_set_id
    AND c.principal_type = @principal_type AND c.principal_id = @principal_id AND c.name = @name AND c.reason = @reason) AS same,
  (SELECT count(*) FROM (SELECT FROM cd_curated_version_sets n
    WHERE n.organization_id = @organization_id AND n.application_id = @application_id LIMIT @at_most) bounded)::integer AS items;

-- name: OrganizationsWithUnrankedPublications :many
SELECT organization_id::bigint FROM cd_organizations_with_unranked_publications() AS organization_id;

-- name: VersionSetsTaken :many
-- Which of some contents there are sets of: the lists go side by side.
SELECT found.id, found.application_id, found.entries_digest, found.curated
FROM (SELECT unnest(@applications::bigint[]) AS application, unnest(@digests::text[]) AS digest) asked
CROSS JOIN LATERAL (SELECT n.id, n.application_id, n.entries_digest, n.curated FROM cd_version_sets n
    WHERE n.organization_id = @organization_id AND n.application_id = asked.application AND n.entries_digest = asked.digest LIMIT 1) found;

-- name: LastVersionSets :many
-- The set that was made last, of each application that has one.
SELECT newest.application_id, newest.name
FROM unnest(@applications::bigint[]) AS asked(application)
CROSS JOIN LATERAL (SELECT n.application_id, n.name FROM cd_version_sets n
    WHERE n.organization_id = @organization_id AND n.application_id = asked.application ORDER BY n.id DESC LIMIT 1) newest;

-- name: NewestVersionSets :many
-- The newest set of each application that has one: where it is not known, the last one that no person has put together.
SELECT * FROM cd_version_sets v
WHERE v.organization_id = @organization_id AND v.id = ANY(ARRAY(
  SELECT COALESCE(
    (SELECT n.version_set_id FROM cd_newest_version_sets n WHERE n.organization_id = @organization_id AND n.application_id = asked.application),
    (SELECT l.id FROM cd_version_sets l WHERE l.organization_id = @organization_id AND l.application_id = asked.application AND NOT l.curated ORDER BY l.id DESC LIMIT 1))
  FROM unnest(@ids::bigint[]) AS asked(application)
));

-- name: SaveNewestVersionSets :many
-- The lists go side by side. Answers the applications whose newest set is another one than before.
INSERT INTO cd_newest_version_sets AS n (organization_id, application_id, version_set_id)
SELECT @organization_id, unnest(@applications::bigint[]), unnest(@version_sets::bigint[])
ON CONFLICT ON CONSTRAINT cd_newest_version_sets_one_per_application DO UPDATE SET version_set_id = excluded.version_set_id, updated_at = now()
WHERE n.version_set_id <> excluded.version_set_id
RETURNING n.application_id;

-- name: InsertVersionSets :many
-- In the order of the lists, which is that of the identifiers. An empty trace is none.
INSERT INTO cd_version_sets (organization_id, application_id, name, entries_digest, entries_count, traceparent, curated)
SELECT @organization_id, unnest(@applications::bigint[]), unnest(@names::text[]), unnest(@digests::text[]), unnest(@counts::integer[]), NULLIF(unnest(@traces::text[]), ''), unnest(@curated::boolean[])
RETURNING id, application_id, entries_digest;

-- name: InsertVersionSetEntries :exec
INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id)
SELECT @organization_id, unnest(@version_sets::bigint[]), unnest(@versions::bigint[]), unnest(@artifact_sources::bigint[]), unnest(@services::bigint[]);

-- name: VersionsByID :many
SELECT * FROM cd_versions WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: VersionsBySource :many
SELECT * FROM cd_versions v
WHERE v.organization_id = @organization_id AND v.id = ANY(ARRAY(
  SELECT page.id FROM unnest(@ids::bigint[]) AS parent(id)
  CROSS JOIN LATERAL (SELECT n.id FROM cd_versions n
    WHERE n.organization_id = @organization_id AND n.artifact_source_id = parent.id AND n.id > @above AND n.id < @below
    ORDER BY CASE WHEN NOT @falling::boolean THEN n.id END, CASE WHEN @falling::boolean THEN n.id END DESC LIMIT @at_most) page
))
ORDER BY v.artifact_source_id, CASE WHEN NOT @falling::boolean THEN v.id END, CASE WHEN @falling::boolean THEN v.id END DESC;

-- name: CountVersionsBySource :many
SELECT artifact_source_id AS id, count(*) AS items FROM cd_versions
WHERE organization_id = @organization_id AND artifact_source_id = ANY(@ids::bigint[]) GROUP BY artifact_source_id;

-- name: VersionSetsByID :many
SELECT * FROM cd_version_sets WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: VersionSetsByApplication :many
SELECT * FROM cd_version_sets v
WHERE v.organization_id = @organization_id AND v.id = ANY(ARRAY(
  SELECT page.id FROM unnest(@ids::bigint[]) AS parent(id)
  CROSS JOIN LATERAL (SELECT n.id FROM cd_version_sets n
    WHERE n.organization_id = @organization_id AND n.application_id = parent.id AND n.id > @above AND n.id < @below
    ORDER BY CASE WHEN NOT @falling::boolean THEN n.id END, CASE WHEN @falling::boolean THEN n.id END DESC LIMIT @at_most) page
))
ORDER BY v.application_id, CASE WHEN NOT @falling::boolean THEN v.id END, CASE WHEN @falling::boolean THEN v.id END DESC;

-- name: CountVersionSetsByApplication :many
SELECT application_id AS id, count(*) AS items FROM cd_version_sets
WHERE organization_id = @organization_id AND application_id = ANY(@ids::bigint[]) GROUP BY application_id;

-- name: EntriesByVersionSet :many
SELECT version_set_id, service_id, artifact_source_id, version_id FROM cd_version_set_entries
WHERE organization_id = @organization_id AND version_set_id = ANY(@ids::bigint[]) ORDER BY version_set_id, service_id, artifact_source_id;

-- name: VersionsByDeployment :many
SELECT d.id AS deployment_id, sqlc.embed(v)
FROM cd_deployments d
JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
JOIN cd_rollouts r ON r.organization_id = e.organization_id AND r.id = e.rollout_id
JOIN cd_version_set_entries n ON n.organization_id = r.organization_id AND n.version_set_id = r.version_set_id AND n.service_id = d.service_id
JOIN cd_versions v ON v.organization_id = n.organization_id AND v.id = n.version_id
WHERE d.organization_id = @organization_id AND d.id = ANY(@ids::bigint[])
ORDER BY d.id, n.artifact_source_id;

-- name: InsertVersionChanges :exec
INSERT INTO cd_version_changes (organization_id, version_id, since, files, messages)
SELECT @organization_id, unnest(@versions::bigint[]), unnest(@since::text[]), unnest(@files::text[]), unnest(@messages::text[]);

-- name: CommitsSince :many
-- The commits of a source from a version back to the one that has a digest, which is left out; the newest one first.
WITH RECURSIVE line AS (
    SELECT v.artifact_source_id, v.digest, COALESCE(c.since, '')::text AS since, COALESCE(c.files, '')::text AS files,
        COALESCE(c.messages, '')::text AS messages, 1 AS place
    FROM cd_versions v LEFT JOIN cd_version_changes c ON c.organization_id = v.organization_id AND c.version_id = v.id
    WHERE v.organization_id = @organization_id AND v.id = @version_id
    UNION ALL
    SELECT v.artifact_source_id, v.digest, COALESCE(c.since, '')::text, COALESCE(c.files, '')::text, COALESCE(c.messages, '')::text, line.place + 1
    FROM line JOIN cd_versions v ON v.organization_id = @organization_id AND v.artifact_source_id = line.artifact_source_id AND v.digest = line.since
    LEFT JOIN cd_version_changes c ON c.organization_id = v.organization_id AND c.version_id = v.id
    WHERE line.since <> @digest::text AND line.place < @most::integer
)
SELECT digest, since, files, messages FROM line ORDER BY place;
