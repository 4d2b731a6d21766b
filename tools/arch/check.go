package main

import (
	"fmt"
	"slices"
	"strings"
)

// check judges packages against the table, and returns one line per violation.
func check(packages []pkg) []string {
	var found []string
	for _, p := range packages {
		path, ok := strings.CutPrefix(p.ImportPath, root)
		if !ok {
			found = append(found, fmt.Sprintf("%s: a module path outside %s", p.ImportPath, strings.TrimSuffix(root, "/")))
			continue
		}
		if slices.Contains(badNames(), p.Name) {
			found = append(found, fmt.Sprintf("%s: the package name %q does not say what it holds", path, p.Name))
		}
		r, service, ok := ruleFor(path)
		if !ok {
			found = append(found, path+": no rule knows this layer; use one that all services share, or add the adapter to the table")
			continue
		}
		if r.layer == unlisted {
			found = append(found, path+": the list of rooms does not have this package; add it to rooms in the table, above what it imports")
			continue
		}
		found = append(found, r.judge(path, service, p.Imports)...)
		found = append(found, services(path, append(slices.Clone(p.TestImports), p.XTestImports...))...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// ruleFor returns the rule of a package, and the service that it belongs to ("" for none).
func ruleFor(path string) (rule, string, bool) {
	for _, r := range table() {
		for _, pattern := range r.packages {
			if service, ok := match(pattern, path, ""); ok {
				return r, service, true
			}
		}
	}
	return rule{}, "", false
}

// judge returns the imports of a package that break its layer's rule.
func (r rule) judge(path, service string, imports []string) []string {
	var found []string
	for _, imported := range imports {
		own, isOurs := strings.CutPrefix(imported, root)
		third := !isOurs && strings.Contains(strings.SplitN(imported, "/", 2)[0], ".")
		switch {
		case isOurs && !anyMatch(r.ours, own, service):
			found = append(found, fmt.Sprintf("%s: imports %s, and the layer %q may only import %s",
				path, own, r.layer, strings.Join(r.ours, ", ")))
		case !isOurs && anyMatch(r.never, imported, ""), isOurs && anyMatch(r.never, own, service), third && r.onlyStandard:
			found = append(found, fmt.Sprintf("%s: imports %s, which the layer %q never does", path, imported, r.layer))
		}
	}
	return found
}

// services returns imports of one service by another, which are forbidden even in tests.
func services(path string, imports []string) []string {
	service, ok := serviceOf(path)
	if !ok {
		return nil
	}
	var found []string
	for _, imported := range imports {
		own, _ := strings.CutPrefix(imported, root)
		if other, ok := serviceOf(own); ok && other != service {
			found = append(found, fmt.Sprintf("%s: a test imports %s: services know each other by contract only", path, own))
		}
	}
	return found
}

func serviceOf(path string) (string, bool) {
	parts := strings.Split(path, "/")
	if len(parts) < 2 || parts[0] != "services" {
		return "", false
	}
	return parts[1], true
}

func anyMatch(patterns []string, path, service string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		_, ok := match(pattern, path, service)
		return ok
	})
}

// match compares a path with a pattern of the table. SERVICE matches only service when that is given, and else any one
// element, which it returns.
func match(pattern, path, service string) (string, bool) {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, w := range want {
		if w == "**" {
			return service, true
		}
		if i >= len(have) {
			return "", false
		}
		switch {
		case w == "SERVICE" && service == "":
			service = have[i]
		case w == "SERVICE" && service != have[i], w != "SERVICE" && w != "*" && w != have[i]:
			return "", false
		}
	}
	return service, len(want) == len(have)
}
