package core

import (
	"regexp"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Refusal is a part of a delivery that was left out. It is free of secrets and bounded in size, since it comes from a sender and is stored
// and shown.
type Refusal struct {
	// What is the artifact, or the field of the delivery if the artifact is unknown.
	What string
	// Reason says what was found and what was expected.
	Reason string
	// Denied means that the sender may not report it, as opposed to a malformed part.
	Denied bool
	// Foreign means that it is about something other than an artifact.
	Foreign bool
	// Fields are the fields at fault, for the response to the sender. They are not stored.
	Fields []fault.Field
}

// foreign returns the refusal of a notification about something else.
func foreign(n Notification) Refusal {
	r := refused("", []fault.Field{{Name: n.Names.ID, Problem: n.Foreign}})
	r.Foreign = true
	return r
}

const (
	// maxRefusals is how many refusals of one delivery are stored and returned.
	maxRefusals = 20
	// maxWhat and maxReason are in bytes.
	maxWhat   = 300
	maxReason = 1000
)

// credentials matches a user and a password, or a token, before a host: at the beginning of a reference or an address, not of one of its
// parts.
var credentials = regexp.MustCompile(`(^|[\s"'(]|//)[^\s"'/@]+@([^\s"'/@]*)`)

// refused returns a refusal because of fields of the named artifact; an empty name is replaced by that of the first field.
func refused(what string, fields []fault.Field) Refusal {
	if what == "" && len(fields) > 0 {
		what = fields[0].Name
	}
	reasons := make([]string, len(fields))
	for i, f := range fields {
		reasons[i] = f.Name + ": " + f.Problem
	}
	return Refusal{What: what, Reason: strings.Join(reasons, "; "), Fields: fields}.clean()
}

// Unreadable returns the refusals for a parser's error, one for each field that it names.
func Unreadable(err error) []Refusal {
	var all []Refusal
	for _, f := range fault.FieldsOf(err) {
		all = append(all, refused("", []fault.Field{f}))
	}
	if err != nil && len(all) == 0 {
		all = append(all, Refusal{What: "body", Reason: fault.Public(err)}.clean())
	}
	return all
}

// clean returns r with bounded texts, without possible passwords.
func (r Refusal) clean() Refusal {
	r.What, r.Reason = clean(r.What, maxWhat), clean(r.Reason, maxReason)
	return r
}

func clean(s string, most int) string {
	s = credentials.ReplaceAllString(s, "$1***@$2")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// boundedRefusals keeps the first refusals of a delivery.
func boundedRefusals(all []Refusal) []Refusal {
	if len(all) <= maxRefusals {
		return all
	}
	return append(all[:maxRefusals-1:maxRefusals-1], Refusal{What: "…", Reason: "more parts of the same delivery were left out than are kept"})
}

// label names an artifact in a refusal: image:tag@digest, as far as known.
func label(n Notification) string {
	s := n.Image
	if n.Place != "" {
		s = n.Place + "/" + s
	}
	if n.Tag != "" {
		s += ":" + n.Tag
	}
	if n.Digest != "" {
		s += "@" + n.Digest
	}
	return s
}
