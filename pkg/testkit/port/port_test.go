package port_test

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

func TestAPortIsHandedOutOnceAtATime(t *testing.T) {
	t.Parallel()
	var all []int
	for range 20 {
		ports, r, err := port.Choose(10)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		all = append(all, ports...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); n != 200 {
		t.Errorf("ports: found %d different ones of %d, expected all to be: %v", n, len(all), all)
	}
}

func TestEachNameHasAPortOfItsOwn(t *testing.T) {
	t.Parallel()
	names := strings.Fields("etcd etcd-peer apiserver scheduler redis kwok")
	ports, r, err := port.ChooseFor(names...)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	owners := map[int]string{}
	for _, name := range names {
		p, ok := ports[name]
		if other, taken := owners[p]; !ok || taken {
			t.Errorf("%s: found port %d, of %q too; expected one of its own", name, p, other)
		}
		owners[p] = name
	}
}

func TestAReservationOutlivesItsListeners(t *testing.T) {
	t.Parallel()
	ports, r, err := port.Choose(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	for range 3 { // as a server that is started again
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", port.Address(ports[0]))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var other port.Reservation
	if other.Hold(t.Context(), impatient{clock.System()}, ports[0]) {
		t.Fatalf("port %d: held twice", ports[0])
	}
	r.Release()
	if !other.Hold(t.Context(), clock.System(), ports[0]) {
		t.Errorf("port %d: held by nobody, and cannot be reserved", ports[0])
	}
	other.Release()
}

// impatient is a clock whose timers fire at once.
type impatient struct{ clock.Clock }

func (i impatient) NewTimer(time.Duration) clock.Timer { return i.Clock.NewTimer(0) }
