package credential

import (
	"context"
	"testing"
	"time"

	"github.com/lockstep-cd/lockstep/pkg/clock/clocktest"
	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/sealing"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// begun is a store with one key of SSH, which counts transactions.
type begun struct {
	Store
	transactions int
}

func (b *begun) In(context.Context, int64, func(ctx context.Context, tx Tx) error) error {
	b.transactions++
	return nil
}

func (*begun) Credentials(context.Context, int64) ([]Credential, error) {
	return []Credential{{Terms: sealing.Terms{
		Organization: 1, Name: "deploy", Version: 1, Kind: sealing.Git, URLPrefixes: []string{"ssh://git.example.com/"},
		Proof: sealing.Proof{SSHKey: sealing.SSHKey{KnownHosts: "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}},
	}}}, nil
}

type configured struct{ Sealer }

func (configured) Configured() bool { return true }

// D56: a value is checked after the permission, since a passphrase takes long, and before anything is locked.
func TestAValueIsCheckedBeforeTheLockAndAfterThePermission(t *testing.T) {
	t.Parallel()
	store := &begun{}
	u := New(Deps{Store: store, Sealer: configured{}, Clock: clocktest.New(time.Unix(0, 0))})
	all, _ := store.Credentials(t.Context(), 1)
	wrong := NewValue{Value: "no key"}
	again := all[0].Terms
	again.Name = "another"
	for role, class := range map[core.Role]fault.Class{core.RoleViewer: fault.Denied, core.RoleOwner: fault.Invalid} {
		a := core.Actor{Organization: 1, Type: core.PrincipalUser, ID: 1, Permissions: role.Permissions()}
		if _, err := u.Rotate(t.Context(), a, "deploy", wrong); !fault.Is(err, class) {
			t.Errorf("%s rotates: found %v; want %s", role, err, fault.Describe(class).Name)
		}
		if _, err := u.Create(t.Context(), a, NewCredential{Terms: again, NewValue: wrong}); !fault.Is(err, class) {
			t.Errorf("%s creates: found %v; want %s", role, err, fault.Describe(class).Name)
		}
	}
	if store.transactions > 0 {
		t.Errorf("found %d transactions; want none for a value that is wrong", store.transactions)
	}
}
