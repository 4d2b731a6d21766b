-- What is as large as anybody has, beside the organization of tools/bench/domain/seed.sql: a rollout of 200 services that moves through
-- three environments and has more than two thousand rows of journal (900001), and one of two services through thirty (900002). Names
-- are as long as names may be; reasons are in a script that is written from right to left.
CREATE TEMPORARY TABLE giant AS SELECT * FROM (VALUES
    (900001, rpad('payments-and-settlement-of-everything-that-is-sold-anywhere-', 63, 'x'), 200, 3),
    (900002, 'goes-everywhere', 2, 30)) AS g (a, name, services, environments);
INSERT INTO cd_applications (id, organization_id, name, description) OVERRIDING SYSTEM VALUE SELECT a, 1, name, 'מערכת התשלומים של החנות' FROM giant;

-- What triggers keep from here on is written out.
SET session_replication_role = replica;
CREATE TEMPORARY TABLE serving AS
SELECT a, a * 1000 + s AS id, CASE WHEN a = 900001 THEN rpad('service-' || lpad(s::text, 3, '0') || '-of-the-payments-and-settlement-', 63, 'y') ELSE 'service-' || s END AS name
FROM giant, generate_series(1, services) s;
INSERT INTO cd_services (id, organization_id, application_id, name) OVERRIDING SYSTEM VALUE SELECT id, 1, a, name FROM serving;
INSERT INTO cd_artifact_sources (id, organization_id, service_id, source_ref, source_config, match_key)
OVERRIDING SYSTEM VALUE SELECT id, 1, id, 'oci-image@1', jsonb_build_object('image', 'registry.example.com/payments/' || name), 'oci-image:giant/' || id FROM serving;
INSERT INTO cd_versions (id, organization_id, artifact_source_id, name, digest, reference, published_at)
OVERRIDING SYSTEM VALUE SELECT id, 1, id, '2026.11.22-build.48151623-g0123456789ab', 'sha256:' || md5(name) || md5(name), 'registry.example.com/payments/' || name, now() FROM serving;
INSERT INTO cd_version_sets (id, organization_id, application_id, name, entries_digest, entries_count)
OVERRIDING SYSTEM VALUE SELECT a, 1, a, 'set-1', a::text, services FROM giant;
INSERT INTO cd_version_set_entries (organization_id, version_set_id, version_id, artifact_source_id, service_id) SELECT 1, a, id, id, id FROM serving;

INSERT INTO cd_environments (id, organization_id, name, tier, readiness)
OVERRIDING SYSTEM VALUE SELECT 900000 + e, 1, rpad('region-' || lpad(e::text, 2, '0') || '-of-the-north-western-continent-', 63, 'z'), 'production', 'ready' FROM generate_series(1, 30) e;
INSERT INTO cd_environment_driver_bindings (id, organization_id, environment_id, version, driver_ref, driver_config)
OVERRIDING SYSTEM VALUE SELECT 10 * (900000 + e) + v, 1, 900000 + e, v, 'argo-rollouts@1', jsonb_build_object('cluster_agent_id', v) FROM generate_series(1, 30) e, generate_series(1, 3) v;
INSERT INTO cd_application_environments (organization_id, application_id, environment_id, readiness, setup_wanted)
SELECT 1, a, 900000 + e, 'ready', false FROM giant, generate_series(1, environments) e;
INSERT INTO cd_application_flow_definitions (id, organization_id, application_id, version, definition)
OVERRIDING SYSTEM VALUE SELECT a, 1, a, 1, json_build_object('steps', (
    SELECT json_agg(json_build_object('type', 'deploy', 'environment', (SELECT name FROM cd_environments WHERE id = 900000 + e),
        'gates', json_build_array(json_build_object('weight', 10), json_build_object('weight', 25), json_build_object('weight', 50), json_build_object('weight', 100)), 'config', json_build_object()))
    FROM generate_series(1, environments) e))::text FROM giant;

INSERT INTO cd_rollouts (id, organization_id, application_id, version_set_id, flow_definition_id, workflow_ref, state, started_at)
OVERRIDING SYSTEM VALUE SELECT a, 1, a, a, a, 'rollout-' || a, 'in_progress', now() FROM giant;
INSERT INTO cd_rollout_environments (id, organization_id, rollout_id, environment_id, position, driver_binding_id, driver_digest, state, started_at, finished_at)
OVERRIDING SYSTEM VALUE SELECT 100 * a + e, 1, a, 900000 + e, e, 10 * (900000 + e) + 3, 'sha256:driver', CASE e WHEN 1 THEN 'completed' WHEN 2 THEN 'in_progress' ELSE 'pending' END,
       CASE WHEN e < 3 THEN now() - interval '10 minutes' END, CASE WHEN e = 1 THEN now() END FROM giant, generate_series(1, environments) e;
INSERT INTO cd_deployments (id, organization_id, rollout_environment_id, service_id, state, started_at, finished_at)
OVERRIDING SYSTEM VALUE SELECT e * 1000000000::bigint + s.id, 1, 100 * a + e, s.id, CASE e WHEN 1 THEN 'healthy' WHEN 2 THEN 'deploying' ELSE 'pending' END,
       CASE WHEN e < 3 THEN now() - interval '10 minutes' END, CASE WHEN e = 1 THEN now() END FROM giant JOIN serving s USING (a), generate_series(1, environments) e;
INSERT INTO cd_cells (organization_id, application_id, environment_id, application_name, shown, latest_rollout_environment_id, latest_state, live_rollout_environment_id, live_version_set_id, live_since)
SELECT 1, a, 900000 + e, name, true, 100 * a + e, CASE e WHEN 1 THEN 'completed' WHEN 2 THEN 'in_progress' ELSE 'pending' END, CASE WHEN e = 1 THEN 100 * a + e END, CASE WHEN e = 1 THEN a END, CASE WHEN e = 1 THEN now() END
FROM giant, generate_series(1, environments) e;

INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type, principal_id, reason)
SELECT 1, a, NULL, 'pending', 'create', 'user', 1, 'הגרסה החדשה של התשלומים' FROM giant;
INSERT INTO cd_rollout_transitions (organization_id, rollout_id, from_state, to_state, event, principal_type) SELECT 1, a, 'pending', 'in_progress', 'start', 'system' FROM giant;
-- The first environment is done; in the second, the first half of the services waits at 10 %.
INSERT INTO cd_deployment_transitions (organization_id, deployment_id, from_state, to_state, event, gate_id, principal_type)
SELECT 1, e * 1000000000::bigint + s.id, f, t, event, CASE WHEN event LIKE '%\_gate' THEN (SELECT name FROM cd_environments WHERE id = 900000 + e) || '/' || weight END, 'system'
FROM serving s, generate_series(1, 2) e,
     (VALUES (1, NULL, 'pending', 'create', 0), (2, 'pending', 'deploying', 'start', 0), (3, 'deploying', 'deploying', 'reach_gate', 10),
         (4, 'deploying', 'deploying', 'pass_gate', 10), (5, 'deploying', 'deploying', 'reach_gate', 25), (6, 'deploying', 'deploying', 'pass_gate', 25),
         (7, 'deploying', 'healthy', 'complete', 0)) AS row (n, f, t, event, weight)
WHERE e = 1 OR n < 3 OR n = 3 AND s.id % 1000 <= 100
ORDER BY e, n, s.id;
SET session_replication_role = origin;
