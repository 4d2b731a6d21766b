-- Freezes name the incident that they are for, and policies see which incidents are open (D51).

-- +goose Up
ALTER TABLE cd_freezes ADD COLUMN incident text NOT NULL DEFAULT ''
    CONSTRAINT cd_freezes_incident_is_bounded CHECK (octet_length(incident) <= 100);
COMMENT ON COLUMN cd_freezes.incident IS 'What the incident is called that it is for, such as INC-99; empty for none. The incident is open while the freeze is in force.';

-- +goose Down
ALTER TABLE cd_freezes DROP COLUMN incident;
