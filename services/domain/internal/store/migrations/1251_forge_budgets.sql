-- What all organizations together send to a forge with the credentials of the operator: its account has one quota (D64).

-- +goose Up
CREATE TABLE forge_budgets (
    id              bigint GENERATED ALWAYS AS IDENTITY,
    host            text NOT NULL CONSTRAINT forge_budgets_host_is_bounded CHECK (octet_length(host) BETWEEN 1 AND 300),
    window_at       timestamptz NOT NULL DEFAULT 'epoch',
    window_count    integer NOT NULL DEFAULT 0,
    paused_until    timestamptz NOT NULL DEFAULT 'epoch',
    quota_limit     bigint,
    quota_remaining bigint,
    quota_resets_at timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (host)
);
COMMENT ON TABLE forge_budgets IS 'What all organizations together send to a server with the credentials of the operator, and nothing that belongs to them. Rows end a day after they were last used.';
COMMENT ON COLUMN forge_budgets.window_at IS 'When the present minute began, in which window_count runs were begun.';
COMMENT ON COLUMN forge_budgets.paused_until IS 'Nothing is begun there before with the credentials of the operator.';
COMMENT ON COLUMN forge_budgets.quota_limit IS 'How many requests it accepts from them, and with the next two columns how many still and until when; null where it does not say.';
CREATE TRIGGER forge_budgets_touch BEFORE UPDATE ON forge_budgets FOR EACH ROW EXECUTE FUNCTION cd_touch();
ALTER TABLE cd_forge_hosts ADD COLUMN shared_paused_until timestamptz NOT NULL DEFAULT 'epoch';
COMMENT ON COLUMN cd_forge_hosts.shared_paused_until IS 'Nothing is begun there before for which a credential of the operator may be used: what all organizations together may send was sent.';
ALTER TABLE cd_forge_statuses ADD COLUMN spent_at timestamptz;
COMMENT ON COLUMN cd_forge_statuses.spent_at IS 'When the present run was taken from what all organizations together may send; null if it was not.';
ALTER TABLE cd_forge_pulls ADD COLUMN spent_at timestamptz;
COMMENT ON COLUMN cd_forge_pulls.spent_at IS 'When the present run was taken from what all organizations together may send; null if it was not.';

-- +goose StatementBegin
CREATE FUNCTION cd_forge_own(organization bigint, credential text, repository text) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM cd_credentials c WHERE c.organization_id = organization AND c.kind = 'git' AND c.revoked_at IS NULL
        AND CASE WHEN credential = '' THEN repository = ANY (c.url_prefixes) ELSE c.name = credential END)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_forge_own(bigint, text, text) IS 'Whether a credential of the organization itself is used in any case: it is named, or its URL is the whole repository.';

-- +goose Down
DROP FUNCTION cd_forge_own(bigint, text, text);
ALTER TABLE cd_forge_pulls DROP COLUMN spent_at;
ALTER TABLE cd_forge_statuses DROP COLUMN spent_at;
ALTER TABLE cd_forge_hosts DROP COLUMN shared_paused_until;
DROP TABLE forge_budgets;
