package client

import "context"

// ArchiveApplication takes an application, given by name or identifier, out of use.
func (c *Client) ArchiveApplication(ctx context.Context, application, reason string) (Application, error) {
	return change[Application](ctx, c, "archiveApplication", "ArchiveApplicationInput", "application", applicationFields,
		map[string]any{"application": application, "reason": reason})
}

// ArchiveEnvironment takes an environment out of use.
func (c *Client) ArchiveEnvironment(ctx context.Context, environment, reason string) (Environment, error) {
	return change[Environment](ctx, c, "archiveEnvironment", "ArchiveEnvironmentInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "reason": reason})
}

// RestoreApplication takes an archived application, given by name or identifier, into use again.
func (c *Client) RestoreApplication(ctx context.Context, application, reason string) (Application, error) {
	return change[Application](ctx, c, "restoreApplication", "RestoreApplicationInput", "application", applicationFields,
		map[string]any{"application": application, "reason": reason})
}

// RestoreEnvironment takes an archived environment into use again.
func (c *Client) RestoreEnvironment(ctx context.Context, environment, reason string) (Environment, error) {
	return change[Environment](ctx, c, "restoreEnvironment", "RestoreEnvironmentInput", "environment", environmentFields,
		map[string]any{"environmentId": environment, "reason": reason})
}

// JournalCheck is what came of rebuilding states from the journal.
type JournalCheck struct {
	Rollouts    int                 `json:"rollouts"`
	Rows        int                 `json:"rows"`
	Differences []JournalDifference `json:"differences"`
}

// JournalDifference is one place where a cached state and the journal part.
type JournalDifference struct {
	Subject string `json:"subject"`
	Problem string `json:"problem"`
}

// CheckJournal rebuilds the states of every rollout of the organization from the journal, page by page; progress is told
// of each.
func (c *Client) CheckJournal(ctx context.Context, progress func(JournalCheck)) (JournalCheck, error) {
	total := JournalCheck{Differences: []JournalDifference{}}
	_, err := all(0, func(first int, after *string) (connection[struct{}], error) {
		var data struct {
			JournalCheck struct {
				JournalCheck
				connection[struct{}]
			}
		}
		err := c.do(ctx, `query($first: Int, $after: String) { journalCheck(first: $first, after: $after) { rollouts rows differences { subject problem } `+
			pageInfo+` } }`, map[string]any{"first": first, "after": after}, &data)
		page := data.JournalCheck
		total.Rollouts, total.Rows = total.Rollouts+page.Rollouts, total.Rows+page.Rows
		total.Differences = append(total.Differences, page.Differences...)
		if err == nil {
			progress(total)
		}
		return page.connection, err
	})
	return total, err
}
