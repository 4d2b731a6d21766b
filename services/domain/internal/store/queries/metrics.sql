-- name: Load :one
-- Across organizations, on purpose: what the operator of the installation watches.
SELECT handoffs_due::bigint, handoffs_oldest_seconds::double precision, gates_waiting::bigint, gates_oldest_seconds::double precision FROM cd_load();
