package policy

import "slices"

// Short is a request without agents and incidents where none of some policies ask of them, and with the details of each environment once:
// requests are bounded, and environments have many agents and labels. It decides the same.
func (r Request) Short(texts ...string) Request {
	asks := slices.ContainsFunc(texts, func(text string) bool { return MentionsAttribute(text, "gent") }) // Agent, agents
	if !slices.ContainsFunc(texts, func(text string) bool { return MentionsAttribute(text, "incidents") }) {
		r.Incidents = nil
	}
	seen := map[string]bool{}
	short := func(e Environment) Environment {
		if !asks {
			e.Agents = nil
		}
		if seen[e.Name] {
			return Environment{Name: e.Name, Tier: e.Tier}
		}
		seen[e.Name] = true
		return e
	}
	if r.Environment != nil {
		e := short(*r.Environment)
		r.Environment = &e
	}
	for _, all := range []*[]Environment{&r.Environments, &r.Completed} {
		*all = slices.Clone(*all)
		for i, e := range *all {
			(*all)[i] = short(e)
		}
	}
	if r.Previous != nil {
		p := *r.Previous
		p.Environment = short(p.Environment)
		r.Previous = &p
	}
	r.Passed = slices.Clone(r.Passed)
	for i, e := range r.Passed {
		r.Passed[i] = short(e)
	}
	return r
}
