-- Lists by a label use execution_label.

-- +goose Up
DROP INDEX execution_labelled;

-- +goose Down
CREATE INDEX execution_labelled ON execution USING gin (labels jsonb_path_ops) WHERE labels <> '{}'::jsonb AND labels <> 'null'::jsonb;
