package telemetry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/lockstep-cd/lockstep/pkg/telemetry"
)

// TestDeliveryShowsWhatWasSetLast: nothing before the first Set, then one sample set, then the next one instead.
func TestDeliveryShowsWhatWasSetLast(t *testing.T) {
	t.Parallel()
	var d telemetry.Delivery
	if n := testutil.CollectAndCount(&d); n != 0 {
		t.Errorf("%d series before anything was set", n)
	}
	half := func(of time.Duration) telemetry.Percentiles { return telemetry.Percentiles{50: of} }
	d.Set([]telemetry.DeliverySample{{Application: "gone", Environment: "production", Tier: "production"}}, 0, time.Unix(1, 0))
	d.Set([]telemetry.DeliverySample{{
		Application: "shop", Environment: "live", Tier: "production", Deployments: 5, Reworked: 2, Ended: 6, Failures: 3, Unrecovered: 1,
		LeadTime: half(time.Minute), LeadTimePeople: half(20 * time.Second), LeadTimeMachine: half(40 * time.Second),
	}}, 7, time.Unix(1_800_000_000, 0))
	const want = `
# HELP lockstep_delivery_failures Deployments of the window that failed, were aborted or rolled back.
# TYPE lockstep_delivery_failures gauge
lockstep_delivery_failures{application="shop",environment="live",tier="production"} 3
# HELP lockstep_delivery_lead_time_seconds Change lead time by percentile, in total and by part: people, machine.
# TYPE lockstep_delivery_lead_time_seconds gauge
lockstep_delivery_lead_time_seconds{application="shop",environment="live",part="all",percentile="50",tier="production"} 60
lockstep_delivery_lead_time_seconds{application="shop",environment="live",part="machine",percentile="50",tier="production"} 40
lockstep_delivery_lead_time_seconds{application="shop",environment="live",part="people",percentile="50",tier="production"} 20
# HELP lockstep_delivery_left_out Pairs of application and environment that were left out because there are too many.
# TYPE lockstep_delivery_left_out gauge
lockstep_delivery_left_out 7
# HELP lockstep_delivery_refreshed_timestamp_seconds When the delivery metrics were computed.
# TYPE lockstep_delivery_refreshed_timestamp_seconds gauge
lockstep_delivery_refreshed_timestamp_seconds 1.8e+09
`
	if err := testutil.CollectAndCompare(&d, strings.NewReader(want), "lockstep_delivery_failures", "lockstep_delivery_lead_time_seconds",
		"lockstep_delivery_recovery_seconds",
		"lockstep_delivery_left_out", "lockstep_delivery_refreshed_timestamp_seconds"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(&d); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
