-- By what an event finds the triggers that it may match, without a look at those that it does not (D58).

-- +goose Up
CREATE TABLE cd_trigger_keys (
    organization_id bigint NOT NULL CONSTRAINT cd_trigger_keys_organization REFERENCES cd_organizations (id),
    id              bigint GENERATED ALWAYS AS IDENTITY,
    trigger_id      bigint NOT NULL,
    type_key        text NOT NULL,
    detail_key      text NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    updated_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (organization_id, id),
    CONSTRAINT cd_trigger_keys_are_unique UNIQUE (organization_id, type_key, detail_key, trigger_id),
    CONSTRAINT cd_trigger_keys_trigger FOREIGN KEY (organization_id, trigger_id) REFERENCES cd_triggers (organization_id, id),
    CONSTRAINT cd_trigger_keys_are_bounded CHECK (octet_length(type_key) <= 300 AND octet_length(detail_key) <= 1000)
);
CREATE INDEX cd_trigger_keys_of_trigger ON cd_trigger_keys (organization_id, trigger_id);
CREATE TRIGGER cd_trigger_keys_touch BEFORE UPDATE ON cd_trigger_keys FOR EACH ROW EXECUTE FUNCTION cd_touch();
COMMENT ON TABLE cd_trigger_keys IS 'What an event has to have for a trigger of kind event that is switched on to match it. Kept with the trigger, by the database: replicas of any release do.';
COMMENT ON COLUMN cd_trigger_keys.type_key IS 'The type, by cd_pattern_key.';
COMMENT ON COLUMN cd_trigger_keys.detail_key IS 'One more condition, the rarest that the trigger has: a source by cd_pattern_key, or a member of the data with its value; empty for none.';

-- +goose StatementBegin
CREATE FUNCTION cd_pattern_key(pattern text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN strpos(pattern, '*') = 0 THEN '=' || pattern
        WHEN strpos(pattern, '*') = 1 THEN '^'
        ELSE '^' || left(pattern, 1 << (length(ltrim((strpos(pattern, '*') - 1)::bit(16)::text, '0')) - 1)) END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_pattern_key IS 'A pattern by what each text that it matches begins with, cut to a length that is a power of two: a text has few such beginnings.';

-- +goose StatementBegin
CREATE FUNCTION cd_key_trigger() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan TO off AS $$
DECLARE
    entered text := current_setting('lockstep.organization', true);
    types   text[];
    details text[] := '{""}';
    fewest  bigint := 1000000;
    one     record;
BEGIN
    -- The owner of the tables and a superuser have entered none.
    PERFORM set_config('lockstep.organization', NEW.organization_id::text, true);
    DELETE FROM cd_trigger_keys k WHERE k.organization_id = NEW.organization_id AND k.trigger_id = NEW.id;
    IF NEW.kind = 'event' AND NEW.enabled AND NEW.removed_at IS NULL AND jsonb_typeof(NEW.config -> 'types') = 'array' THEN
        SELECT array_agg(DISTINCT cd_pattern_key(p)) INTO types FROM jsonb_array_elements_text(NEW.config -> 'types') p WHERE octet_length(p) BETWEEN 1 AND 256;
    END IF;
    IF types IS NOT NULL THEN
        -- The condition that the fewest others have: of a branch and the name of an application, that is the name.
        FOR one IN
            SELECT c.keys, (SELECT count(*) FROM unnest(types) t, unnest(c.keys) d, LATERAL (
                SELECT FROM cd_trigger_keys k WHERE k.organization_id = NEW.organization_id AND k.type_key = t AND k.detail_key = d LIMIT 100
            ) n) AS others
            FROM (
                SELECT ARRAY['d' || d.key || '=' || d.value] AS keys, d.key AS name
                FROM jsonb_each_text(CASE jsonb_typeof(NEW.config -> 'data') WHEN 'object' THEN NEW.config -> 'data' ELSE '{}' END) d
                WHERE strpos(d.value, '*') = 0 AND octet_length(d.value) <= 256 AND octet_length(d.key) <= 650
                UNION ALL
                SELECT array_agg(DISTINCT 's' || cd_pattern_key(s)), ''
                FROM jsonb_array_elements_text(CASE jsonb_typeof(NEW.config -> 'sources') WHEN 'array' THEN NEW.config -> 'sources' ELSE '[]' END) s
                HAVING count(*) BETWEEN 1 AND 200 / cardinality(types) AND max(octet_length(s)) <= 256
            ) c ORDER BY others, c.name
        LOOP
            EXIT WHEN one.others >= fewest;
            fewest := one.others;
            details := one.keys;
        END LOOP;
        INSERT INTO cd_trigger_keys (organization_id, trigger_id, type_key, detail_key)
        SELECT NEW.organization_id, NEW.id, t, d FROM unnest(types) t, unnest(details) d;
    END IF;
    PERFORM set_config('lockstep.organization', coalesce(entered, ''), true);
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_key_trigger IS 'Keeps the keys of a trigger with it, in the transaction that saves it.';
CREATE TRIGGER cd_triggers_key AFTER INSERT OR UPDATE ON cd_triggers FOR EACH ROW EXECUTE FUNCTION cd_key_trigger();

-- Those that are stored, of all organizations: their saving again writes their keys.
ALTER TABLE cd_triggers NO FORCE ROW LEVEL SECURITY;
UPDATE cd_triggers SET enabled = enabled WHERE kind = 'event' AND enabled AND removed_at IS NULL;
ALTER TABLE cd_triggers FORCE ROW LEVEL SECURITY;

-- +goose Down
DROP TRIGGER cd_triggers_key ON cd_triggers;
DROP FUNCTION cd_key_trigger();
DROP FUNCTION cd_pattern_key(text);
DROP TABLE cd_trigger_keys;
