-- Agents whose numbers the configuration gives.

-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION cd_skip_agent_numbers(upto bigint) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT setval(pg_get_serial_sequence('cd_agents', 'id'), GREATEST(nextval(pg_get_serial_sequence('cd_agents', 'id')), upto))
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION cd_skip_agent_numbers(bigint) IS 'The counter gives out no number that was given by hand.';

-- +goose Down
DROP FUNCTION cd_skip_agent_numbers(bigint);
