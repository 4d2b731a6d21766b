-- +goose Up

-- Ends the transaction with an error of the given code. A commit that expects what it nearly always finds sends all of its statements in one
-- journey: one that finds something else calls this, and nothing of the transaction happens.
-- +goose StatementBegin
CREATE FUNCTION refuse(code text, about text) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = about;
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION refuse;
