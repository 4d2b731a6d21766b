module github.com/lockstep-cd/lockstep/services/registry

go 1.26.0

require (
	github.com/cloudevents/sdk-go/v2 v2.16.2
	github.com/google/go-cmp v0.7.0
	github.com/lockstep-cd/lockstep/pkg v0.0.0
	github.com/lockstep-cd/lockstep/proto v0.0.0
)

replace (
	github.com/lockstep-cd/lockstep/pkg => ../../pkg
	github.com/lockstep-cd/lockstep/proto => ../../proto
)
