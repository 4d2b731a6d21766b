package book

// Surplus is what is dropped before something of a credential is kept: what the organization of the credential has had longest if it has as
// many as one may have, else, if there are as many as may be, what the organization with the most has had longest. age is less for what is
// older. What is the operator's is not counted, and is not dropped.
func Surplus[V any](kept map[Holder]V, of Holder, forOne, atMost int, age func(V) uint64) (drop Holder, found bool) {
	if _, replaced := kept[of]; replaced || of.Operators != nil {
		return drop, false
	}
	counts, total, largest := map[int64]int{}, 0, 0
	for one := range kept {
		if one.Operators == nil {
			total++
			counts[one.Organization]++
			largest = max(largest, counts[one.Organization])
		}
	}
	full := counts[of.Organization] >= forOne
	if !full && total < atMost {
		return drop, false
	}
	for one, v := range kept {
		mine := one.Organization == of.Organization
		if one.Operators != nil || full && !mine || !full && counts[one.Organization] < largest {
			continue
		}
		if !found || age(v) < age(kept[drop]) {
			drop, found = one, true
		}
	}
	return drop, found
}
