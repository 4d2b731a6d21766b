module github.com/lockstep-cd/lockstep/tools/lockstep

go 1.26.0

require (
	github.com/lockstep-cd/lockstep/pkg v0.0.0
	github.com/lockstep-cd/lockstep/proto v0.0.0
	github.com/lockstep-cd/lockstep/services/domain v0.0.0
	github.com/lockstep-cd/lockstep/services/registry v0.0.0
	github.com/lockstep-cd/lockstep/services/relay v0.0.0
	github.com/lockstep-cd/lockstep/services/workflow v0.0.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/google/go-containerregistry v0.22.1 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/rogpeppe/go-internal v1.16.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.10 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace (
	github.com/lockstep-cd/lockstep/pkg => ../../pkg
	github.com/lockstep-cd/lockstep/proto => ../../proto
	github.com/lockstep-cd/lockstep/services/domain => ../../services/domain
	github.com/lockstep-cd/lockstep/services/registry => ../../services/registry
	github.com/lockstep-cd/lockstep/services/relay => ../../services/relay
	github.com/lockstep-cd/lockstep/services/workflow => ../../services/workflow
)
