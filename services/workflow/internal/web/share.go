package web

// surplus is what is dropped before something of a credential is kept: what the organization of the credential has had longest if it has as
// many as one may have, else, if there are as many as may be, what the organization with the most has had longest. age is less for what is
// older. What is the operator's is not counted, and is not dropped.
func surplus[V any](kept map[identity]V, of identity, forOne, atMost int, age func(V) uint64) (drop identity, found bool) {
	if _, replaced := kept[of]; replaced || of.operators != nil {
		return drop, false
	}
	counts, total, largest := map[int64]int{}, 0, 0
	for one := range kept {
		if one.operators == nil {
			total++
			counts[one.organization]++
			largest = max(largest, counts[one.organization])
		}
	}
	full := counts[of.organization] >= forOne
	if !full && total < atMost {
		return drop, false
	}
	for one, v := range kept {
		mine := one.organization == of.organization
		if one.operators != nil || full && !mine || !full && counts[one.organization] < largest {
			continue
		}
		if !found || age(v) < age(kept[drop]) {
			drop, found = one, true
		}
	}
	return drop, found
}
