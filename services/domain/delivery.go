package domain

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/telemetry"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core/view"
)

// deliveryEvery is how often delivery metrics are worked out for /metrics: they are of weeks.
const deliveryEvery = 5 * time.Minute

// showDelivery keeps delivery metrics at what the record says, until ctx ends. Every replica does, and shows the same.
func (s *service) showDelivery(ctx context.Context, c DeliveryMetrics, to *telemetry.Delivery) error {
	for ctx.Err() == nil {
		// What is shown stays, with its time, when it cannot be worked out anew.
		if err := s.measureDelivery(ctx, c, to); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "computing delivery metrics failed; keeping the previous ones", telemetry.KeyError, err)
		}
		s.pause(ctx, deliveryEvery)
	}
	return nil
}

// applicationsAtOnce is how many applications' environments are looked up together.
const applicationsAtOnce = 200

// measureDelivery works delivery metrics out once. Applications are gone through by name, so that the same ones are left out each time.
func (s *service) measureDelivery(ctx context.Context, c DeliveryMetrics, to *telemetry.Delivery) error {
	now := clock.System().Now()
	since := now.AddDate(0, 0, -c.Days)
	var samples []telemetry.DeliverySample
	leftOut := 0
	page := core.Page{First: applicationsAtOnce, Order: core.OrderName}
	for {
		applications, err := s.view.Applications(ctx, ownerOrganization, core.ApplicationFilter{}, page)
		if err != nil {
			return err
		}
		ids := make([]int64, len(applications.Nodes))
		for i, a := range applications.Nodes {
			ids[i] = a.ID
		}
		places, err := s.placesShown(ctx, c, ids)
		if err != nil {
			return err
		}
		for _, a := range applications.Nodes {
			environments := places[a.ID]
			shown := environments[:min(len(environments), c.Most-len(samples))]
			leftOut += len(environments) - len(shown)
			if len(shown) == 0 {
				continue // none would mean all of the pipeline's
			}
			w := view.DeliveryWindow{ApplicationID: a.ID, Since: since}
			for _, e := range shown {
				w.EnvironmentIDs = append(w.EnvironmentIDs, e.ID)
			}
			all, err := s.view.DeliveryMetrics(ctx, ownerOrganization, w)
			if fault.Is(err, fault.Invalid) { // more rollouts than one question may be about: the others' are no fewer for it
				s.log.WarnContext(ctx, "an application's delivery metrics are left out", telemetry.KeyApplication, a.Name, telemetry.KeyError, err)
				leftOut += len(shown)
				continue
			}
			if err != nil {
				return err
			}
			for i, e := range shown {
				samples = append(samples, sample(a, e, all[i]))
			}
		}
		if !applications.HasNext {
			break
		}
		page.After = applications.Cursors[len(applications.Cursors)-1]
	}
	to.Set(samples, leftOut, now)
	return nil
}

// placesShown are the environments of applications that are to be shown, in the order of their pipelines.
func (s *service) placesShown(ctx context.Context, c DeliveryMetrics, applications []int64) (map[int64][]core.Environment, error) {
	known, err := s.view.ApplicationEnvironmentsByApplication(ctx, ownerOrganization, applications)
	if err != nil {
		return nil, err
	}
	var ids []int64
	for _, all := range known {
		for _, one := range all {
			ids = append(ids, one.EnvironmentID)
		}
	}
	slices.Sort(ids)
	environments, err := s.view.EnvironmentsByID(ctx, ownerOrganization, slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	shown := map[int64][]core.Environment{}
	for application, all := range known {
		for _, one := range all {
			if e := environments[one.EnvironmentID]; slices.Contains(c.Environments, e.Name) {
				shown[application] = append(shown[application], e)
			}
		}
	}
	return shown, nil
}

func sample(a core.Application, e core.Environment, m view.DeliveryMetrics) telemetry.DeliverySample {
	return telemetry.DeliverySample{
		Application: a.Name, Environment: e.Name, Tier: string(e.Tier),
		Deployments: m.Deployments, Reworked: m.Reworked, Ended: m.Ended, Failures: m.Failures, Unrecovered: m.Unrecovered,
		LeadTime: percentiles(m.Lead), LeadTimePeople: percentiles(m.People), LeadTimeMachine: percentiles(m.Machine),
		RecoveryTime: percentiles(m.Recovery),
	}
}

func percentiles(d view.Durations) telemetry.Percentiles {
	if d.Count == 0 {
		return nil
	}
	return telemetry.Percentiles{50: d.Median, 90: d.P90}
}
