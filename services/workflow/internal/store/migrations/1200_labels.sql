-- The labels of executions, so that a list by a label reads those that bear it, and no others.

-- +goose Up
CREATE TABLE execution_label (
    organization bigint NOT NULL CHECK (organization > 0),
    key          text NOT NULL,
    value        text NOT NULL,
    execution    bigint NOT NULL,
    PRIMARY KEY (organization, key, value, execution)
);
COMMENT ON TABLE execution_label IS 'A label of an execution. Deleted with the execution.';

-- +goose StatementBegin
CREATE FUNCTION execution_is_labelled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO execution_label (organization, key, value, execution)
    SELECT NEW.organization, l.key, l.value, NEW.id FROM jsonb_each_text(NEW.labels) AS l
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION execution_labels_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM execution_label USING (
        SELECT gone.organization, gone.id, l.key, l.value
        FROM gone CROSS JOIN LATERAL jsonb_each_text(CASE WHEN jsonb_typeof(gone.labels) = 'object' THEN gone.labels ELSE '{}' END) AS l
    ) AS g
    WHERE execution_label.organization = g.organization AND execution_label.key = g.key AND execution_label.value = g.value
      AND execution_label.execution = g.id;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER execution_is_labelled AFTER INSERT ON execution FOR EACH ROW
    WHEN (jsonb_typeof(NEW.labels) = 'object' AND NEW.labels <> '{}'::jsonb) EXECUTE FUNCTION execution_is_labelled();
CREATE TRIGGER execution_labels_end AFTER DELETE ON execution REFERENCING OLD TABLE AS gone EXECUTE FUNCTION execution_labels_end();

-- +goose Down
DROP TRIGGER execution_is_labelled ON execution;
DROP TRIGGER execution_labels_end ON execution;
DROP FUNCTION execution_is_labelled;
DROP FUNCTION execution_labels_end;
DROP TABLE execution_label;
