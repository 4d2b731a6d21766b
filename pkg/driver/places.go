package driver

import (
	"encoding/json"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
)

// Place is a part of a cluster, of a repository or of a server that a rollout changes. Members that are empty mean all of them.
type Place struct {
	// AgentID is the number of the agent of a cluster; 0 for a repository and a server.
	AgentID int64 `json:"agent_id,omitempty"`
	// Application is an Argo CD Application, as namespace/name.
	Application string `json:"application,omitempty"`
	// Namespace is a namespace of the cluster, and Name an object in it.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Repository is the URL of a Git repository, or AnyRepository; Path is a file or folder.
	Repository string `json:"repository,omitempty"`
	Branch     string `json:"branch,omitempty"`
	Path       string `json:"path,omitempty"`
	// URL is a URL of a server with everything below its path, or AnyURL.
	URL string `json:"url,omitempty"`
}

// AnyRepository is the repository of a Place that has all of them, and AnyURL the URL of one that has all servers.
const (
	AnyRepository = "*"
	AnyURL        = "*"
)

// placeForm has pointers for the members of a Place.
type placeForm struct {
	Agent                string `json:"agent"`
	Application          string `json:"application"`
	ApplicationNamespace string `json:"application_namespace"`
	Namespace            string `json:"namespace"`
	Name                 string `json:"name"`
	Repository           string `json:"repository"`
	Branch               string `json:"branch"`
	Path                 string `json:"path"`
	URL                  string `json:"url"`
	// URLPath is a path as it is; URLName is a pointer to the name at its end.
	URLPath string `json:"url_path"`
	URLName string `json:"url_name"`
}

// members are the pointers of a form, in an order of their own.
func (f *placeForm) members() []*string {
	return []*string{
		&f.Agent, &f.Application, &f.ApplicationNamespace, &f.Namespace, &f.Name, &f.Repository, &f.Branch, &f.Path, &f.URL, &f.URLName,
	}
}

// DeclaresPlaces reports whether the manifest declares what a rollout changes.
func (b *Bundle) DeclaresPlaces() bool { return len(b.manifest.Places) > 0 }

// Places returns what a rollout of an application in an environment changes, by the configurations of both, which have passed their
// schemas, and by what the setup has discovered (may be nil). It is empty for a driver whose manifest declares no places.
func (b *Bundle) Places(environment, config, discovered json.RawMessage) ([]Place, error) {
	root, err := b.root(environment, config, discovered)
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, form := range b.manifest.Places {
		for _, one := range expand(root, form) {
			if p, ok := resolve(root, one); ok && !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}
	return places, nil
}

// JobNamespace returns the namespace of jobs that name none: the first one that the manifest declares as a place in whole, and that the
// application's configuration names. "" if there is none.
func (b *Bundle) JobNamespace(environment, config json.RawMessage) (string, error) {
	root, err := b.root(environment, config, nil)
	if err != nil {
		return "", err
	}
	for _, form := range b.manifest.Places {
		if _, ofConfig := form.configNamespace(); ofConfig {
			if p, ok := resolve(root, form); ok {
				return p.Namespace, nil
			}
		}
	}
	return "", nil
}

// configNamespace is the member of an application's configuration that names the namespace of a place; false if the place is no namespace,
// or one that is named elsewhere.
func (f placeForm) configNamespace() (string, bool) {
	name, ofConfig := strings.CutPrefix(f.Namespace, "/config/")
	return name, ofConfig && !strings.Contains(name, "/") && f.Name == ""
}

// root is what the pointers of places lead into.
func (b *Bundle) root(environment, config, discovered json.RawMessage) (map[string]any, error) {
	root := map[string]any{}
	for name, text := range map[string]json.RawMessage{"environment": environment, "config": config, "discovered": discovered} {
		if len(text) == 0 {
			continue
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			return nil, fault.Because(err, fault.Invalid, "driver %s: %s is not JSON", b.Ref(), name)
		}
		root[name] = value
	}
	if err := b.addDefaults(root, "environment", b.manifest.EnvironmentSchema); err != nil {
		return nil, err
	}
	if err := b.addDefaults(root, "config", b.manifest.ApplicationEnvironmentSchema); err != nil {
		return nil, err
	}
	return root, nil
}

// addDefaults adds the defaults that a schema declares for members that a configuration leaves out.
func (b *Bundle) addDefaults(root map[string]any, name, file string) error {
	config, isObject := root[name].(map[string]any)
	if !isObject {
		return nil
	}
	var form struct {
		Properties map[string]struct {
			Default any `json:"default"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(b.files[file], &form); err != nil {
		return fault.Because(err, fault.Invalid, "driver %s: %s is not JSON", b.Ref(), file)
	}
	for member, property := range form.Properties {
		if _, given := config[member]; !given && property.Default != nil {
			config[member] = property.Default
		}
	}
	return nil
}

// expand replaces the first * of a form by each of its items, and repeats that: pointers with the same beginning get the same item.
func expand(root any, form placeForm) []placeForm {
	before, found := "", false
	for _, p := range form.members() {
		if b, _, star := strings.Cut(*p, "/*"); star {
			before, found = b, true
			break
		}
	}
	if !found {
		return []placeForm{form}
	}
	value, _ := lookUp(root, before)
	var keys []string
	switch items := value.(type) {
	case map[string]any:
		keys = slices.Sorted(maps.Keys(items))
	case []any:
		for i := range items {
			keys = append(keys, strconv.Itoa(i))
		}
	}
	var all []placeForm
	for _, key := range keys {
		one := form
		for _, p := range one.members() {
			if after, same := strings.CutPrefix(*p, before+"/*"); same {
				*p = before + "/" + escape(key) + after
			}
		}
		all = append(all, expand(root, one)...)
	}
	return all
}

// resolve reads the members of a place; false if a pointer leads nowhere.
func resolve(root any, form placeForm) (Place, bool) {
	complete := true
	text := func(pointer string) string {
		if pointer == "" {
			return ""
		}
		value, found := lookUp(root, pointer)
		s, isText := value.(string)
		complete = complete && found && isText && s != ""
		return s
	}
	p := Place{
		Namespace: text(form.Namespace), Name: text(form.Name),
		Repository: text(form.Repository), Branch: text(form.Branch), URL: text(form.URL),
	}
	if p.URL != "" && p.URL != AnyURL && !strings.Contains(p.URL, "://") {
		p.URL = "https://" + p.URL // R2-33
	}
	if name := text(form.URLName); p.URL != "" && form.URLPath != "" {
		p.URL = strings.TrimSuffix(p.URL, "/") + form.URLPath + url.PathEscape(name)
	}
	if form.Application != "" {
		p.Application = text(form.ApplicationNamespace) + "/" + text(form.Application)
	}
	if file := text(form.Path); file != "" {
		p.Path = strings.TrimPrefix(path.Clean(file), "/") // as git.commit has it
	}
	if form.Agent != "" {
		value, _ := lookUp(root, form.Agent)
		number, isNumber := value.(float64)
		p.AgentID = int64(number)
		complete = complete && isNumber && p.AgentID > 0
	}
	return p, complete
}

// lookUp follows a JSON pointer.
func lookUp(value any, pointer string) (any, bool) {
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch at := value.(type) {
		case map[string]any:
			member, found := at[token]
			if !found {
				return nil, false
			}
			value = member
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			value = at[i]
		default:
			return nil, false
		}
	}
	return value, true
}

func escape(token string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(token) }
