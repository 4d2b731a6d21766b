package function

import (
	"context"

	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/activity"
)

// setDeployment is git.set_deployment.
func setDeployment(forge activity.Forge) *Function {
	return &Function{
		spec: Spec{
			Name: "git.set_deployment", Location: activity.InProcess, Retry: RetryUnavailable, Idempotent: true,
			Effect: activity.Publishes, Touches: touchesRepository,
			Doc: "Has a forge show a deployment of a commit. Answers `{result, why, wait, quota, shared, number}`: `result` is `set`, `unchanged` if the forge shows it\n" +
				"already, `open` if it exists and has yet to be ended, `unsupported` if the forge has no deployments, or `limited` as `git.set_status` answers.\n" +
				"`number` is what the forge calls the deployment, 0 if that is not known.\n\n" +
				"The deployment is found again by `number`. Without it GitHub finds it by `key`, and GitLab among the deployments of the commit and the\n" +
				"environment that have not ended. So a call without it ends none: it makes the deployment, and a second call with its number ends it.\n\n" +
				"The repository needs a credential with a `forge`, of GitHub or GitLab: Gitea and Forgejo have no deployments.",
			Arguments: []Field{
				{Name: "repo_url", Doc: "The repository's URL, `https://…`.", Type: Text, Required: true},
				{Name: "commit", Doc: "The commit that is deployed.", Type: Text, Required: true},
				{Name: "environment", Doc: "The name of the environment at the forge, which makes it if it does not exist.", Type: Text, Required: true},
				{Name: "key", Doc: "What the deployment is found again by at GitHub.", Type: Text, Required: true},
				{Name: "number", Doc: "What the forge calls the deployment; 0 if that is not known.", Type: Number},
				{
					Name: "taken", Doc: "Numbers of deployments that belong to others: GitLab, which keeps no key, takes none of them for this one.", Type: List,
					Element: &Field{Type: Number, Required: true},
				},
				{
					Name: "state", Doc: "The state. GitLab has no `queued`, and knows by itself which deployment is the latest.", Type: Text, Required: true,
					OneOf: activity.DeploymentStates(),
				},
				{Name: "description", Doc: "What it says, of which GitHub gets 140 characters, and GitLab none.", Type: Text, Empty: true},
				{Name: "url", Doc: "Where there is more about it. GitLab shows none.", Type: Text, Empty: true},
				{Name: "environment_url", Doc: "Where what is deployed is reached. GitHub shows it with the deployment, GitLab as the external URL of the environment.", Type: Text},
				{Name: "production", Doc: "Whether people use the environment. GitLab guesses it by the name.", Type: Flag},
				gitCredentialField(),
			},
		},
		do: func(ctx context.Context, call activity.Call) (any, error) {
			number, _ := whole(call.Args["number"])
			production, _ := call.Args["production"].(bool)
			given, _ := call.Args["taken"].([]any)
			taken := make([]int64, len(given))
			for i, one := range given {
				taken[i], _ = whole(one)
			}
			r, err := forge.SetDeployment(withLogin(ctx, call), activity.DeploymentRequest{
				Organization: call.Organization, RepoURL: text(call.Args, "repo_url"), Commit: text(call.Args, "commit"),
				Environment: text(call.Args, "environment"), Key: text(call.Args, "key"), Number: number, Taken: taken, State: text(call.Args, "state"),
				Description: text(call.Args, "description"), URL: text(call.Args, "url"), Production: production,
				EnvironmentURL: text(call.Args, "environment_url"),
			})
			if err != nil {
				return nil, withoutForge(err)
			}
			return deploymentAnswer(r), nil
		},
	}
}

// deploymentAnswer is the answer of git.set_deployment.
func deploymentAnswer(r activity.DeploymentReport) any {
	result := "set"
	switch {
	case r.Open:
		result = "open"
	case r.Unchanged:
		result = "unchanged"
	}
	answer := limitAnswer(r.Limit, result)
	answer["number"] = r.Number
	if r.Unsupported != "" {
		answer["result"], answer["why"] = "unsupported", r.Unsupported
	}
	return answer
}
