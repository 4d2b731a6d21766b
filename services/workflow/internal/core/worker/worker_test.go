package worker_test

import (
	"testing"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/worker"
)

// A worker reads arguments in its own way, so a place in another spelling than that of a protected environment must not pass for another
// place: the call then names none, and is refused where anything is protected (D46).
func TestPlacesInAnotherSpellingAreNone(t *testing.T) {
	t.Parallel()
	file := worker.Declaration{Places: []worker.PlaceForm{{Repository: "/repository", Branch: "/branch", Path: "/path"}}}
	server := worker.Declaration{Places: []worker.PlaceForm{{URL: "/url"}}}
	for _, tt := range []struct {
		declaration worker.Declaration
		repository  string
		path        string
		url         string
		want        int
	}{
		{file, "https://git.example.com/shop", "production/api.yaml", "", 1},
		{file, "https://git.example.com/shop", "/production/api.yaml", "", 1},
		{file, "ssh://git@git.example.com/shop", "production", "", 1},
		{file, "https://git.example.com/shop", "x/./../production", "", 0},
		{file, "https://git.example.com/shop", "deploy/./production", "", 0},
		{file, "https://git.example.com/shop", "deploy//production", "", 0},
		{file, "https://git.example.com/shop", "production/", "", 0},
		{file, "https://git.example.com/shop", `deploy\production`, "", 0},
		{file, "git@git.example.com:shop", "production", "", 0},
		{file, "git.example.com/shop", "production", "", 0},
		{server, "", "", "https://deploy.example.com/shop", 1},
		{server, "", "", "deploy.example.com/shop", 0},
		{server, "", "", "https://ｄeploy.example.com/shop", 0},
		{server, "", "", "https://deploy。example.com/shop", 0},
		{server, "", "", "https://deploy.example.com/%zz", 0},
		{server, "", "", "https:deploy.example.com/shop", 0},
	} {
		args := map[string]any{"repository": tt.repository, "branch": "main", "path": tt.path, "url": tt.url}
		if touched := tt.declaration.Touches(args); len(touched) != tt.want {
			t.Errorf("%v: found %v, want %d places", args, touched, tt.want)
		}
	}
}
