-- +goose Up

-- Earlier releases stored answers of the domain service whoever had sent them. Without a key no wait finds one of another sender (D47).
-- The row stays until it is as old as the others, so that it is a duplicate if it is sent again.
DELETE FROM event_key k USING event e
WHERE k.event = e.id AND e.source <> '/services/domain'
  AND e.type IN (
      'com.gitlab.cd.approval.resolved', 'com.gitlab.cd.rollout.passage_granted',
      'com.gitlab.cd.rollout.abort_requested', 'com.gitlab.cd.rollout.retry_requested'
  );

-- +goose Down
SELECT 1;
