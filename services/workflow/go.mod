module github.com/lockstep-cd/lockstep/services/workflow

go 1.26.0

require (
	github.com/lockstep-cd/lockstep/pkg v0.0.0
	go.starlark.net v0.0.0-20260908191801-89a6a09411d5
	go.yaml.in/yaml/v4 v4.0.0
)

require golang.org/x/sys v0.49.0 // indirect

replace (
	github.com/lockstep-cd/lockstep/pkg => ../../pkg
	github.com/lockstep-cd/lockstep/proto => ../../proto
)
