package client

import (
	"context"
	"time"
)

// ForgeMirror records that the checks of an application are published as statuses of commits.
type ForgeMirror struct {
	Application string `json:"application"`
	// Environments are those whose checks are published; none for all.
	Environments []string `json:"environments"`
	// Credential is empty for the one with the longest matching URL.
	Credential string `json:"credential"`
	Enabled    bool   `json:"enabled"`
	// Plans is whether the plans of pull requests are about the application, too; nil to leave it as it is.
	Plans *bool `json:"plans,omitempty"`
	// Deployments is whether its deployments are published, too; nil to leave it as it is.
	Deployments *bool `json:"deployments,omitempty"`
	// Addresses are where the application is reached, by environment; nil to leave them as they are.
	Addresses []EnvironmentAddress `json:"addresses,omitempty"`
	// Author and ChangedAt are who saved it last, and when.
	Author    string    `json:"author,omitempty"`
	ChangedAt time.Time `json:"changedAt"`
}

// EnvironmentAddress is where an application is reached in an environment.
type EnvironmentAddress struct {
	Environment string `json:"environment"`
	URL         string `json:"url"`
}

// ForgeStatus is a status of a commit at its forge, or a deployment of it.
type ForgeStatus struct {
	// Number identifies it within the organization.
	Number int `json:"number"`
	// Kind is STATUS or DEPLOYMENT.
	Kind       string `json:"kind"`
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
	Name       string `json:"name"`
	// Phase is PENDING, SUCCESS or FAILURE.
	Phase string `json:"phase"`
	// Stage is QUEUED, IN_PROGRESS, SUCCESS, FAILURE or INACTIVE of a deployment, RolloutID its rollout, and ForgeNumber what the forge calls
	// it.
	Stage       string `json:"stage,omitempty"`
	RolloutID   string `json:"rolloutId,omitempty"`
	ForgeNumber *int   `json:"forgeNumber,omitempty"`
	Description string `json:"description"`
	Link        string `json:"link"`
	// State is PENDING, SENDING, SENT or FAILED.
	State string `json:"state"`
	// Error is why the last attempt failed, Attempts how many were refused since it was sent last.
	Error    string `json:"error"`
	Attempts int    `json:"attempts"`
	// DueAt is when it is tried next, SentAt when it was sent last.
	DueAt  *time.Time `json:"dueAt,omitempty"`
	SentAt *time.Time `json:"sentAt,omitempty"`
}

// ForgeHost is a server that statuses of commits are sent to.
type ForgeHost struct {
	Host string `json:"host"`
	// Waiting is how many statuses wait for it or are being sent.
	Waiting int `json:"waiting"`
	// PausedUntil is before when no status is sent there, Problem why the last attempt failed because of the server.
	PausedUntil *time.Time `json:"pausedUntil,omitempty"`
	Problem     string     `json:"problem"`
	// QuotaLimit, QuotaRemaining and QuotaResetsAt are how many requests it accepts; nil where it does not say.
	QuotaLimit     *int       `json:"quotaLimit,omitempty"`
	QuotaRemaining *int       `json:"quotaRemaining,omitempty"`
	QuotaResetsAt  *time.Time `json:"quotaResetsAt,omitempty"`
}

// ForgeHook is where a forge reports statuses of commits to.
type ForgeHook struct {
	// Number identifies it within the organization.
	Number int `json:"number"`
	// Forge is GITHUB, GITLAB or GITEA.
	Forge string `json:"forge"`
	// Repositories are patterns of those that it may report about, CheckKeys the checks that its reports count for; none for all.
	Repositories []string `json:"repositories"`
	CheckKeys    []string `json:"checkKeys"`
	// Plans is whether the plans of pull requests that it reports are written into a comment on them.
	Plans bool `json:"plans"`
	// Commands is whether commands are taken that comments on pull requests of proposed changes begin with.
	Commands bool `json:"commands"`
	// Author is who made it, at CreatedAt; ReportedAt is when it last reported what was not known.
	Author     string     `json:"author"`
	CreatedAt  time.Time  `json:"createdAt"`
	ReportedAt *time.Time `json:"reportedAt,omitempty"`
}

// ForgeReport is a status of a commit that a forge has reported.
type ForgeReport struct {
	// Number identifies it within the organization; Hook is the number of the hook that has received it.
	Number     int    `json:"number"`
	Hook       int    `json:"hook"`
	Repository string `json:"repository"`
	Commit     string `json:"commit"`
	Context    string `json:"context"`
	// Kind is STATUS or RUN; empty where the report did not say it. Phase is PENDING, SUCCESS or FAILURE.
	Kind        string `json:"kind,omitempty"`
	Phase       string `json:"phase"`
	Description string `json:"description"`
	Link        string `json:"link"`
	// ObservedAt is when the forge had it, ChangedAt when it was recorded.
	ObservedAt time.Time `json:"observedAt"`
	ChangedAt  time.Time `json:"changedAt"`
	// Counted is whether a version set that was rolled out comes from the commit.
	Counted bool `json:"counted"`
}

// ForgeRefusal is a part of a delivery to a hook that was left out.
type ForgeRefusal struct {
	Hook   int    `json:"hook"`
	What   string `json:"what"`
	Reason string `json:"reason"`
	// Times is how often the same was left out.
	Times   int       `json:"times"`
	FirstAt time.Time `json:"firstAt"`
	LastAt  time.Time `json:"lastAt"`
}

// ForgePull is a pull request whose plan is written into a comment on it.
type ForgePull struct {
	// Number identifies it within the organization, Repository and PullRequest at the forge.
	Number      int    `json:"number"`
	Repository  string `json:"repository"`
	PullRequest int    `json:"pullRequest"`
	// Commit was planned last, and Link is where the comment is.
	Commit string `json:"commit"`
	Link   string `json:"link"`
	// State is PENDING, SENDING, SENT or FAILED; Outcome what became of it, and Error why the last attempt failed.
	State   string `json:"state"`
	Outcome string `json:"outcome"`
	Error   string `json:"error"`
	// DueAt is when it is tried next, EndedAt when it was last done with.
	DueAt   *time.Time `json:"dueAt,omitempty"`
	EndedAt *time.Time `json:"endedAt,omitempty"`
}

// MadeForgeHook is a hook with what the forge has to be given.
type MadeForgeHook struct {
	Hook ForgeHook `json:"hook"`
	// Path is at the address of the registry service.
	Path   string `json:"path"`
	Secret string `json:"secret"`
}

const (
	forgeHookFields   = `number forge repositories checkKeys plans commands author createdAt reportedAt`
	forgeMirrorFields = `application environments credential enabled plans deployments addresses { environment url } author changedAt`
	forgeStatusFields = `number kind repository commit name phase stage rolloutId forgeNumber description link state error attempts dueAt sentAt`
	forgePullFields   = `number repository pullRequest commit link state outcome error dueAt endedAt`
	forgeReportFields = `number hook repository commit context kind phase description link observedAt changedAt counted`
	forgeHostFields   = `host waiting pausedUntil problem quotaLimit quotaRemaining quotaResetsAt`
)

// ForgeMirrors reads which applications are published.
func (c *Client) ForgeMirrors(ctx context.Context) ([]ForgeMirror, error) {
	var data struct{ ForgeMirrors []ForgeMirror }
	err := c.do(ctx, `{ forgeMirrors { `+forgeMirrorFields+` } }`, nil, &data)
	return data.ForgeMirrors, err
}

// ForgeStatuses reads statuses and deployments of commits, the newest first. State, kind and commit are empty for all.
func (c *Client) ForgeStatuses(ctx context.Context, state, kind, commit string, first int) ([]ForgeStatus, error) {
	var data struct{ ForgeStatuses []ForgeStatus }
	variables := map[string]any{"first": first}
	if state != "" {
		variables["state"] = state
	}
	if kind != "" {
		variables["kind"] = kind
	}
	if commit != "" {
		variables["commit"] = commit
	}
	err := c.do(ctx, `query($state: ForgeStatusState, $kind: ForgePublicationKind, $commit: String, $first: Int!) {
		forgeStatuses(state: $state, kind: $kind, commit: $commit, first: $first) { `+forgeStatusFields+` } }`, variables, &data)
	return data.ForgeStatuses, err
}

// ForgeHosts reads the servers that statuses are sent to.
func (c *Client) ForgeHosts(ctx context.Context) ([]ForgeHost, error) {
	var data struct{ ForgeHosts []ForgeHost }
	err := c.do(ctx, `{ forgeHosts { `+forgeHostFields+` } }`, nil, &data)
	return data.ForgeHosts, err
}

// PutForgeMirror has the checks of an application published, changes how, or ends it.
func (c *Client) PutForgeMirror(ctx context.Context, m ForgeMirror, reason string) (ForgeMirror, error) {
	if m.Environments == nil {
		m.Environments = []string{}
	}
	input := map[string]any{
		"application": m.Application, "environments": m.Environments, "credential": m.Credential, "enabled": m.Enabled, "reason": reason,
	}
	if m.Plans != nil {
		input["plans"] = *m.Plans
	}
	if m.Deployments != nil {
		input["deployments"] = *m.Deployments
	}
	if m.Addresses != nil {
		input["addresses"] = m.Addresses
	}
	return change[ForgeMirror](ctx, c, "putForgeMirror", "PutForgeMirrorInput", "mirror", forgeMirrorFields, input)
}

// ForgePulls reads pull requests whose plans are written into a comment, the newest first.
func (c *Client) ForgePulls(ctx context.Context, first int) ([]ForgePull, error) {
	var data struct{ ForgePulls []ForgePull }
	err := c.do(ctx, `query($first: Int!) { forgePulls(first: $first) { `+forgePullFields+` } }`, map[string]any{"first": first}, &data)
	return data.ForgePulls, err
}

// ForgeHooks reads the hooks to which forges report statuses of commits.
func (c *Client) ForgeHooks(ctx context.Context) ([]ForgeHook, error) {
	var data struct{ ForgeHooks []ForgeHook }
	err := c.do(ctx, `{ forgeHooks { `+forgeHookFields+` } }`, nil, &data)
	return data.ForgeHooks, err
}

// ForgeReports reads what forges have reported of commits, the newest first. Commit is empty for all.
func (c *Client) ForgeReports(ctx context.Context, commit string, before, first int) ([]ForgeReport, error) {
	var data struct{ ForgeReports []ForgeReport }
	variables := map[string]any{"first": first}
	if commit != "" {
		variables["commit"] = commit
	}
	if before != 0 {
		variables["before"] = before
	}
	err := c.do(ctx, `query($commit: String, $before: Int, $first: Int!) {
		forgeReports(commit: $commit, before: $before, first: $first) { `+forgeReportFields+` } }`, variables, &data)
	return data.ForgeReports, err
}

// ForgeRefusals reads what was left out of the deliveries to hooks, the latest first.
func (c *Client) ForgeRefusals(ctx context.Context) ([]ForgeRefusal, error) {
	var data struct{ ForgeRefusals []ForgeRefusal }
	err := c.do(ctx, `{ forgeRefusals { hook what reason times firstAt lastAt } }`, nil, &data)
	return data.ForgeRefusals, err
}

// AddForgeHook makes a hook: of its fields, forge, repositories, check keys, plans and commands count.
func (c *Client) AddForgeHook(ctx context.Context, h ForgeHook, reason string) (MadeForgeHook, error) {
	return change[MadeForgeHook](ctx, c, "addForgeHook", "AddForgeHookInput", "made", `hook { `+forgeHookFields+` } path secret`, map[string]any{
		"forge": h.Forge, "repositories": append([]string{}, h.Repositories...), "checkKeys": append([]string{}, h.CheckKeys...), "plans": h.Plans,
		"commands": h.Commands, "reason": reason,
	})
}

// RemoveForgeHook removes a hook.
func (c *Client) RemoveForgeHook(ctx context.Context, number int, reason string) (ForgeHook, error) {
	return change[ForgeHook](ctx, c, "removeForgeHook", "RemoveForgeHookInput", "hook", forgeHookFields, map[string]any{"number": number, "reason": reason})
}

// Retried is how many statuses are sent again.
type Retried struct {
	Count int `json:"count"`
	// More is that there are others that were given up.
	More bool `json:"more"`
}

// RetryForgeStatuses sends statuses again that were given up: one, or the oldest for 0.
func (c *Client) RetryForgeStatuses(ctx context.Context, number int, reason string) (Retried, error) {
	input := map[string]any{"reason": reason}
	if number != 0 {
		input["number"] = number
	}
	return change[Retried](ctx, c, "retryForgeStatuses", "RetryForgeStatusesInput", "retried", "count more", input)
}

// ForgeAccount is an account at a forge that a member has linked.
type ForgeAccount struct {
	// Number identifies it within the organization.
	Number int `json:"number"`
	// Place is the server and the hook, User the forge's number of the user, and Name what the forge called the user.
	Place string `json:"place"`
	User  string `json:"user"`
	Name  string `json:"name"`
	// Member is what the member is called.
	Member string `json:"member"`
	// Permissions are what it is good for at most.
	Permissions []string  `json:"permissions"`
	LinkedAt    time.Time `json:"linkedAt"`
}

// ForgeCode is a code with which an account at a forge is linked.
type ForgeCode struct {
	// Comment is what the account has to write into a comment on a pull request.
	Comment   string    `json:"comment"`
	Account   string    `json:"account"`
	ExpiresAt time.Time `json:"expiresAt"`
}

const forgeAccountFields = `number place user name member permissions linkedAt`

// ForgeAccounts reads the accounts at forges that members have linked.
func (c *Client) ForgeAccounts(ctx context.Context) ([]ForgeAccount, error) {
	var data struct{ ForgeAccounts []ForgeAccount }
	err := c.do(ctx, `{ forgeAccounts { `+forgeAccountFields+` } }`, nil, &data)
	return data.ForgeAccounts, err
}

// MakeForgeCode makes a code for an account of the viewer at a hook.
func (c *Client) MakeForgeCode(ctx context.Context, hook int, account string) (ForgeCode, error) {
	return change[ForgeCode](ctx, c, "makeForgeAccountCode", "MakeForgeAccountCodeInput", "made", "comment account expiresAt",
		map[string]any{"hook": hook, "account": account})
}

// UnlinkForgeAccount ends that an account is a member's, and answers it as it was.
func (c *Client) UnlinkForgeAccount(ctx context.Context, number int, reason string) (ForgeAccount, error) {
	return change[ForgeAccount](ctx, c, "unlinkForgeAccount", "UnlinkForgeAccountInput", "account", forgeAccountFields,
		map[string]any{"number": number, "reason": reason})
}
