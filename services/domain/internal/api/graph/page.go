package graph

import (
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

// How many items a page has by default.
const (
	defaultPage = 50
	matrixPage  = 25
	journalPage = 200
)

const (
	// maxPage is how many items one page has at most; a request for more gets as many, and a cursor for the rest.
	maxPage = 200
	// maxCursor is more than any cursor of ours has.
	maxCursor = 512
)

// page reads the arguments of a connection, usual being how many items it has by default. An error names the
// argument.
func page(usual int, first *int, after *string, last *int, before *string, order *core.Order) (core.Page, error) {
	p := core.Page{First: usual, After: orEmpty(after), Before: orEmpty(before)}
	if order != nil {
		p.Order = *order
	}
	if first != nil && last != nil {
		return p, fault.InvalidFields(fault.Field{
			Name:    "last",
			Problem: "found first as well; expected one of them: a page is counted from one end",
		})
	}
	for _, end := range []struct {
		name  string
		count *int
		into  *int
	}{{"first", first, &p.First}, {"last", last, &p.Last}} {
		if end.count == nil {
			continue
		}
		if *end.count < 1 {
			return p, fault.InvalidFields(fault.Field{
				Name:    end.name,
				Problem: fmt.Sprintf("found %d; expected at least 1 (more than %d is %d)", *end.count, maxPage, maxPage),
			})
		}
		*end.into = min(*end.count, maxPage)
	}
	for name, cursor := range map[string]string{"after": p.After, "before": p.Before} {
		if len(cursor) > maxCursor {
			return p, fault.InvalidFields(fault.Field{
				Name:    name,
				Problem: fmt.Sprintf("found %d bytes; expected a cursor of this list", len(cursor)),
			})
		}
	}
	return p, nil
}

// forward reads the arguments of a connection that is only read from the front.
func forward(first *int, after *string) (core.Page, error) {
	return page(defaultPage, first, after, nil, nil, nil)
}
