-- A status of a commit is of one application, whose name it has: what it says are columns. One that its server does not answer for a day is
-- given up.

-- +goose Up
ALTER TABLE cd_forge_statuses
    ADD COLUMN application_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN environment_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN version_set_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN phase text NOT NULL DEFAULT 'pending' CONSTRAINT cd_forge_statuses_phase_is_known CHECK (phase IN ('pending', 'success', 'failure')),
    ADD COLUMN description text NOT NULL DEFAULT '',
    ADD COLUMN link text NOT NULL DEFAULT '',
    ADD COLUMN away_since timestamptz;
-- The rows of all organizations.
ALTER TABLE cd_forge_statuses NO FORCE ROW LEVEL SECURITY;
UPDATE cd_forge_statuses s SET application_id = p.key::bigint, version_set_id = (p.value ->> 'set')::bigint, phase = p.value ->> 'phase',
    description = COALESCE(p.value ->> 'description', ''), link = COALESCE(p.value ->> 'link', ''),
    environment_id = COALESCE((SELECT e.id FROM cd_environments e WHERE e.organization_id = s.organization_id AND e.name = split_part(s.name, '/', 3)), 0)
FROM cd_forge_statuses o, jsonb_each(o.parts) p WHERE o.organization_id = s.organization_id AND o.id = s.id;
ALTER TABLE cd_forge_statuses FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_forge_statuses DROP COLUMN parts;
COMMENT ON COLUMN cd_forge_statuses.application_id IS 'Whose it is, and with environment_id and version_set_id what it is about; 0 if that is not known.';
COMMENT ON COLUMN cd_forge_statuses.away_since IS 'When its server first failed to answer since it was sent last; null if it has not.';

-- +goose Down
ALTER TABLE cd_forge_statuses ADD COLUMN parts jsonb NOT NULL DEFAULT '{}' CONSTRAINT cd_forge_statuses_parts_is_an_object CHECK (jsonb_typeof(parts) = 'object');
ALTER TABLE cd_forge_statuses NO FORCE ROW LEVEL SECURITY;
UPDATE cd_forge_statuses SET parts = jsonb_build_object(application_id::text, jsonb_build_object(
    'set', version_set_id, 'application', split_part(name, '/', 2), 'phase', phase, 'description', description, 'link', link));
ALTER TABLE cd_forge_statuses FORCE ROW LEVEL SECURITY;
ALTER TABLE cd_forge_statuses ALTER COLUMN parts DROP DEFAULT;
COMMENT ON COLUMN cd_forge_statuses.parts IS 'What each application says, by its number: set, phase, description and link. The worst of them is published.';
ALTER TABLE cd_forge_statuses DROP COLUMN application_id, DROP COLUMN environment_id, DROP COLUMN version_set_id, DROP COLUMN phase, DROP COLUMN description,
    DROP COLUMN link, DROP COLUMN away_since;
