package wake

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
)

// Of a signal and the end of the wait that come together select takes either. The loop looks at everything in both cases, so nothing may be
// left that has it look once more: how often it looks would be left to chance.
func TestASignalDoesNotOutliveTheWaitThatEndsWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			s := NewSignal()
			s.Raise()
			s.Wait(t.Context(), clock.System(), -time.Second)
			if s.Taken() {
				t.Fatal("the signal is raised after the wait that it has ended")
			}
		}
	})
}

// A loop whose look took a minute looks again when that is due, and not a minute later.
func TestAnAlarmRingsOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, alarm := clock.System(), NewAlarm()
		until := c.Now().Add(90 * time.Second)
		_ = clock.Sleep(t.Context(), c, time.Minute) // the look
		alarm.Sleep(t.Context(), c, until)
		if now := c.Now(); !now.Equal(until) {
			t.Errorf("the loop looks %s late", now.Sub(until))
		}
		go alarm.Sleep(t.Context(), c, until.Add(time.Hour))
		synctest.Wait()
		if got := alarm.Until(); !got.Equal(until.Add(time.Hour)) {
			t.Errorf("asleep until %s, expected an hour after %s", got, until)
		}
		alarm.Due(until.Add(time.Minute))
		synctest.Wait()
		if got := alarm.Until(); !got.IsZero() {
			t.Errorf("something is due before the loop looks again, and it sleeps until %s", got)
		}
	})
}
