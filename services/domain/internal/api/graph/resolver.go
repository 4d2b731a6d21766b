package graph

import (
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/exec"
)

// resolvers says who resolves the fields of each type.
type resolvers struct{ domain Domain }

var _ exec.ResolverRoot = resolvers{}

func (r resolvers) Query() exec.QueryResolver       { return query(r) }
func (r resolvers) Mutation() exec.MutationResolver { return mutation(r) }
func (r resolvers) Rollout() exec.RolloutResolver   { return rollout(r) }

func (resolvers) Application() exec.ApplicationResolver         { return application{} }
func (resolvers) ArtifactSource() exec.ArtifactSourceResolver   { return artifactSource{} }
func (resolvers) Deployment() exec.DeploymentResolver           { return deployment{} }
func (resolvers) Environment() exec.EnvironmentResolver         { return environment{} }
func (resolvers) Service() exec.ServiceResolver                 { return service{} }
func (resolvers) VersionSet() exec.VersionSetResolver           { return versionSet{} }
func (resolvers) VersionSetEntry() exec.VersionSetEntryResolver { return versionSetEntry{} }
func (resolvers) ApplicationEnvironment() exec.ApplicationEnvironmentResolver {
	return applicationEnvironment{}
}

func (resolvers) RolloutEnvironment() exec.RolloutEnvironmentResolver { return rolloutEnvironment{} }
