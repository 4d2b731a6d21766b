-- What deployments are outside of Lockstep, such as pull requests: a name, and where people find it (D53, D55).

-- +goose Up
CREATE TABLE cd_deployment_links (
    organization_id bigint NOT NULL CONSTRAINT cd_deployment_links_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    deployment_id   bigint NOT NULL,
    name            text NOT NULL CONSTRAINT cd_deployment_links_name_is_given CHECK (length(name) BETWEEN 1 AND 255),
    namespace       text NOT NULL CONSTRAINT cd_deployment_links_namespace_is_bounded CHECK (length(namespace) <= 255),
    url             text NOT NULL CONSTRAINT cd_deployment_links_url_is_one CHECK (url = '' OR url ~ '^https?://[^[:space:]]+$' AND length(url) <= 2048),
    status          text NOT NULL CONSTRAINT cd_deployment_links_status_is_bounded CHECK (length(status) <= 500),
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, deployment_id),
    CONSTRAINT cd_deployment_links_deployment FOREIGN KEY (organization_id, deployment_id) REFERENCES cd_deployments (organization_id, id)
);
COMMENT ON TABLE cd_deployment_links IS 'What a deployment is outside of Lockstep, as its program has reported it last: one row for each at most, kept with the deployment.';
COMMENT ON COLUMN cd_deployment_links.name IS 'What it is called there, such as #17.';
COMMENT ON COLUMN cd_deployment_links.namespace IS 'The namespace there; empty for none.';
COMMENT ON COLUMN cd_deployment_links.url IS 'The page for people; empty for none.';
COMMENT ON COLUMN cd_deployment_links.status IS 'What it says of itself, such as merged by ann; empty for nothing.';
CREATE TRIGGER cd_deployment_links_touch BEFORE UPDATE ON cd_deployment_links FOR EACH ROW EXECUTE FUNCTION cd_touch();

-- +goose Down
DROP TABLE cd_deployment_links;
