package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/pattern"
)

// fate is what becomes of an object that a call neither applies nor names in keep.
type fate int

const (
	// toLeave is another owner's, or being deleted.
	toLeave fate = iota
	toKeep
	toPrune
	gone
)

// leftover is an object that a call may prune, as it was listed.
type leftover struct {
	ref  Ref
	seen Seen
	// applied is when the owner has applied it.
	applied string
	fate    fate
}

// fateOf decides about an object. What others have made, with the owner's label copied to it, is not the owner's: its field manager has
// not applied it.
func fateOf(call Call, o Object) fate {
	_, ours := appliedBy(o, manager(call.Owner))
	switch {
	case !ours, o.text("metadata", "labels", LabelOwner) != call.Owner, foreign(call, o), o.text("metadata", "deletionTimestamp") != "":
		return toLeave
	case annotation(o, annotationPrune) == "false", annotation(o, annotationHelm) == "keep":
		return toKeep
	}
	return toPrune
}

// prune deletes the owner's objects that are neither applied nor kept, and adds them to the answer. It only finds kinds that may be
// applied.
func (r *Runner) prune(ctx context.Context, call Call, want ApplyRequest, value map[string]any) error {
	all, err := r.allLeftovers(ctx, call, want)
	if err != nil {
		return err
	}
	if !want.DryRun {
		due := slices.Collect(withFate(all, toPrune))
		err := each(len(due), func(i int) error { return r.pruneOne(ctx, call, due[i]) })
		if err != nil {
			return interrupted(err, due)
		}
	}
	pruned := gone
	if want.DryRun {
		pruned = toPrune
	}
	nameSome(value, "pruned", namedAll(withFate(all, pruned)), mostPruned)
	nameSome(value, "not_pruned", namedAll(withFate(all, toKeep)), mostPruned)
	return nil
}

// allLeftovers finds what a call leaves over, all of it before the first deletion.
func (r *Runner) allLeftovers(ctx context.Context, call Call, want ApplyRequest) ([]*leftover, error) {
	resources, err := r.prunable(ctx, want)
	if err != nil {
		return nil, err
	}
	type place struct {
		res       Resource
		namespace string
	}
	var places []place
	for _, res := range resources {
		if want.Cluster {
			places = append(places, place{res, ""})
			continue
		}
		for _, namespace := range want.prunes() {
			if err := r.limits.permitNamespace(Ref{Namespace: namespace, Name: "any"}); err != nil {
				return nil, err
			}
			places = append(places, place{res, namespace})
		}
	}
	found := make([][]*leftover, len(places))
	err = each(len(places), func(i int) (err error) {
		found[i], err = r.leftovers(ctx, call, want, places[i].res.Kind, places[i].namespace)
		return err
	})
	return slices.Concat(found...), err
}

// leftovers finds those of a kind in a namespace: those to prune, and those that ask to be kept.
func (r *Runner) leftovers(ctx context.Context, call Call, want ApplyRequest, kind Kind, namespace string) (found []*leftover, err error) {
	s := Selection{Kind: kind, Namespace: namespace, Labels: LabelOwner + "=" + call.Owner}
	err = r.persist(ctx, Ref{Kind: kind, Namespace: namespace, Name: "of any name"}, func() error {
		found = nil
		return r.objects.Pages(ctx, s, func(page []Object) {
			for _, o := range page {
				ref := Ref{Kind: kind, Namespace: o.text("metadata", "namespace"), Name: o.text("metadata", "name")}
				one := leftover{ref: ref, seen: Seen{o.text("metadata", "uid"), o.resourceVersion()}, fate: fateOf(call, o)}
				if one.fate == toLeave || want.Keep[ref.identity()] {
					continue
				}
				one.applied, _ = appliedBy(o, manager(call.Owner))
				found = append(found, &one)
			}
		})
	})
	if want.DryRun {
		return found, err
	}
	for one := range withFate(found, toPrune) {
		err = cmp.Or(err, checkWeights(call, one.ref))
	}
	return found, err
}

// pruneOne deletes an object as it was listed. One that has changed since is looked at again: it may be another's by now, or is to stay.
// Only an apply that changes nothing leaves no trace.
func (r *Runner) pruneOne(ctx context.Context, call Call, one *leftover) error {
	changed := false
	return r.persist(ctx, one.ref, func() error {
		if changed {
			err := r.lookAgain(ctx, call, one)
			if err != nil || one.fate != toPrune {
				return err
			}
		}
		err := r.objects.Delete(ctx, one.ref, one.seen, "background")
		switch {
		case err == nil, fault.Is(err, fault.NotFound):
			one.fate = gone
			return nil
		case fault.Is(err, fault.Conflict):
			changed = true
		}
		return err
	})
}

// lookAgain decides anew about an object that has changed since it was listed.
func (r *Runner) lookAgain(ctx context.Context, call Call, one *leftover) error {
	o, err := r.cluster.Get(ctx, one.ref)
	switch {
	case fault.Is(err, fault.NotFound):
		one.fate = gone
		return nil
	case err != nil:
		return err
	}
	one.seen.Version = o.resourceVersion()
	applied, _ := appliedBy(o, manager(call.Owner))
	switch {
	case o.text("metadata", "uid") != one.seen.UID, o.text("metadata", "deletionTimestamp") != "":
		one.fate = gone // what has its name now is another object
	default:
		one.fate = fateOf(call, o)
	}
	if one.fate == toPrune && applied != one.applied {
		one.fate = toKeep // a newer call of the owner wants it
	}
	return nil
}

// interrupted adds to the error of a deletion which objects were deleted before it.
func interrupted(err error, due []*leftover) error {
	const shown = 10
	var names []string
	deleted := 0
	for one := range withFate(due, gone) {
		if deleted++; deleted <= shown {
			names = append(names, one.ref.String())
		}
	}
	of := *asError(err)
	of.Message = fmt.Sprintf("%s; the objects of the call are applied, and %d of %d that are to be pruned are deleted", of.Message, deleted, len(due))
	if deleted > shown {
		names = append(names, fmt.Sprintf("and %d more", deleted-shown))
	}
	if deleted > 0 {
		of.Message += ": " + strings.Join(names, ", ")
	}
	return errors.Join(&of, err) // the cause is for the log
}

// withFate are those of some leftovers that have a fate.
func withFate(all []*leftover, wanted fate) iter.Seq[*leftover] {
	return func(yield func(*leftover) bool) {
		for _, one := range all {
			if one.fate == wanted && !yield(one) {
				return
			}
		}
	}
}

func namedAll(all iter.Seq[*leftover]) (named []map[string]any) {
	for one := range all {
		named = append(named, one.ref.named(nil))
	}
	return named
}

// prunable are the kinds of objects that a call may prune. Namespaces and definitions of kinds would take the objects of others with them.
func (r *Runner) prunable(ctx context.Context, want ApplyRequest) ([]Resource, error) {
	var all []Resource
	err := r.persist(ctx, Ref{Kind: Kind{Kind: "resources"}, Name: "of the cluster"}, func() (err error) {
		all, err = r.objects.Resources(ctx)
		return err
	})
	return slices.DeleteFunc(all, func(res Resource) bool {
		return res.Namespaced == want.Cluster || res.Kind.Kind == kindNamespace || res.Kind.Kind == "CustomResourceDefinition" ||
			res.Kind.Kind == "Secret" || !pattern.Allows(r.limits.Objects.Apply, res.Name)
	}), err
}

// prunes are the namespaces in which objects are pruned.
func (want *ApplyRequest) prunes() []string {
	all := slices.Clone(want.Namespaces)
	if want.Namespace != "" {
		all = append(all, want.Namespace)
	}
	for i := range want.Objects {
		if n := want.Objects[i].ref.Namespace; n != "" {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// appliedBy reports whether a field manager has applied an object, and when it last changed something in it.
func appliedBy(o Object, name string) (at string, yes bool) {
	for _, entry := range o.list("metadata", "managedFields") {
		m, _ := entry.(map[string]any)
		if of := Object(m); of.text("manager") == name && strings.EqualFold(of.text("operation"), "Apply") {
			at, yes = max(at, of.text("time")), true
		}
	}
	return at, yes
}
