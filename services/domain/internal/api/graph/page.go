package graph

import (
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/services/domain/internal/api/graph/model"
	"github.com/lockstep-cd/lockstep/services/domain/internal/core"
)

const (
	defaultPage = 50
	// maxPage is how many items one page has at most; a request for more gets as many, and a cursor for the rest.
	maxPage = 200
	// maxCursor is more than any cursor of ours has.
	maxCursor = 512
)

// page reads the arguments of a connection. An error names the argument.
func page(first *int, after *string) (core.Page, error) {
	p := core.Page{First: defaultPage}
	if first != nil {
		p.First = *first
	}
	if p.First < 1 {
		return core.Page{}, fault.InvalidFields(fault.Field{Name: "first", Problem: fmt.Sprintf("found %d; expected at least 1 (more than %d is %d)", p.First, maxPage, maxPage)})
	}
	p.First = min(p.First, maxPage)
	if after != nil {
		p.After = *after
	}
	if len(p.After) > maxCursor {
		return core.Page{}, fault.InvalidFields(fault.Field{Name: "after", Problem: fmt.Sprintf("found %d bytes; expected an endCursor of this list", len(p.After))})
	}
	return p, nil
}

func pageInfo[T any](s core.Slice[T]) model.PageInfo {
	info := model.PageInfo{HasNextPage: s.HasNext}
	if s.EndCursor != "" {
		info.EndCursor = &s.EndCursor
	}
	return info
}
