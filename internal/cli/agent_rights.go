package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// This file reads the Agents that the caller may read. A team has rights for its own Agents by name, so it cannot list all
// of them.

// maxNamed limits the Agents that are read one by one.
const maxNamed = 200

// namedAgents returns the names of the Agents that the caller may list, if it may not list all of them. It returns nil if
// there are none.
func (a agents) namedAgents(ctx context.Context) ([]string, error) {
	review, err := a.kube.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx,
		&authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: a.namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	covers := func(list []string, one string) bool { return slices.Contains(list, one) || slices.Contains(list, "*") }
	var names []string
	for _, rule := range review.Status.ResourceRules {
		if covers(rule.Verbs, "list") && covers(rule.APIGroups, agentResource.Group) && covers(rule.Resources, agentResource.Resource) {
			names = append(names, rule.ResourceNames...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > maxNamed {
		return nil, fmt.Errorf("you have rights for %d agents by name, more than %d: request the permission to list agents", len(names), maxNamed)
	}
	return names, nil
}

// restrictedTo returns the names of the Agents that the caller may list, or nil if it may list all of them.
func (a agents) restrictedTo(ctx context.Context) ([]string, error) {
	_, refused := a.in().List(ctx, metav1.ListOptions{Limit: 1})
	if !apierrors.IsForbidden(refused) {
		return nil, refused
	}
	names, err := a.namedAgents(ctx)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w; the owner of the hub can give your team a Role for its agents by name, see docs/tenants.md", refused)
	}
	return names, nil
}

// listNamed lists Agents one by one, or all of them if names is nil. Its resourceVersion is the oldest of the lists, so that a watch from there misses
// nothing.
func listNamed(ctx context.Context, in dynamic.ResourceInterface, names []string, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if names == nil {
		return in.List(ctx, options)
	}
	all := &unstructured.UnstructuredList{}
	for i, name := range names {
		options.FieldSelector, options.ResourceVersion, options.ResourceVersionMatch = byName(name), "", ""
		one, err := in.List(ctx, options)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all.Object = one.Object // the first list is the oldest
		}
		all.Items = append(all.Items, one.Items...)
	}
	return all, nil
}

func byName(name string) string { return fields.OneTermEqualSelector("metadata.name", name).String() }

// severalWatches reports to a reflector that its watch does not send the initial state.
type severalWatches struct{}

func (severalWatches) IsWatchListSemanticsUnSupported() bool { return true }

// watchNamed watches Agents one by one, as one watch, or all of them if names is nil. The watch ends when one of them
// ends.
func watchNamed(ctx context.Context, in dynamic.ResourceInterface, names []string, options metav1.ListOptions) (watch.Interface, error) {
	if names == nil {
		return in.Watch(ctx, options)
	}
	ctx, cancel := context.WithCancel(ctx)
	events := make(chan watch.Event)
	all := watch.NewProxyWatcher(events)
	var watches []watch.Interface
	for _, name := range names {
		options.FieldSelector, options.AllowWatchBookmarks = byName(name), false // the bookmark of one is not that of all
		one, err := in.Watch(ctx, options)
		if err != nil {
			cancel()
			for _, w := range watches {
				w.Stop()
			}
			return nil, err
		}
		watches = append(watches, one)
	}
	var forwarding sync.WaitGroup
	ended := make(chan struct{}, len(watches))
	for _, one := range watches {
		forwarding.Go(func() {
			defer func() { ended <- struct{}{} }()
			for event := range one.ResultChan() {
				select {
				case events <- event:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		select {
		case <-ended:
		case <-all.StopChan():
		case <-ctx.Done():
		}
		cancel()
		for _, w := range watches {
			w.Stop()
		}
		forwarding.Wait()
		// Events of the others may be lost, so the caller must list again.
		expired := apierrors.NewResourceExpired("one of several watches has ended").Status()
		select {
		case events <- watch.Event{Type: watch.Error, Object: &expired}:
		case <-all.StopChan():
		}
		close(events)
	}()
	return all, nil
}
