-- +goose Up
ALTER TABLE cd_trigger_signals ADD COLUMN lacks_facts boolean NOT NULL DEFAULT false;
ALTER TABLE cd_trigger_signals ADD CONSTRAINT cd_trigger_signals_what_lacks_facts_is_declined CHECK (NOT lacks_facts OR outcome = 'declined');
COMMENT ON COLUMN cd_trigger_signals.lacks_facts IS
    'Whether the version set was declined because of labels or facts of an image: it is decided about again when more is known.';

-- +goose Down
ALTER TABLE cd_trigger_signals DROP COLUMN lacks_facts;
