-- What members and groups may do beside their role, limited to applications, environments and tiers (D50).

-- +goose Up
CREATE TABLE cd_grants (
    organization_id bigint NOT NULL CONSTRAINT cd_grants_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    member_id       bigint,
    group_id        bigint,
    permissions     smallint NOT NULL CONSTRAINT cd_grants_permissions_are_given CHECK (permissions > 0 AND permissions & 17 = 0),
    applications    bigint[] NOT NULL DEFAULT '{}' CONSTRAINT cd_grants_applications_are_few CHECK (cardinality(applications) <= 100),
    environments    bigint[] NOT NULL DEFAULT '{}' CONSTRAINT cd_grants_environments_are_few CHECK (cardinality(environments) <= 100),
    tiers           text[] NOT NULL DEFAULT '{}'
        CONSTRAINT cd_grants_tiers_are_known CHECK (tiers <@ ARRAY['development', 'qa', 'staging', 'production']),
    revoked_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT cd_grants_key PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_grants_have_one_holder CHECK (num_nonnulls(member_id, group_id) = 1),
    CONSTRAINT cd_grants_member FOREIGN KEY (organization_id, member_id) REFERENCES cd_members (organization_id, id),
    CONSTRAINT cd_grants_group FOREIGN KEY (organization_id, group_id) REFERENCES cd_groups (organization_id, id)
);
COMMENT ON TABLE cd_grants IS 'A row for each grant; revoked_at ends it. Without any, a member may do what its role allows, everywhere.';
COMMENT ON COLUMN cd_grants.permissions IS 'Bits as in cd_access_tokens.scopes, without 1 read and 16 administer.';
COMMENT ON COLUMN cd_grants.applications IS 'Empty for all. Not foreign keys: applications and environments are archived and never deleted.';
CREATE INDEX cd_grants_of_member ON cd_grants (organization_id, member_id) WHERE revoked_at IS NULL;
CREATE INDEX cd_grants_of_group ON cd_grants (organization_id, group_id) WHERE revoked_at IS NULL;
CREATE TRIGGER cd_grants_touch BEFORE UPDATE ON cd_grants FOR EACH ROW EXECUTE FUNCTION cd_touch();
CREATE TRIGGER cd_grants_are_kept BEFORE DELETE ON cd_grants FOR EACH ROW EXECUTE FUNCTION cd_refuse();
CREATE TRIGGER cd_grants_are_immutable BEFORE UPDATE ON cd_grants FOR EACH ROW
    EXECUTE FUNCTION cd_refuse_changed_pins('organization_id', 'id', 'member_id', 'group_id', 'permissions', 'applications', 'environments', 'tiers', 'created_at');

-- +goose Down
DROP TABLE cd_grants;
