package throttle

// Remembered returns how many entries a guard keeps.
func Remembered(g *Guard) int {
	return len(g.addresses.buckets) + len(g.credentials.buckets) + len(g.good)
}
