package manifest

import "slices"

// own is a step of the user's own that stays as it is: what it says, and its place in the list that the manifest has.
type own struct {
	value any
	at    int
}

// stretch is what a manifest does at one weight: the steps from a setWeight to the next. The first one begins without.
type stretch struct {
	weight  int
	setting bool
	// before and after are the user's own steps before the first pause and after it; paused is whether there is one.
	before, after []own
	paused        bool
}

func (s stretch) own() []own { return append(slices.Clone(s.before), s.after...) }

// stretches takes a list of canary steps apart.
func stretches(steps []any) []stretch {
	all := []stretch{{}}
	for i, step := range steps {
		last := &all[len(all)-1]
		m, _ := step.(map[string]any)
		weight, isWeight := whole(m["setWeight"])
		_, isPause := m["pause"]
		switch {
		case len(m) == 1 && isWeight:
			all = append(all, stretch{weight: weight, setting: true})
		case len(m) == 1 && isPause:
			last.paused = true
		case last.paused:
			last.after = append(last.after, own{step, i})
		default:
			last.before = append(last.before, own{step, i})
		}
	}
	return all
}

func whole(v any) (int, bool) {
	switch n := v.(type) {
	case int:
		return n, true
	case int64:
		return int(n), true
	case uint64:
		return int(n), true
	default:
		return 0, false
	}
}

// steps are canary steps: a setWeight and an indefinite pause for each gate. What the manifest has of weights and pauses makes way for
// them; the user's other steps stay, in their order, each at the weight at which it was: where that is no gate, with its setWeight and no
// pause. At a gate a step stays on its side of the pause; the pause of a gate that had none comes after the steps there.
func steps(found any, gates []int) node {
	list, _ := found.([]any)
	result := []node{}
	set := func(weight int) { result = append(result, node{pairs: []pair{{"setWeight", node{scalar: weight}}}}) }
	pause := func() { result = append(result, node{pairs: []pair{{"pause", node{pairs: []pair{}}}}}) }
	keep := func(all []own) {
		for _, o := range all {
			result = append(result, node{own: &o})
		}
	}
	rest := gates
	for _, s := range stretches(list) {
		if len(s.own()) == 0 {
			continue
		}
		for s.setting && len(rest) > 0 && rest[0] < s.weight {
			set(rest[0])
			pause()
			rest = rest[1:]
		}
		if s.setting {
			set(s.weight)
		}
		isGate := s.setting && len(rest) > 0 && rest[0] == s.weight
		keep(s.before)
		if isGate && s.paused {
			pause()
		}
		keep(s.after)
		if isGate && !s.paused {
			pause()
		}
		if isGate {
			rest = rest[1:]
		}
	}
	for _, weight := range rest {
		set(weight)
		pause()
	}
	return node{list: result}
}
