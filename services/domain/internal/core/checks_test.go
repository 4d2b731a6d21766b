package core

import (
	"testing"
	"time"
)

// D48, R3-06: while only what forges report is pending and all others report success, a check waits; where success and failure meet, or
// another reporter is pending, it fails and names all.
func TestAForgeThatHasNotDecidedContradictsNobody(t *testing.T) {
	t.Parallel()
	report := func(id int64, phase CheckPhase) CheckReport {
		r := CheckReport{
			ID: id, EnvironmentID: 3, Key: "ci", Phase: phase, CreatedAt: time.Unix(id, 0), Reporter: Author{Principal: Principal{Type: PrincipalAgent, ID: id}, Name: "ci"},
		}
		if id == 0 {
			r.Reporter = ForgeReporter()
		}
		return r
	}
	for want, all := range map[string][]CheckReport{
		"pending: waits for what forges report: pending by forge, success by ci":                {report(0, CheckPending), report(7, CheckSuccess)},
		"pending: waits for what forges report: pending by forge, success by ci, success by ci": {report(8, CheckSuccess), report(0, CheckPending), report(7, CheckSuccess)},
		"pending: pending by forge": {report(0, CheckPending)},
		"success: success by ci":    {report(0, CheckSuccess), report(7, CheckSuccess)},
		"failure: the reporters contradict each other: failure by ci, pending by forge":                {report(0, CheckPending), report(7, CheckFailure)},
		"failure: the reporters contradict each other: failure by forge, success by ci":                {report(0, CheckFailure), report(7, CheckSuccess)},
		"failure: the reporters contradict each other: pending by ci, success by forge":                {report(0, CheckSuccess), report(7, CheckPending)},
		"failure: the reporters contradict each other: pending by ci, pending by forge, success by ci": {report(0, CheckPending), report(7, CheckPending), report(8, CheckSuccess)},
		"failure: the reporters contradict each other: failure by ci, pending by forge, success by ci": {report(0, CheckPending), report(7, CheckFailure), report(8, CheckSuccess)},
	} {
		s := Checks{Reports: all}.reported(PinnedCheck{Check: Check{Key: "ci", Kind: CheckStatus}, EnvironmentID: 3})
		if got := string(s.Phase) + ": " + s.Detail; got != want || len(s.Reports) != len(all) {
			t.Errorf("found %q with %d reports; want %q", got, len(s.Reports), want)
		}
	}
}
