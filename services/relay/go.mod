module github.com/lockstep-cd/lockstep/services/relay

go 1.26.0

require (
	github.com/lockstep-cd/lockstep/pkg v0.0.0
	github.com/lockstep-cd/lockstep/proto v0.0.0
)

replace (
	github.com/lockstep-cd/lockstep/pkg => ../../pkg
	github.com/lockstep-cd/lockstep/proto => ../../proto
)
