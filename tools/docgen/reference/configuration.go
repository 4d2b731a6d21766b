package reference

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/config"
	"github.com/lockstep-cd/lockstep/services/domain"
	"github.com/lockstep-cd/lockstep/services/registry"
	"github.com/lockstep-cd/lockstep/services/relay"
	"github.com/lockstep-cd/lockstep/services/workflow"
)

// configured is a service and the keys of its configuration.
type configured struct {
	service string
	keys    []config.Key
}

// services are the services that read a configuration.
func services() []configured {
	return []configured{
		{"registry", config.Keys[registry.Config]("registry")},
		{"domain", config.Keys[domain.Config]("domain")},
		{"workflow", config.Keys[workflow.Config]("workflow")},
		{"relay", config.Keys[relay.Config]("relay")},
	}
}

// configuration is the page about configuration, and one page for each service.
func configuration(root string) ([]*page, error) {
	overview, err := newPage("configuration.md", "the configuration of the services")
	if err != nil {
		return nil, err
	}
	pages, from := []*page{overview}, newComments(root)
	for _, s := range services() {
		p, err := newPage("configuration/"+s.service+".md", "services/"+s.service+"/config.go")
		if err != nil {
			return nil, err
		}
		if err := writeKeys(p, from, s.keys); err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", s.service, err)
		}
		pages = append(pages, p)
	}
	return pages, nil
}

// writeKeys has a section for each key, and a table of the keys inside a list in the list's section.
func writeKeys(p *page, from *comments, keys []config.Key) error {
	for i, key := range keys {
		if strings.Contains(key.Name, "[]") {
			continue
		}
		meaning, err := meaningOf(from, keys, key)
		if err != nil {
			return err
		}
		p.heading(2, key.Name)
		if !key.Group {
			p.list(facts(key)...)
		}
		p.paragraph(meaning)
		items, err := itemRows(from, keys, keys[i+1:], key.Name+"[].")
		if err != nil {
			return err
		}
		p.table([]string{"Key of an item", "Type", "Default", "Meaning"}, items)
	}
	return nil
}

// facts are what a reader looks up first.
func facts(key config.Key) []string {
	variable := "Environment variable: " + code(key.Variable)
	if key.Shared != "" {
		variable += ", or " + code(key.Shared) + " for all services"
	}
	kind := "Type: " + key.Type
	if key.Secret {
		kind += ", secret"
	}
	all := []string{variable, kind}
	if key.Default != "" {
		all = append(all, "Default: "+code(key.Default))
	}
	return all
}

// itemRows are the rows of the keys that begin with under, which come first in rest.
func itemRows(from *comments, all, rest []config.Key, under string) ([][]string, error) {
	var rows [][]string
	for _, key := range rest {
		name, inside := strings.CutPrefix(key.Name, under)
		if !inside {
			break
		}
		meaning, err := meaningOf(from, all, key)
		if err != nil {
			return nil, err
		}
		kind := key.Type
		if key.Secret {
			kind += ", secret"
		}
		rows = append(rows, []string{code(name), kind, code(key.Default), strings.ReplaceAll(meaning, "\n\n", " ")})
	}
	return rows, nil
}

// meaningOf is the comment of a key's field as Markdown, with keys in place of the names of Go fields.
func meaningOf(from *comments, keys []config.Key, key config.Key) (string, error) {
	text, err := from.field(key.Struct, key.Field.Name)
	if err != nil {
		return "", err
	}
	text = withNames(text, key.Struct, func(f reflect.StructField) string { return lastOf(keys, key.Struct, f) })
	return prose(withKeys(text, keys)), nil
}

// withKeys marks the keys that a comment names, as code.
func withKeys(text string, keys []config.Key) string {
	return keyName.ReplaceAllStringFunc(text, func(name string) string {
		if slices.ContainsFunc(keys, func(key config.Key) bool { return key.Name == name }) {
			return "`" + name + "`"
		}
		return name
	})
}

// keyName is a word that can only be a key, or what is marked otherwise already.
var keyName = regexp.MustCompile("`[^`]*`|<[^<>]*>|\\b[a-z0-9]+(?:[._][a-z0-9]+)+\\b")

// lastOf is the key of a field without the keys that it is inside of; empty for a field that is no key.
func lastOf(keys []config.Key, of reflect.Type, f reflect.StructField) string {
	for _, key := range keys {
		if key.Struct == of && key.Field.Name == f.Name {
			return key.Name[strings.LastIndexByte(key.Name, '.')+1:]
		}
	}
	return ""
}
