package source

import "github.com/lockstep-cd/lockstep/services/registry/internal/core"

// pushed is what forges tell when somebody has pushed to a repository: that there is something to be looked at, whatever
// the branch and whatever the commits, which the forge is asked about (D43).
func pushed(top, repository node, address string) ([]core.Notification, error) {
	n := core.Notification{Repository: repository.text(address), Names: core.Names{Repository: repository.name(address)}}
	return single(n, top.err())
}
