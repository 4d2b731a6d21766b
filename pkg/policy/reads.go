package policy

import (
	"encoding/binary"
	"slices"
	"strconv"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	xast "github.com/cedar-policy/cedar-go/x/exp/ast"
)

// maxKey is how long a key of a Memo is, in bytes. Longer ones are not kept.
const maxKey = 2048

// maxLiterals is how many literals policies look for in a call. With more, nothing is remembered.
const maxLiterals = 256

// reads is what policies ask of a call, besides what Caller.key has. Two calls that do not differ in that are decided alike. The texts are
// those of the policies.
type reads struct {
	// anything reports that they ask for something else, such as the exact time: nothing is known of other calls then.
	anything bool
	run      bool
	// whole reports that they ask for all arguments, omitted that they ask for those which are too long to see.
	whole, omitted bool
	// literals are the arguments, as name=value, that they look for; found has the place of each.
	literals []string
	found    map[string]int
	// named are the arguments that they ask for by name.
	named []string
	// times are the parts of the time that they ask for. The reads of one policy are of no zone.
	times []timeRead
}

// timeRead is a part of the time in a zone.
type timeRead struct {
	zone *time.Location
	part types.String
}

// readsOf is what one policy asks for.
func readsOf(p *policy) *reads {
	r := &reads{}
	for _, c := range p.ast().Conditions {
		xast.Inspect(xast.NewNode(c.Body), r.node)
	}
	r.sort()
	r.found = nil
	return r
}

// add adds what a policy asks for whose times are in a zone.
func (r *reads) add(p *reads, zone *time.Location) {
	if zone == nil {
		zone = time.UTC
	}
	r.anything, r.run = r.anything || p.anything, r.run || p.run
	r.whole, r.omitted = r.whole || p.whole, r.omitted || p.omitted
	if r.anything {
		return
	}
	r.literals, r.named = append(r.literals, p.literals...), append(r.named, p.named...)
	for _, t := range p.times {
		if !slices.ContainsFunc(r.times, func(o timeRead) bool { return o.part == t.part && o.zone.String() == zone.String() }) {
			r.times = append(r.times, timeRead{zone, t.part})
		}
	}
}

// sort makes the reads ready for keys, and drops what keys do not have.
func (r *reads) sort() {
	r.literals, r.named = sorted(r.literals), sorted(r.named)
	if len(r.literals) > maxLiterals {
		r.anything = true
	}
	if r.anything {
		*r = reads{anything: true}
		return
	}
	r.found = make(map[string]int, len(r.literals))
	for i, text := range r.literals {
		r.found[text] = i
	}
}

// sorted are texts, each once, with no room for more.
func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Clip(slices.Clone(slices.Compact(texts)))
}

// node notes what a part of a condition asks for, and reports whether its own parts are still to be looked at. Whatever is not known here
// counts as anything.
func (r *reads) node(n xast.IsNode) bool {
	switch v := n.(type) {
	case xast.NodeTypeContains:
		return !r.contains(v.BinaryNode)
	case xast.NodeTypeContainsAll:
		return !r.contains(v.BinaryNode)
	case xast.NodeTypeContainsAny:
		return !r.contains(v.BinaryNode)
	case xast.NodeTypeAccess, xast.NodeTypeHas:
		if path := contextPath(n); len(path) > 0 {
			r.path(path)
			return false
		}
	case xast.NodeTypeVariable:
		r.anything = r.anything || v.Name == "context"
	}
	return true
}

// contains notes that arguments are asked for by their texts; false if it is something else.
func (r *reads) contains(n xast.BinaryNode) bool {
	if path := contextPath(n.Left); len(path) != 1 || path[0] != "arguments" {
		return false
	}
	texts, ok := literals(n.Right)
	if ok {
		r.literals = append(r.literals, texts...)
	}
	return ok
}

// literals are the strings of a literal, or of a set of them.
func literals(n xast.IsNode) (all []string, ok bool) {
	switch v := n.(type) {
	case xast.NodeValue:
		switch value := v.Value.(type) {
		case types.String:
			return []string{string(value)}, true
		case types.Set:
			for item := range value.All() {
				text, is := item.(types.String)
				if !is {
					return nil, false
				}
				all = append(all, string(text))
			}
			return all, true
		}
	case xast.NodeTypeSet:
		for _, element := range v.Elements {
			some, is := literals(element)
			if _, one := element.(xast.NodeValue); !is || !one {
				return nil, false
			}
			all = append(all, some...)
		}
		return all, true
	}
	return nil, false
}

// contextPath is what of the context a node asks for: context.argument has url is [argument url]. It is empty for anything else.
func contextPath(n xast.IsNode) []types.String {
	switch v := n.(type) {
	case xast.NodeTypeHas:
		if variable, is := v.Arg.(xast.NodeTypeVariable); is && variable.Name == "context" {
			return []types.String{v.Value}
		}
		if path := contextPath(v.Arg); len(path) > 0 {
			return append(path, v.Value)
		}
	case xast.NodeTypeAccess:
		if variable, is := v.Arg.(xast.NodeTypeVariable); is && variable.Name == "context" {
			return []types.String{v.Value}
		}
		if path := contextPath(v.Arg); len(path) > 0 {
			return append(path, v.Value)
		}
	}
	return nil
}

// path notes that something of the context is asked for.
func (r *reads) path(path []types.String) {
	switch path[0] {
	case "application", "environments": // Caller.key has them
	case "run":
		r.run = true
	case "arguments":
		r.whole = true
	case "omitted":
		r.omitted = true
	case "argument":
		if len(path) == 1 {
			r.anything = true
			return
		}
		r.named = append(r.named, string(path[1]))
	case "time":
		read := timeRead{nil, ""}
		if len(path) > 1 {
			read.part = path[1]
		}
		switch read.part {
		case "date", "weekday", "hour", "minute":
			if !slices.Contains(r.times, read) {
				r.times = append(r.times, read)
			}
		default:
			r.anything = true
		}
	default:
		r.anything = true
	}
}

// key appends what a decision about a call depends on; false if there is no such key. Each part ends where its length, its kind or its
// place says, so that no two calls which differ in it have the same key.
func (r *reads) key(key []byte, c *Caller, name string, seen *arguments, at time.Time) ([]byte, bool) {
	if r.anything || c.key == "" || len(c.key)+len(name) > maxKey {
		return nil, false
	}
	key = text(text(key, c.key), name)
	if r.run {
		key = text(key, c.common.Run)
	}
	for _, t := range r.times {
		local := at.In(t.zone)
		switch t.part {
		case "date":
			key = local.AppendFormat(key, time.DateOnly)
		case "weekday":
			key = strconv.AppendInt(key, int64(local.Weekday()), 10)
		case "hour":
			key = strconv.AppendInt(key, int64(local.Hour()), 10)
		case "minute":
			key = strconv.AppendInt(key, int64(local.Minute()), 10)
		}
		key = append(key, ';')
	}
	for _, argument := range r.named {
		switch value := seen.named[types.String(argument)].(type) {
		case nil:
			key = append(key, '-')
		case types.String:
			key = text(append(key, '"'), string(value))
		case types.Long:
			key = binary.AppendVarint(append(key, '#'), int64(value))
		default:
			return nil, false
		}
		if len(key) > maxKey {
			return nil, false
		}
	}
	return r.arguments(key, seen)
}

// arguments appends which of the arguments there are that policies look for.
func (r *reads) arguments(key []byte, seen *arguments) ([]byte, bool) {
	var places []int
	if len(r.literals) > 0 && !r.whole {
		for _, one := range seen.all {
			if place, is := r.found[one]; is {
				places = append(places, place)
			}
		}
		slices.Sort(places)
		places = slices.Compact(places)
		key = binary.AppendUvarint(key, uint64(len(places)))
		for _, place := range places {
			key = binary.AppendUvarint(key, uint64(place))
		}
	}
	for _, some := range []struct {
		asked bool
		texts []string
	}{{r.whole, seen.all}, {r.omitted, seen.omitted}} {
		if !some.asked {
			continue
		}
		key = binary.AppendUvarint(key, uint64(len(some.texts)))
		for _, one := range some.texts {
			if key = text(key, one); len(key) > maxKey {
				return nil, false
			}
		}
	}
	return key, len(key) <= maxKey
}

// text appends a text with its length.
func text(key []byte, s string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(s))), s...)
}
