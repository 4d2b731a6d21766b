module github.com/lockstep-cd/lockstep/tools/e2e

go 1.26.0

require (
	github.com/lockstep-cd/lockstep/pkg v0.0.0
	github.com/lockstep-cd/lockstep/proto v0.0.0
	github.com/lockstep-cd/lockstep/services/domain v0.0.0
	github.com/lockstep-cd/lockstep/services/registry v0.0.0
	github.com/lockstep-cd/lockstep/services/relay v0.0.0
	github.com/lockstep-cd/lockstep/services/workflow v0.0.0
	github.com/lockstep-cd/lockstep/tools/lockstep v0.0.0
)

replace (
	github.com/lockstep-cd/lockstep/pkg => ../../pkg
	github.com/lockstep-cd/lockstep/proto => ../../proto
	github.com/lockstep-cd/lockstep/services/domain => ../../services/domain
	github.com/lockstep-cd/lockstep/services/registry => ../../services/registry
	github.com/lockstep-cd/lockstep/services/relay => ../../services/relay
	github.com/lockstep-cd/lockstep/services/workflow => ../../services/workflow
	github.com/lockstep-cd/lockstep/tools/lockstep => ../lockstep
)
