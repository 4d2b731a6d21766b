-- An organization of the size that the domain promises to answer quickly for, made by the owner of its tables with neither
-- triggers nor foreign keys: bench.applications, bench.environments, bench.rollouts (each in two environments, with two
-- services and 22 rows of journal) and bench.active, the newest rollouts, which are in progress; bench.asking of them wait
-- for an approval.
SET session_replication_role = replica;

INSERT INTO cd_organizations (id, name) OVERRIDING SYSTEM VALUE VALUES (1, 'default') ON CONFLICT DO NOTHING;
INSERT INTO cd_applications (id, organization_id, name, description)
OVERRIDING SYSTEM VALUE SELECT a, 1, 'application-' || lpad(a::text, 5, '0'), 'one of many' FROM generate_series(1, current_setting('bench.applications')::int) a;
INSERT INTO cd_services (id, organization_id, application_id, name)
OVERRIDING SYSTEM VALUE SELECT 2 * (a - 1) + s, 1, a, CASE s WHEN 1 THEN 'api' ELSE 'web' END
FROM generate_series(1, current_setting('bench.applications')::int) a, generate_series(1, 2) s;
INSERT INTO cd_artifact_sources (id, organization_id, service_id, source_ref, source_config, match_key)
OVERRIDING SYSTEM VALUE SELECT s, 1, s, 'oci-image@1', jsonb_build_object('image', 'r.example.com/' || s), 'oci-image:r.example.com/' || s
FROM generate_series(1, 2 * current_setting('bench.applications')::int) s;
ALTER TABLE cd_versions ENABLE ALWAYS TRIGGER cd_versions_record_publication;
INSERT INTO cd_versions (id, organization_id, artifact_source_id, name, digest, reference, published_at)
OVERRIDING SYSTEM VALUE SELECT 2 * (s - 1) + v, 1, s, '1.' || v, 'sha256:' || md5(s || '/' || v) || md5(v || '/' || s), 'r.example.com/' || s, now() - interval '1 day' / v
FROM generate_series(1, 2 * current_setting('bench.applications')::int) s, generate_series(1, 2) v;
-- The newest version of a source is chosen from what was published: without this no artifact would complete a set.
ALTER TABLE cd_versions ENABLE TRIGGER cd_versions_record_publication;
UPDATE cd_publications SET rank = '';
INSERT INTO cd_version_sets (id, organization_id, application_id, name, entries_digest, entries_count)
OVERRIDING SYSTEM VALUE SELECT 2 * (a - 1) + v, 1, a, 'set-' || v, a || '/' || v, 2
FROM generate_series(1, current_setting('bench.applications')::int) a, generate_series(1, 2) v;
INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id)
SELECT 1, 2 * (a - 1) + v, 2 * (2 * (a - 1) + s - 1) + v, 2 * (a - 1) + s, 2 * (a - 1) + s
FROM generate_series(1, current_setting('bench.applications')::int) a, generate_series(1, 2) v, generate_series(1, 2) s;

INSERT INTO cd_environments (id, organization_id, name, tier, readiness)
OVERRIDING SYSTEM VALUE SELECT e, 1, 'environment-' || lpad(e::text, 2, '0'), (ARRAY['development', 'qa', 'staging', 'production'])[1 + e % 4], 'ready'
FROM generate_series(1, current_setting('bench.environments')::int) e;
INSERT INTO cd_environment_driver_bindings (id, organization_id, environment_id, version, driver_ref, driver_config)
OVERRIDING SYSTEM VALUE SELECT e, 1, e, 1, 'argo-rollouts@1', '{"cluster_agent_id": 1}' FROM generate_series(1, current_setting('bench.environments')::int) e;
INSERT INTO cd_driver_bundles (organization_id, digest, driver_ref, content) VALUES (1, 'sha256:driver', 'argo-rollouts@1', 'x');
-- Every application goes to ten environments; its rollouts, to the first two of them.
INSERT INTO cd_application_environments (organization_id, application_id, environment_id, readiness, setup_wanted)
SELECT 1, a, 1 + (a + k) % current_setting('bench.environments')::int, 'ready', false
FROM generate_series(1, current_setting('bench.applications')::int) a, generate_series(0, 9) k;
INSERT INTO cd_application_flow_definitions (id, organization_id, application_id, version, definition)
OVERRIDING SYSTEM VALUE SELECT a, 1, a, 1, json_build_object('steps', (
    SELECT json_agg(json_build_object('type', 'deploy', 'environment', 'environment-' || lpad((1 + (a + k) % current_setting('bench.environments')::int)::text, 2, '0'),
        'gates', json_build_array(json_build_object('weight', 25, 'soak_duration', 600)), 'config', json_build_object())) FROM generate_series(0, 1) k))::text
FROM generate_series(1, current_setting('bench.applications')::int) a;

-- Rollout r is of application 1 + r % applications, so an application's are spread over all of time; the last ones are active.
CREATE TEMPORARY TABLE made AS
SELECT r, 1 + r % current_setting('bench.applications')::int AS a, r > current_setting('bench.rollouts')::int - current_setting('bench.active')::int AS active,
       r > current_setting('bench.rollouts')::int - current_setting('bench.asking')::int AS asking,
       now() - interval '1 minute' * (current_setting('bench.rollouts')::int - r) AS at
FROM generate_series(1, current_setting('bench.rollouts')::int) r;
INSERT INTO cd_rollouts (id, organization_id, application_id, version_set_id, flow_definition_id, workflow_ref, asked, state, started_at, finished_at, created_at)
OVERRIDING SYSTEM VALUE SELECT r, 1, a, 2 * (a - 1) + 1 + r % 2, a, 'rollout-' || r, asking, CASE WHEN active THEN 'in_progress' WHEN r % 20 = 0 THEN 'failed' ELSE 'completed' END, at, CASE WHEN NOT active THEN at END, at FROM made;
INSERT INTO cd_rollout_environments (id, organization_id, rollout_id, environment_id, position, driver_binding_id, driver_digest, state, started_at, finished_at, created_at)
OVERRIDING SYSTEM VALUE SELECT 2 * (r - 1) + k, 1, r, 1 + (a + k - 1) % current_setting('bench.environments')::int, k,
       1 + (a + k - 1) % current_setting('bench.environments')::int, 'sha256:driver',
       CASE WHEN active THEN CASE k WHEN 1 THEN 'in_progress' ELSE 'pending' END WHEN r % 20 = 0 THEN 'failed' ELSE 'completed' END, CASE WHEN NOT active OR k = 1 THEN at END, CASE WHEN NOT active THEN at END, at
FROM made, generate_series(1, 2) k;
INSERT INTO cd_deployments (id, organization_id, rollout_environment_id, service_id, state, started_at, finished_at, created_at)
OVERRIDING SYSTEM VALUE SELECT 4 * (r - 1) + 2 * (k - 1) + s, 1, 2 * (r - 1) + k, 2 * (a - 1) + s,
       CASE WHEN active THEN CASE k WHEN 1 THEN 'deploying' ELSE 'pending' END WHEN r % 20 = 0 THEN 'failed' ELSE 'healthy' END, CASE WHEN NOT active OR k = 1 THEN at END, CASE WHEN NOT active THEN at END, at
FROM made, generate_series(1, 2) k, generate_series(1, 2) s;

-- Every service was seen in the first three of its environments; one in a hundred is degraded.
INSERT INTO cd_service_environment_healths (organization_id, service_id, environment_id, health, reason, since, observed_at)
SELECT 1, 2 * (a - 1) + s, 1 + (a + k) % current_setting('bench.environments')::int, CASE WHEN (a + s) % 100 = 0 THEN 'degraded' ELSE 'healthy' END, '', now(), now()
FROM generate_series(1, current_setting('bench.applications')::int) a, generate_series(0, 2) k, generate_series(1, 2) s;

-- What triggers keep otherwise: where each application stands in each environment, and the ends of names.
INSERT INTO cd_cells (organization_id, application_id, environment_id, application_name, shown, worst, latest_rollout_environment_id, latest_state, live_rollout_environment_id, live_version_set_id, live_since)
SELECT 1, p.application_id, p.environment_id, a.name, true, COALESCE(h.worst, ''), e.id, e.state, l.id, l.version_set_id, l.finished_at
FROM cd_application_environments p
JOIN cd_applications a ON a.id = p.application_id
LEFT JOIN (
    SELECT s.application_id, w.environment_id, CASE WHEN bool_or(w.health = 'degraded') THEN 'degraded' ELSE 'healthy' END AS worst
    FROM cd_service_environment_healths w JOIN cd_services s ON s.id = w.service_id GROUP BY s.application_id, w.environment_id
) h ON h.application_id = p.application_id AND h.environment_id = p.environment_id
LEFT JOIN (
    SELECT DISTINCT ON (r.application_id, n.environment_id) r.application_id, n.environment_id, n.id, n.state
    FROM cd_rollout_environments n JOIN cd_rollouts r ON r.id = n.rollout_id ORDER BY r.application_id, n.environment_id, n.id DESC
) e ON e.application_id = p.application_id AND e.environment_id = p.environment_id
LEFT JOIN (
    SELECT DISTINCT ON (r.application_id, n.environment_id) r.application_id, n.environment_id, n.id, r.version_set_id, n.finished_at
    FROM cd_rollout_environments n JOIN cd_rollouts r ON r.id = n.rollout_id WHERE n.state = 'completed' ORDER BY r.application_id, n.environment_id, n.id DESC
) l ON l.application_id = p.application_id AND l.environment_id = p.environment_id;
INSERT INTO cd_application_name_ends (organization_id, application_id, name_end)
SELECT 1, id, substr(name, n) FROM cd_applications, generate_series(1, length(name)) n;

-- The journal, 22 rows for each rollout in the order in which they would have been written.
INSERT INTO cd_rollout_transitions (id, organization_id, rollout_id, from_state, to_state, event, gate_id, principal_type, principal_id, reason, created_at)
SELECT 22 * (r - 1) + n, 1, r, f, CASE WHEN n = 22 AND r % 20 = 0 THEN 'failed' ELSE t END,
       CASE WHEN n = 3 AND asking THEN 'request_approval' WHEN n = 22 AND r % 20 = 0 THEN 'fail' ELSE event END, CASE WHEN n = 3 THEN 'environment/25' END, who, CASE WHEN who = 'user' THEN 1 END, 'because', at
FROM made, (VALUES (1, NULL, 'pending', 'create', 'user'), (2, 'pending', 'in_progress', 'start', 'system'), (3, 'in_progress', 'in_progress', 'reach_gate', 'system'),
    (22, 'in_progress', 'completed', 'complete', 'system')) AS row (n, f, t, event, who)
WHERE n < 22 OR NOT active
ORDER BY 1;
INSERT INTO cd_rollout_environment_transitions (id, organization_id, rollout_environment_id, from_state, to_state, event, principal_type, triggered_by, created_at)
SELECT 22 * (r - 1) + 3 + 3 * (k - 1) + n, 1, 2 * (r - 1) + k, f, CASE WHEN n = 3 AND r % 20 = 0 THEN 'failed' ELSE t END,
       CASE WHEN n = 3 AND r % 20 = 0 THEN 'fail' ELSE event END, 'system', 'com.gitlab.cd.example ' || r, at
FROM made, generate_series(1, 2) k, (VALUES (1, NULL, 'pending', 'create'), (2, 'pending', 'in_progress', 'start'), (3, 'in_progress', 'completed', 'complete')) AS row (n, f, t, event)
WHERE NOT active OR n = 1 OR n = 2 AND k = 1
ORDER BY 1;
INSERT INTO cd_deployment_transitions (id, organization_id, deployment_id, from_state, to_state, event, principal_type, triggered_by, created_at)
SELECT 22 * (r - 1) + 9 + 6 * (k - 1) + 3 * (s - 1) + n, 1, 4 * (r - 1) + 2 * (k - 1) + s, f, CASE WHEN n = 3 AND r % 20 = 0 THEN 'failed' ELSE t END,
       CASE WHEN n = 3 AND r % 20 = 0 THEN 'fail' ELSE event END, 'system', 'com.gitlab.cd.example ' || r, at
FROM made, generate_series(1, 2) k, generate_series(1, 2) s, (VALUES (1, NULL, 'pending', 'create'), (2, 'pending', 'deploying', 'start'), (3, 'deploying', 'healthy', 'complete')) AS row (n, f, t, event)
WHERE NOT active OR n = 1 OR n = 2 AND k = 1
ORDER BY 1;
SELECT setval('cd_journal_positions', 22 * current_setting('bench.rollouts')::bigint + 1);
DROP TABLE made;
-- Numbers were given by hand, so the tables' own counters have not moved.
DO $$
DECLARE
    t record;
    last bigint;
BEGIN
    FOR t IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'id' AND a.attidentity <> ''
             WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' LOOP
        EXECUTE format('SELECT COALESCE(max(id), 0) FROM %I', t.relname) INTO last;
        PERFORM setval(pg_get_serial_sequence(t.relname, 'id'), last + 1);
    END LOOP;
END $$;
SET session_replication_role = origin;
