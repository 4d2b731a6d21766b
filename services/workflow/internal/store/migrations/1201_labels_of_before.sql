-- The labels of executions that were stored before there was a table of labels.

-- +goose Up
INSERT INTO execution_label (organization, key, value, execution)
SELECT execution.organization, l.key, l.value, execution.id
FROM execution CROSS JOIN LATERAL jsonb_each_text(CASE WHEN jsonb_typeof(execution.labels) = 'object' THEN execution.labels ELSE '{}' END) AS l
ON CONFLICT DO NOTHING;

-- +goose Down
DELETE FROM execution_label;
