-- What policies have stopped is evaluated again once after the policy sets of the installation have changed, not whenever a process starts (D51).

-- +goose Up
CREATE TABLE policy_reviews (
    one boolean NOT NULL DEFAULT true,
    digest text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT policy_reviews_pkey PRIMARY KEY (one),
    CONSTRAINT policy_reviews_is_one_row CHECK (one),
    CONSTRAINT policy_reviews_digest_is_one CHECK (digest ~ '^[0-9a-f]{64}$')
);
CREATE TRIGGER policy_reviews_touch BEFORE UPDATE ON policy_reviews FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE policy_reviews IS
    'The digest of the policy sets of the installation by which all organizations were evaluated again last, and nothing that belongs to them.';

-- +goose Down
DROP TABLE policy_reviews;
