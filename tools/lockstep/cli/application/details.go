package application

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// detailFlags are the flags of commands that change labels, the description, the owner and links.
type detailFlags struct {
	labels, unlabel, links, unlink []string
	description, owner, reason     string
}

func (f *detailFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.labels, "label", nil, "a label to set, as `key=value`; repeatable. Its other labels stay")
	flags.StringArrayVar(&f.unlabel, "unlabel", nil, "the `key` of a label to end; repeatable")
	flags.StringArrayVar(&f.links, "link", nil, "a link to set, as `title=address`; repeatable. Its other links stay")
	flags.StringArrayVar(&f.unlink, "unlink", nil, "the `title` of a link to end; repeatable")
	flags.StringVar(&f.owner, "owner", "", "who answers for it, such as a team; empty ends it")
	flags.StringVar(&f.description, "description", "", "description")
	flags.StringVar(&f.reason, "reason", "", "why, for the record")
}

// change is what the flags of a command ask for.
func (f *detailFlags) change(cmd *cobra.Command, subject string) (client.Details, error) {
	d := client.Details{
		Subject: subject, SetLabels: map[string]string{}, UnsetLabels: f.unlabel, SetLinks: []client.Link{},
		UnsetLinks: f.unlink, Reason: f.reason,
	}
	for _, one := range f.labels {
		key, value, both := strings.Cut(one, "=")
		if !both {
			return d, fault.New(fault.Invalid, "label: found %q; expected key=value", one)
		}
		d.SetLabels[key] = value
	}
	for _, one := range f.links {
		title, address, both := strings.Cut(one, "=")
		if !both {
			return d, fault.New(fault.Invalid, "link: found %q; expected title=address", one)
		}
		d.SetLinks = append(d.SetLinks, client.Link{Title: title, URL: address})
	}
	if cmd.Flags().Changed("description") {
		d.Description = &f.description
	}
	if cmd.Flags().Changed("owner") {
		d.Owner = &f.owner
	}
	return d, nil
}

// nothing is the error of a command that changes nothing.
func nothing() error {
	return fault.New(fault.Invalid, "found nothing to change; expected --label, --unlabel, --owner, --description, --link or --unlink")
}

func (c commands) applicationSet() *cobra.Command {
	var flags detailFlags
	cmd := c.Asking("set NAME", "Change the labels, description, owner and links of an application",
		"  lockstep application set shop --label team=payments --label tier=critical\n"+
			"  lockstep application set shop --owner payments --link runbook=https://wiki.example.com/shop\n"+
			"  lockstep application set shop --unlabel tier --reason 'no longer critical'", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			one, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			d, err := flags.change(cmd, one.ID)
			if err != nil {
				return err
			}
			if !d.Labels() && !d.Others() {
				return nothing()
			}
			if one, err = client.SetDetails[client.Application](cmd.Context(), api, d); err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) { applicationDetail(w, one) })
		})
	flags.add(cmd)
	return cmd
}

func (c commands) serviceSet() *cobra.Command {
	var flags detailFlags
	cmd := c.Asking("set APPLICATION SERVICE", "Change the labels, description, owner and links of a service",
		"  lockstep service set shop api --label language=go --owner payments", command.Exactly(2),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			a, err := api.Application(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			at := slices.IndexFunc(a.Services, func(s client.Service) bool { return s.Called(args[1]) })
			if at < 0 {
				return fault.New(fault.NotFound, "service %q of application %q not found", args[1], args[0])
			}
			d, err := flags.change(cmd, a.Services[at].ID)
			if err != nil {
				return err
			}
			if !d.Labels() && !d.Others() {
				return nothing()
			}
			one, err := client.SetDetails[client.Service](cmd.Context(), api, d)
			if err != nil {
				return err
			}
			return c.Print(one, func(w io.Writer) {
				serviceTable(w, args[0], []client.Service{one})
				detailRows(w, one.Labels, one.Owner, one.Links)
			})
		})
	flags.add(cmd)
	return cmd
}

// detailRows are the labels, the owner and the links, where there are any.
func detailRows(w io.Writer, labels map[string]string, owner string, links []client.Link) {
	if len(labels)+len(links) == 0 && owner == "" {
		return
	}
	fmt.Fprintln(w)
	command.Row(w, "OWNER", "LABELS", "LINKS")
	var pairs, addresses []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	for _, link := range links {
		addresses = append(addresses, link.Title+": "+link.URL)
	}
	command.Row(w, owner, strings.Join(pairs, " "), strings.Join(addresses, ", "))
}
