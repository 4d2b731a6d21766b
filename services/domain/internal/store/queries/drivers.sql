-- Drivers that were pulled from registries: the installation's, so no organization is entered.

-- name: DatabaseClock :one
SELECT clock_timestamp()::timestamptz;

-- name: HasDriverArtifact :one
SELECT EXISTS (SELECT FROM driver_artifacts WHERE digest = @digest);

-- name: KeepDriverArtifact :exec
INSERT INTO driver_artifacts (digest, drivers, content) VALUES (@digest, @drivers, @content) ON CONFLICT (digest) DO NOTHING;

-- name: NameDriverArtifact :exec
-- Of two answers that come in another order than the questions were asked in, that to the later question stays.
INSERT INTO driver_artifact_names (reference, digest, asked_at) VALUES (@reference, @digest, @asked_at)
ON CONFLICT (reference, digest) DO UPDATE SET asked_at = greatest(driver_artifact_names.asked_at, excluded.asked_at);

-- name: DriverArtifacts :many
SELECT a.digest, a.drivers, n.asked_at FROM driver_artifact_names n JOIN driver_artifacts a ON a.digest = n.digest
WHERE n.reference = @reference ORDER BY n.asked_at DESC, n.digest;

-- name: DriverArtifactContent :one
SELECT content FROM driver_artifacts WHERE digest = @digest;
