package graph

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// warnings reads what to consider before version sets are rolled out: versions whose image was deleted at its registry. Names are read only
// where there is something to say.
func warnings(r view.Reads) func(ctx context.Context, organization int64, sets []int64) (map[int64][]string, error) {
	return func(ctx context.Context, organization int64, sets []int64) (map[int64][]string, error) {
		entries, err := r.EntriesByVersionSet(ctx, organization, sets)
		if err != nil {
			return nil, err
		}
		var ids []int64
		for _, of := range entries {
			for _, e := range of {
				ids = append(ids, e.VersionID)
			}
		}
		deleted, err := r.DeletedVersions(ctx, organization, core.Distinct(ids))
		if err != nil || len(deleted) == 0 {
			return nil, err
		}
		var versionIDs, serviceIDs []int64
		for _, of := range entries {
			for _, e := range of {
				if _, gone := deleted[e.VersionID]; gone {
					versionIDs, serviceIDs = append(versionIDs, e.VersionID), append(serviceIDs, e.ServiceID)
				}
			}
		}
		versions, err := r.VersionsByID(ctx, organization, core.Distinct(versionIDs))
		if err != nil {
			return nil, err
		}
		services, err := r.ServicesByID(ctx, organization, core.Distinct(serviceIDs))
		if err != nil {
			return nil, err
		}
		all := map[int64][]string{}
		for set, of := range entries {
			for _, e := range of {
				if at, gone := deleted[e.VersionID]; gone {
					all[set] = append(all[set], fmt.Sprintf("The image of %s %s was deleted at its registry on %s: where it is not kept elsewhere, it cannot be started.",
						services[e.ServiceID].Name, versions[e.VersionID].Name, at.UTC().Format(time.DateTime+" MST")))
				}
			}
		}
		return all, nil
	}
}
