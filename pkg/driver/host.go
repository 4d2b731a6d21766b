package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Host modules are modules that every driver may load without having them: load("lockstep:walk@1", "walk"). They are those of the walk of
// the built-in driver, and those of git@1, whose names begin with git_ (D34). A bundle contains the ones that its programs load, so its
// digest pins their text, and a stored bundle keeps the text that it was built with. The module check is for the programs of check kinds.
const (
	hostPrefix = "lockstep:"
	hostFolder = "lockstep/"
	hostSource = "bundles/argo-rollouts/v1/"
	gitSource  = "bundles/git/v1/"
	gitPrefix  = "git_"
)

// hostLoad is the load of a host module.
var hostLoad = regexp.MustCompile(`(?m)^load\("` + hostPrefix + `([^"]*)"`)

// hostModules returns the texts of all host modules by the name after the prefix.
//
//nolint:gochecknoglobals // written once, by sync.OnceValues
var hostModules = sync.OnceValues(func() (map[string][]byte, error) {
	all := map[string][]byte{}
	err := errors.Join(
		addHost(all, hostSource, "", "idiom", "ask", "fleet", "job", "joint", "move", "stay", "walk"),
		addHost(all, gitSource, gitPrefix, "files", "proposal", "repository", "compare", "examine"),
	)
	if err != nil {
		return nil, err
	}
	if all["check@1"], err = fs.ReadFile(checkKinds, "checks/host/check.star"); err != nil {
		return nil, fmt.Errorf("read host module check: %w", err)
	}
	return all, nil
})

// addHost adds modules of a built-in driver under their names behind a prefix. What they load of each other they load from the host.
func addHost(all map[string][]byte, folder, prefix string, names ...string) error {
	for _, name := range names {
		text, err := fs.ReadFile(bundles, folder+name+".star")
		if err != nil {
			return fmt.Errorf("read host module %s: %w", name, err)
		}
		source := string(text)
		for _, other := range names {
			source = strings.ReplaceAll(source, `load("`+other+`.star"`, `load("`+hostPrefix+prefix+other+`@1"`)
		}
		all[prefix+name+"@1"] = []byte(source)
	}
	return nil
}

// HostModules returns the names of all host modules, as programs load them.
func HostModules() []string {
	all, err := hostModules()
	if err != nil {
		return nil // a defect of the build, which Embedded reports
	}
	names := slices.Sorted(maps.Keys(all))
	for i, name := range names {
		names[i] = hostPrefix + name
	}
	return names
}

// HostModule returns the text of a host module, by the name under which programs load it.
func HostModule(name string) (text []byte, exists bool) {
	all, err := hostModules()
	if err != nil {
		return nil, false
	}
	short, isHost := strings.CutPrefix(name, hostPrefix)
	text, exists = all[short]
	return text, exists && isHost
}

// withHost adds the host modules that the programs of a bundle load. One that the bundle contains already stays as it is.
func withHost(files map[string][]byte) (map[string][]byte, error) {
	all, err := hostModules()
	if err != nil {
		return nil, err
	}
	complete := maps.Clone(files)
	var add func(file string, text []byte) error
	add = func(file string, text []byte) error {
		for _, found := range hostLoad.FindAllSubmatch(text, -1) {
			name := string(found[1])
			path := hostFolder + name + ".star"
			if _, contained := complete[path]; contained {
				continue
			}
			module, known := all[name]
			if !known {
				return fault.New(fault.Invalid, "%s: found load of %q; expected one of %s", file, hostPrefix+name, strings.Join(HostModules(), ", "))
			}
			complete[path] = module
			if err := add(path, module); err != nil {
				return err
			}
		}
		return nil
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(file, ".star") {
			if err := add(file, files[file]); err != nil {
				return nil, err
			}
		}
	}
	return complete, nil
}

// hostOf returns the host modules that a bundle contains, by the names under which programs load them.
func hostOf(files map[string][]byte) map[string][]byte {
	own := map[string][]byte{}
	for path, text := range files {
		if name, isHost := strings.CutPrefix(path, hostFolder); isHost {
			own[hostPrefix+strings.TrimSuffix(name, ".star")] = slices.Clone(text)
		}
	}
	return own
}
