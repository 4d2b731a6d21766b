package render

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/ignore"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// ignoredIn says which files of a chart its .helmignore leaves out, as Helm does: files of folders that it names, and files by their names.
func ignoredIn(files map[string][]byte) (func(name string) bool, error) {
	rules, err := ignore.Parse(bytes.NewReader(files[ignore.HelmIgnore]))
	if err != nil {
		return nil, fmt.Errorf("load the chart: %s: %w", ignore.HelmIgnore, err)
	}
	rules.AddDefaults()
	return func(name string) bool {
		for i := range name {
			if name[i] == '/' && rules.Ignore(name[:i], info{name[:i], true}) {
				return true
			}
		}
		return rules.Ignore(name, info{name, false})
	}, nil
}

// info is what rules ask about a path.
type info struct {
	path   string
	folder bool
}

// Name is that of the file.
func (i info) Name() string { return path.Base(i.path) }

// IsDir reports whether it is a folder.
func (i info) IsDir() bool { return i.folder }

// Size is not asked for.
func (info) Size() int64 { return 0 }

// Mode is not asked for.
func (info) Mode() fs.FileMode { return 0 }

// ModTime is not asked for.
func (info) ModTime() time.Time { return time.Time{} }

// Sys is not asked for.
func (info) Sys() any { return nil }

// knownEvents are those of hooks. The library drops a document with another one, and with it an object that nobody misses.
func knownEvents() []string {
	return []string{
		release.HookPreInstall.String(), release.HookPostInstall.String(), release.HookPreDelete.String(), release.HookPostDelete.String(),
		release.HookPreUpgrade.String(), release.HookPostUpgrade.String(), release.HookPreRollback.String(), release.HookPostRollback.String(),
		release.HookTest.String(), "test-success",
	}
}

// orderly refuses hooks that the library does not see as such: inside of a list, which would be applied like other objects, and of an
// unknown event.
func orderly(files map[string]string) error {
	for name, content := range files {
		if strings.HasPrefix(path.Base(name), "_") {
			continue
		}
		for _, document := range releaseutil.SplitManifests(content) {
			var one map[string]any
			if err := yaml.Unmarshal([]byte(document), &one); err != nil {
				continue // the library says what is wrong
			}
			if of, events := hookOf(one); of != "" {
				for event := range strings.SplitSeq(events, ",") {
					if event = strings.ToLower(strings.TrimSpace(event)); !slices.Contains(knownEvents(), event) {
						return fault.New(fault.Invalid, "%s: %s is a hook of the unknown event %.100q; expected one of %s",
							name, of, event, strings.Join(knownEvents(), ", "))
					}
				}
			}
			if hidden := hookIn(one["items"]); hidden != "" {
				return fault.New(fault.Invalid, "%s: found the hook %s inside of a list; expected it in a document of its own", name, hidden)
			}
		}
	}
	return nil
}

// hookOf returns the kind and name of an object that is a hook, and its events; "" for another.
func hookOf(object map[string]any) (of, events string) {
	metadata, _ := object["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	value, hook := annotations[release.HookAnnotation]
	if !hook {
		return "", ""
	}
	return fmt.Sprintf("%v %v", object["kind"], metadata["name"]), fmt.Sprint(value)
}

// hookIn returns a hook among the items of a list.
func hookIn(items any) string {
	all, _ := items.([]any)
	for _, item := range all {
		one, _ := item.(map[string]any)
		if of, _ := hookOf(one); of != "" {
			return of
		}
		if of := hookIn(one["items"]); of != "" {
			return of
		}
	}
	return ""
}
