package store

import "sync"

// tenants knows whether several organizations have had items lately. It is shared by groups that wait for one another, and safe for
// concurrent use.
type tenants struct {
	mu   sync.Mutex
	last int64
	// left is the number of further transactions for which several organizations are assumed.
	left int
}

// tenantsLately is the number of transactions for which several organizations are assumed after items of two of them followed each other.
// At full load that is about a second.
const tenantsLately = 64

// several records the organizations of the items that wait for a transaction, and reports whether there were several of them lately.
func (t *tenants) several(organizations []int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range organizations {
		if t.last != 0 && t.last != o {
			t.left = tenantsLately
		}
		t.last = o
	}
	if t.left == 0 {
		return false
	}
	t.left--
	return true
}
