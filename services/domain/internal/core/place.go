package core

// Place is a part of a cluster, of a repository, or of a server. Members that are empty mean all of them. It is stored and sent, so the
// JSON names never change.
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

// Territory is what belongs to an environment by itself, or to one application in it.
type Territory struct {
	EnvironmentID int64
	Name          string
	// ApplicationID is 0 for what the environment has by itself.
	ApplicationID int64
	// Protected is that only its own rollouts may change the environment, and Archived that it is not used any more. Both are of the
	// environment itself.
	Protected, Archived bool
	Places              []Place
}
