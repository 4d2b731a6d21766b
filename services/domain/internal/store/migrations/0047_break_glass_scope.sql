-- A token may be good for break-glass: a permission of its own. Tokens that exist are not, whoever holds them.

-- +goose Up
ALTER TABLE cd_access_tokens
    DROP CONSTRAINT cd_access_tokens_scopes_are_known,
    ADD CONSTRAINT cd_access_tokens_scopes_are_known CHECK (scopes BETWEEN 1 AND 63);
COMMENT ON COLUMN cd_access_tokens.scopes IS 'Bits: 1 read 2 deploy 4 approve 8 configure 16 administer 32 break glass. What it is good for, as far as the member''s role allows it too.';

-- +goose Down
-- The older code knows no such bit, and gives no role its permission: a token that has it is good for everything else still.
ALTER TABLE cd_access_tokens
    DROP CONSTRAINT cd_access_tokens_scopes_are_known,
    ADD CONSTRAINT cd_access_tokens_scopes_are_known CHECK (scopes BETWEEN 1 AND 31) NOT VALID;
COMMENT ON COLUMN cd_access_tokens.scopes IS 'Bits: 1 read 2 deploy 4 approve 8 configure 16 administer. What it is good for, as far as the member''s role allows it too.';
