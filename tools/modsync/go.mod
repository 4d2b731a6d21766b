module github.com/lockstep-cd/lockstep/tools/modsync

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	golang.org/x/mod v0.41.0
)
