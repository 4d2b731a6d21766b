-- What all organizations together send to a forge with the credentials of the operator: its account has one quota, whoever uses it (D64).

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
COMMENT ON TABLE forge_budgets IS 'What all organizations together send to a server with the credentials of the operator, and nothing that belongs to them. Rows are kept: there are few.';
COMMENT ON COLUMN forge_budgets.window_at IS 'When the present minute began, in which window_count runs were begun.';
COMMENT ON COLUMN forge_budgets.paused_until IS 'Nothing is begun there before with the credentials of the operator.';
COMMENT ON COLUMN forge_budgets.quota_limit IS 'How many requests it accepts from them, and with the next two columns how many still and until when; null where it does not say.';
CREATE TRIGGER forge_budgets_touch BEFORE UPDATE ON forge_budgets FOR EACH ROW EXECUTE FUNCTION cd_touch();
ALTER TABLE cd_forge_hosts ADD COLUMN shared boolean NOT NULL DEFAULT true;
COMMENT ON COLUMN cd_forge_hosts.shared IS 'Whether the organization last used a credential of the operator there; true before that is known.';

-- +goose Down
ALTER TABLE cd_forge_hosts DROP COLUMN shared;
DROP TABLE forge_budgets;
