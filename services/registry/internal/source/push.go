package source

import "github.com/lockstep-cd/lockstep/services/registry/internal/core"

// pushed returns the notification for a push to a repository, of any branch and with any commits: the source is then polled (D43).
func pushed(top, repository node, address string) ([]core.Notification, error) {
	n := core.Notification{Repository: repository.text(address), Names: core.Names{Repository: repository.name(address)}}
	return single(n, top.err())
}
