-- name: EnsureMember :exec
-- The owner whose token is configured; the number is given by hand, so that journals always name the same one.
INSERT INTO cd_members (organization_id, id, name, kind, role) VALUES (@organization_id, @id, @name, 'user', 'owner') ON CONFLICT (organization_id, id) DO NOTHING;

-- name: SkipMemberID :exec
-- The counter gives out 1 first; that one was given by hand.
SELECT nextval(pg_get_serial_sequence('cd_members', 'id'));

-- name: InsertMember :one
INSERT INTO cd_members (organization_id, name, kind, role) VALUES (@organization_id, @name, @kind, @role) RETURNING *;

-- name: LockMembers :many
-- All owners, so that two who remove each other at the same moment do not leave an organization without one.
SELECT * FROM cd_members WHERE organization_id = @organization_id AND removed_at IS NULL AND (role = 'owner' OR id = @id) ORDER BY id FOR NO KEY UPDATE;

-- name: SaveMember :execrows
UPDATE cd_members SET role = @role, removed_at = @removed_at WHERE organization_id = @organization_id AND id = @id;

-- name: ListMembers :many
SELECT * FROM cd_members
WHERE organization_id = @organization_id AND id > @above AND id < @below
  AND name > @above_name AND (@below_name::text = '' OR name < @below_name::text) AND removed_at IS NULL
ORDER BY CASE WHEN @by_name::boolean AND NOT @falling::boolean THEN name END, CASE WHEN @by_name::boolean AND @falling::boolean THEN name END DESC,
         CASE WHEN NOT @by_name::boolean AND NOT @falling::boolean THEN id END, CASE WHEN NOT @by_name::boolean AND @falling::boolean THEN id END DESC
LIMIT @at_most;

-- name: CountMembers :one
SELECT count(*) FROM cd_members
WHERE organization_id = @organization_id AND removed_at IS NULL;

-- name: MembersByID :many
SELECT * FROM cd_members WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: MemberByName :one
SELECT * FROM cd_members WHERE organization_id = @organization_id AND name = @name AND removed_at IS NULL;

-- name: InsertGroup :one
INSERT INTO cd_groups (organization_id, name) VALUES (@organization_id, @name) RETURNING *;

-- name: LockGroup :one
SELECT * FROM cd_groups WHERE organization_id = @organization_id AND id = @id FOR NO KEY UPDATE;

-- name: GroupByName :one
SELECT * FROM cd_groups WHERE organization_id = @organization_id AND name = @name;

-- name: ListGroups :many
SELECT * FROM cd_groups
WHERE organization_id = @organization_id AND id > @above AND id < @below
  AND name > @above_name AND (@below_name::text = '' OR name < @below_name::text)
ORDER BY CASE WHEN @by_name::boolean AND NOT @falling::boolean THEN name END, CASE WHEN @by_name::boolean AND @falling::boolean THEN name END DESC,
         CASE WHEN NOT @by_name::boolean AND NOT @falling::boolean THEN id END, CASE WHEN NOT @by_name::boolean AND @falling::boolean THEN id END DESC
LIMIT @at_most;

-- name: CountGroups :one
SELECT count(*) FROM cd_groups
WHERE organization_id = @organization_id;

-- name: GroupsByID :many
SELECT * FROM cd_groups WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: LeaveGroup :exec
UPDATE cd_group_members SET removed_at = @at::timestamptz
WHERE organization_id = @organization_id AND group_id = @group_id AND removed_at IS NULL AND NOT (member_id = ANY(@members::bigint[]));

-- name: JoinGroup :exec
INSERT INTO cd_group_members (organization_id, group_id, member_id)
SELECT @organization_id::bigint, @group_id::bigint, m.id FROM unnest(@members::bigint[]) AS m(id)
ON CONFLICT (organization_id, group_id, member_id) WHERE removed_at IS NULL DO NOTHING;

-- name: MembersByGroup :many
SELECT g.group_id, sqlc.embed(m) FROM cd_group_members g
JOIN cd_members m ON m.organization_id = g.organization_id AND m.id = g.member_id
WHERE g.organization_id = @organization_id AND g.group_id = ANY(@ids::bigint[]) AND g.removed_at IS NULL AND m.removed_at IS NULL
ORDER BY g.group_id, m.name;

-- name: GroupsByMember :many
SELECT g.member_id, sqlc.embed(c) FROM cd_group_members g
JOIN cd_groups c ON c.organization_id = g.organization_id AND c.id = g.group_id
WHERE g.organization_id = @organization_id AND g.member_id = ANY(@ids::bigint[]) AND g.removed_at IS NULL
ORDER BY g.member_id, c.name;

-- name: InsertToken :one
INSERT INTO cd_access_tokens (organization_id, member_id, parent_id, name, digest, scopes, expires_at, sign_in, provider_session, check_keys)
VALUES (@organization_id, @member_id, @parent_id, @name, @digest, @scopes, @expires_at, @sign_in, @provider_session, @check_keys) RETURNING *;

-- name: TokensByID :many
SELECT * FROM cd_access_tokens WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]) AND parent_id IS NULL;

-- name: TokensByMember :many
-- The latest hundred of each: older ones are not in use.
SELECT sqlc.embed(v)
FROM unnest(@ids::bigint[]) AS parent(id)
CROSS JOIN LATERAL (SELECT n.id FROM cd_access_tokens n
    WHERE n.organization_id = @organization_id AND n.member_id = parent.id AND n.parent_id IS NULL ORDER BY n.id DESC LIMIT 100) page
JOIN cd_access_tokens v ON v.organization_id = @organization_id AND v.id = page.id
ORDER BY v.member_id, v.id DESC;

-- name: RevokeTokens :execrows
-- A token, with the sessions that it began.
UPDATE cd_access_tokens SET revoked_at = @at::timestamptz
WHERE organization_id = @organization_id AND (id = @id OR parent_id = @id) AND revoked_at IS NULL;

-- name: RevokeSignInOf :execrows
-- The sign-in that a session began with, if it was one; a token that was shown stays valid.
UPDATE cd_access_tokens p SET revoked_at = @at::timestamptz
FROM cd_access_tokens s
WHERE s.organization_id = @organization_id AND s.id = @session
  AND p.organization_id = s.organization_id AND p.id = s.parent_id AND p.sign_in AND p.revoked_at IS NULL;

-- name: RevokeSignIns :execrows
-- The sign-ins of a member, or those of one session at the identity provider; their sessions end with them.
UPDATE cd_access_tokens t SET revoked_at = @at::timestamptz
FROM cd_members m
WHERE t.organization_id = @organization_id AND t.sign_in AND t.revoked_at IS NULL AND t.expires_at > @at
  AND m.organization_id = t.organization_id AND m.id = t.member_id AND m.issuer = @issuer::text
  AND (@subject::text = '' OR m.subject = @subject::text)
  AND (@provider_session::text = '' OR t.provider_session = @provider_session::text OR t.provider_session IS NULL AND @subject::text <> '');

-- name: OrganizationsOfIdentity :many
-- Across organizations, on purpose: a person may belong to several.
SELECT f.id::bigint AS id, f.name::text AS name, f.created_at::timestamptz AS created_at FROM cd_organizations_of_identity(@issuer::text, @subject::text) AS f;

-- name: OrganizationsWithMember :many
-- Across organizations, on purpose: a name is added before who has it signs in.
SELECT organization_id::bigint FROM cd_organizations_with_member(@name::text) AS organization_id;

-- name: OrganizationsWithProviderSession :many
-- Across organizations, on purpose: an identity provider ends its session wherever it led to.
SELECT organization_id::bigint FROM cd_organizations_with_provider_session(@provider_session::text) AS organization_id;

-- name: IdentityOfMember :one
SELECT COALESCE(issuer, '')::text AS issuer, COALESCE(subject, '')::text AS subject FROM cd_members WHERE organization_id = @organization_id AND id = @id;

-- name: TokenByDigest :one
-- A token that is good, and whose it is. A session ends with the token that began it.
SELECT sqlc.embed(t), sqlc.embed(m) FROM cd_access_tokens t
JOIN cd_members m ON m.organization_id = t.organization_id AND m.id = t.member_id
LEFT JOIN cd_access_tokens p ON p.organization_id = t.organization_id AND p.id = t.parent_id
WHERE t.organization_id = @organization_id AND t.digest = @digest AND t.revoked_at IS NULL AND t.expires_at > @at AND m.removed_at IS NULL
  AND (t.parent_id IS NULL OR p.revoked_at IS NULL AND p.expires_at > @at);

-- name: TouchToken :exec
-- To the minute: a row that is written with every request would be all that the database does.
UPDATE cd_access_tokens SET last_used_at = @at::timestamptz
WHERE organization_id = @organization_id AND id = @id AND (last_used_at IS NULL OR last_used_at < @unless_since::timestamptz);

-- name: OrganizationsWithToken :many
-- Across organizations, on purpose: the token decides which one a caller asks for.
SELECT organization_id::bigint FROM cd_organizations_with_token(@digest) AS organization_id;

-- name: InsertRequest :execrows
INSERT INTO cd_requests (organization_id, principal_type, principal_id, key, fingerprint)
VALUES (@organization_id, @principal_type, @principal_id, @key, @fingerprint)
ON CONFLICT (organization_id, principal_type, principal_id, key) DO NOTHING;

-- name: GetRequest :one
SELECT fingerprint, answer FROM cd_requests
WHERE organization_id = @organization_id AND principal_type = @principal_type AND principal_id = @principal_id AND key = @key;

-- name: AnswerRequest :exec
UPDATE cd_requests SET answer = @answer
WHERE organization_id = @organization_id AND principal_type = @principal_type AND principal_id = @principal_id AND key = @key AND answer IS NULL;

-- name: MemberByIdentity :one
-- Members come before former ones.
SELECT * FROM cd_members WHERE organization_id = @organization_id AND issuer = @issuer::text AND subject = @subject::text
ORDER BY removed_at IS NOT NULL, id DESC LIMIT 1;

-- name: SetMemberIdentity :execrows
UPDATE cd_members SET issuer = @issuer::text, subject = @subject::text
WHERE organization_id = @organization_id AND id = @id AND removed_at IS NULL AND issuer IS NULL;

-- name: HasSignedIn :one
SELECT (EXISTS (SELECT FROM cd_access_tokens t WHERE t.organization_id = @organization_id AND t.member_id = @member_id)
    OR EXISTS (SELECT FROM cd_members m WHERE m.organization_id = @organization_id AND m.id = @member_id AND m.issuer IS NOT NULL))::boolean;

-- name: PeopleWithRoles :many
SELECT id FROM cd_members
WHERE organization_id = @organization_id AND removed_at IS NULL AND kind = 'user' AND role = ANY(@roles::text[]) ORDER BY id LIMIT @at_most;

-- name: GrantsByMember :many
-- Those in force: the member's own, and those of the groups that the member belongs to.
SELECT parent.id::bigint AS holder_id, sqlc.embed(g)
FROM unnest(@ids::bigint[]) AS parent(id)
CROSS JOIN LATERAL (
    SELECT own.id FROM cd_grants own
    WHERE own.organization_id = @organization_id AND own.member_id = parent.id AND own.revoked_at IS NULL
    UNION ALL
    SELECT through.id FROM cd_group_members belongs
    JOIN cd_grants through ON through.organization_id = belongs.organization_id AND through.group_id = belongs.group_id AND through.revoked_at IS NULL
    WHERE belongs.organization_id = @organization_id AND belongs.member_id = parent.id AND belongs.removed_at IS NULL
) held
JOIN cd_grants g ON g.organization_id = @organization_id AND g.id = held.id
ORDER BY parent.id, g.id;

-- name: GrantsByGroup :many
SELECT * FROM cd_grants WHERE organization_id = @organization_id AND group_id = ANY(@ids::bigint[]) AND revoked_at IS NULL ORDER BY id;

-- name: GrantsByID :many
SELECT * FROM cd_grants WHERE organization_id = @organization_id AND id = ANY(@ids::bigint[]);

-- name: InsertGrant :one
INSERT INTO cd_grants (organization_id, member_id, group_id, permissions, applications, environments, tiers)
VALUES (@organization_id, @member_id, @group_id, @permissions, @applications, @environments, @tiers)
RETURNING *;

-- name: RevokeGrant :execrows
UPDATE cd_grants SET revoked_at = @at::timestamptz WHERE organization_id = @organization_id AND id = @id AND revoked_at IS NULL;

-- name: PeopleWithGrants :many
-- People who have a permission by a grant of their own or of a group that they belong to, whatever limits it.
SELECT m.id FROM cd_members m
WHERE m.organization_id = @organization_id AND m.removed_at IS NULL AND m.kind = 'user' AND (
    EXISTS (SELECT FROM cd_grants g WHERE g.organization_id = m.organization_id AND g.member_id = m.id AND g.revoked_at IS NULL
        AND g.permissions & @permission::smallint <> 0)
    OR EXISTS (SELECT FROM cd_group_members b JOIN cd_grants g ON g.organization_id = b.organization_id AND g.group_id = b.group_id
        WHERE b.organization_id = m.organization_id AND b.member_id = m.id AND b.removed_at IS NULL AND g.revoked_at IS NULL
          AND g.permissions & @permission::smallint <> 0))
ORDER BY m.id LIMIT @at_most;
