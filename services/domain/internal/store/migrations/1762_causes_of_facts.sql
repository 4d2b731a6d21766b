-- +goose Up
COMMENT ON COLUMN cd_trigger_signals.cause IS
    'Identifies what happened: set:12, event:<source>/<id>, schedule:<time>, drift:<place>:<time>, release:<hold>, rollout:<rollout>, chain:<node>, facts:<set>:<report>.';

-- +goose Down
COMMENT ON COLUMN cd_trigger_signals.cause IS
    'Identifies what happened: set:12, event:<source>/<id>, schedule:<time>, drift:<place>:<time>, release:<hold>, rollout:<rollout>, chain:<node>.';
