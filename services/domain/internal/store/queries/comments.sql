-- name: InsertForgeComment :exec
INSERT INTO cd_forge_comments (organization_id, hook_id, name, number, comment_id, author_id, author, command, digest, received_at)
VALUES (@organization_id, @hook_id, @name, @number, @comment_id, @author_id, @author, @command, @digest, @received_at)
ON CONFLICT (organization_id, name, comment_id, hook_id) DO NOTHING;

-- name: LockForgeComment :one
SELECT * FROM cd_forge_comments WHERE organization_id = @organization_id AND name = @name AND comment_id = @comment_id AND hook_id = @hook_id FOR UPDATE;

-- name: LockForgeCommentAtHooks :exec
-- One at a time of the hooks that have brought a comment begins to perform it.
SELECT pg_advisory_xact_lock(hashtextextended('forge comment ' || @name::text || ' ' || @comment_id::bigint, @organization_id::bigint));

-- name: ForgeCommentAtOtherHook :one
-- Whether another hook has brought the same comment, with the same text by the same account, for the same member; for anybody if that is 0.
SELECT EXISTS (SELECT FROM cd_forge_comments WHERE organization_id = @organization_id AND name = @name AND comment_id = @comment_id AND hook_id <> @hook_id
    AND author_id = @author_id AND digest = @digest AND begun_at IS NOT NULL AND (@member_id::bigint = 0 OR member_id = @member_id)
    AND outcome IN ('', 'answered', 'refused', 'linked', 'unlinked'));

-- name: BeginForgeComment :exec
UPDATE cd_forge_comments SET begun_at = @at, member_id = sqlc.narg(member_id) WHERE organization_id = @organization_id AND id = @id;

-- name: SettleForgeComment :execrows
UPDATE cd_forge_comments SET outcome = @outcome, answer = @answer, member_id = sqlc.narg(member_id)
WHERE organization_id = @organization_id AND id = @id AND outcome = '';

-- name: TooManyForgeComments :one
-- Whether as many commands came since an instant as are taken: of an account at a server, of a hook, or on a pull request. Each count ends
-- at its limit.
SELECT ((SELECT count(*) FROM (SELECT FROM cd_forge_comments c
            WHERE c.organization_id = @organization_id AND c.author_id = @author_id AND c.received_at >= @since
              AND split_part(c.name, '/', 1) = @host::text LIMIT @most_of_author::bigint) x) >= @most_of_author::bigint
    OR (SELECT count(*) FROM (SELECT FROM cd_forge_comments c
            WHERE c.organization_id = @organization_id AND c.hook_id = @hook_id AND c.received_at >= @since
            LIMIT @most_of_hook::bigint) x) >= @most_of_hook::bigint
    OR (SELECT count(*) FROM (SELECT FROM cd_forge_comments c
            WHERE c.organization_id = @organization_id AND c.hook_id = @hook_id AND c.received_at >= @since AND c.name = @name AND c.number = @number
            LIMIT @most_of_pull::bigint) x) >= @most_of_pull::bigint)::boolean;

-- name: ForgeAnswers :many
-- The latest answers on a pull request.
SELECT * FROM cd_forge_comments WHERE organization_id = @organization_id AND name = @name AND number = @number AND answer <> ''
ORDER BY id DESC LIMIT @most;

-- name: ForgetForgeComments :one
SELECT cd_forget_forge_comments(@before::timestamptz, @most::integer)::bigint;

-- name: RolloutsOfPage :many
-- The rollouts with a deployment that is a page elsewhere, given without its scheme in lower case; those that are not over, and the newest,
-- come first.
SELECT r.id FROM cd_rollouts r
WHERE r.organization_id = @organization_id AND r.id IN (
    SELECT e.rollout_id FROM cd_deployment_links l
    JOIN cd_deployments d ON d.organization_id = l.organization_id AND d.id = l.deployment_id
    JOIN cd_rollout_environments e ON e.organization_id = d.organization_id AND e.id = d.rollout_environment_id
    WHERE l.organization_id = @organization_id AND l.url <> '' AND md5(lower(regexp_replace(l.url, '^https?://', ''))) = md5(@page::text)
      AND lower(regexp_replace(l.url, '^https?://', '')) = @page::text)
ORDER BY r.finished_at IS NOT NULL, r.id DESC LIMIT @most;

-- name: PutForgeCode :exec
INSERT INTO cd_forge_codes (organization_id, hook_id, member_id, account, permissions, digest, expires_at)
VALUES (@organization_id, @hook_id, @member_id, @account, @permissions, @digest, @expires_at)
ON CONFLICT (organization_id, hook_id, member_id) DO UPDATE SET account = EXCLUDED.account, permissions = EXCLUDED.permissions,
    digest = EXCLUDED.digest, expires_at = EXCLUDED.expires_at, used_at = NULL;

-- name: LockForgeCode :one
SELECT * FROM cd_forge_codes WHERE organization_id = @organization_id AND digest = @digest FOR UPDATE;

-- name: UseForgeCode :exec
UPDATE cd_forge_codes SET used_at = @at WHERE organization_id = @organization_id AND id = @id;

-- name: MergeForgeAnswer :execrows
-- Notes that there is an answer to write. A pull request that is not known gets a row without a plan. Those that wait because of a comment
-- are at most a part of all that may wait. The comment with answers is left alone for a while after it was written.
INSERT INTO cd_forge_pulls AS p (organization_id, hook_id, name, number, repository, host, asked_by, due_at, revision, answers)
SELECT @organization_id, @hook_id, @name, @number, @repository, @host, '{}', @due_at, 0, 1
WHERE EXISTS (SELECT FROM cd_forge_pulls o WHERE o.organization_id = @organization_id AND o.name = @name AND o.number = @number
        AND o.state IN ('pending', 'sending'))
   OR (SELECT count(*) FROM (SELECT FROM cd_forge_pulls o WHERE o.organization_id = @organization_id AND o.state IN ('pending', 'sending')
            AND (o.asked_by <> '{}' OR o.answers > o.answers_written AND o.revision = o.begun_revision) LIMIT @most_asked::bigint) x) < @most_asked::bigint
        AND (SELECT count(*) FROM (SELECT FROM cd_forge_pulls o WHERE o.organization_id = @organization_id AND o.state IN ('pending', 'sending')
            LIMIT @most::bigint) x) < @most::bigint
ON CONFLICT (organization_id, name, number) DO UPDATE SET answers = p.answers + 1, repository = EXCLUDED.repository,
    due_at = CASE WHEN p.state = 'sending' OR p.state = 'pending' AND p.attempts > 0 THEN p.due_at
        ELSE GREATEST(EXCLUDED.due_at, CASE WHEN p.step = 'answer' AND p.answers_begun > 0
            THEN COALESCE(p.sent_at, 'epoch') + make_interval(secs => @pause_seconds::double precision) END) END,
    attempts = CASE WHEN p.state IN ('pending', 'sending') THEN p.attempts ELSE 0 END,
    state = CASE WHEN p.state = 'sending' THEN p.state ELSE 'pending' END;
