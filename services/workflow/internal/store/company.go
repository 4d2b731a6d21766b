package store

import "sync"

// company knows whether items of several organizations have come lately. It is safe for concurrent use.
type company struct {
	mu   sync.Mutex
	last int64
	// left is for how many transactions more several are taken to be there.
	left int
}

// companyFor is how many transactions after an item of another organization than the one before are taken to be everybody's: about a second's
// at full load. Somebody who comes once a minute finds long ones again, and is the reason for short ones.
const companyFor = 64

// met notes an item of an organization.
func (c *company) met(organization int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != 0 && c.last != organization {
		c.left = companyFor
	}
	c.last = organization
}

// several is asked once for each transaction.
func (c *company) several() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		return false
	}
	c.left--
	return true
}
