package gitfetch

import "testing"

// D41, D56: a connection of SSH has a window of what is sent before it is read, which each share accounts for once.
func TestAConnectionOfSSHIsAccountedFor(t *testing.T) {
	t.Parallel()
	b, s := NewBudget(Limits{}), &SSH{}
	for _, large := range []bool{false, true} {
		share := &Share{budget: b, memory: b.small.size, large: large}
		for range 3 {
			if err := s.account(share); err != nil {
				t.Fatal(err)
			}
		}
		if used := share.used.Load(); used != sshWindow {
			t.Errorf("found %d bytes in use; want %d", used, sshWindow)
		}
		share.end()
	}
	if err := s.account(&Share{budget: b, memory: sshWindow - 1}); err == nil {
		t.Error("a connection has no room, and is opened")
	}
}
