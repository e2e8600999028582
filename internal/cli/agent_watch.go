package cli

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// watcher has the callbacks of a watch of Agents.
type watcher struct {
	changed func(*v1alpha1.Agent) // created or changed. The callback must not modify the Agent
	deleted func(name string)
	failed  func(reason string) // the state may be stale. If empty, requests succeed again
}

// agentWatch watches the Agents of a hub with one list and one watch.
type agentWatch struct {
	watcher
	store  cache.Store
	synced cache.InformerSynced
	done   sync.WaitGroup

	mu     sync.Mutex
	reason string // of the last failed request, if it is the last one
}

// watchAgents starts a watch that runs until the context ends.
func watchAgents(ctx context.Context, a agents, callbacks watcher) (*agentWatch, error) {
	config := rest.CopyConfig(a.config)
	config.Timeout = 0 // a watch has no timeout
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for %s: %w", a.cluster, err)
	}
	names, err := a.restrictedTo(ctx)
	if apierrors.IsForbidden(err) { // other errors are retried
		return nil, a.failed("list agents", "", err)
	}
	f := &agentWatch{watcher: callbacks}
	in := client.Resource(agentResource).Namespace(a.namespace)
	// A reflector does not report errors that it retries, so the requests report them.
	requests := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := listNamed(ctx, in, names, options)
			f.requestDone(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			events, err := watchNamed(ctx, in, names, options)
			f.requestDone(ctx, err)
			return events, err
		},
	}
	semantics := any(client)
	if names != nil {
		semantics = severalWatches{}
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(requests, semantics), &unstructured.Unstructured{},
		cache.SharedIndexInformerOptions{ObjectDescription: agentResource.String()})
	f.store = informer.GetStore()
	if err := f.addHandlers(informer); err != nil {
		return nil, fmt.Errorf("watch agents: %w", err)
	}
	f.done.Go(func() { informer.RunWithContext(ctx) })
	return f, nil
}

func (f *agentWatch) addHandlers(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(toAgent); err != nil {
		return err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil { // the default handler logs
		return err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { f.notify(now) },
		UpdateFunc: func(_, now any) { f.notify(now) },
		DeleteFunc: func(last any) {
			if unseen, ok := last.(cache.DeletedFinalStateUnknown); ok {
				last = unseen.Obj
			}
			if agent, ok := last.(*v1alpha1.Agent); ok {
				f.deleted(agent.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	f.synced = registration.HasSynced
	return nil
}

func (f *agentWatch) notify(now any) {
	if agent, ok := now.(*v1alpha1.Agent); ok {
		f.changed(agent)
	}
}

// toAgent converts an object to an Agent. An Agent that cannot be decoded gets a condition.
func toAgent(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	agent, err := typed(u)
	if err != nil {
		agent = &v1alpha1.Agent{}
		agent.Name, agent.Namespace, agent.ResourceVersion = u.GetName(), u.GetNamespace(), u.GetResourceVersion()
		agent.Status.Conditions = []metav1.Condition{{Type: "Readable", Status: metav1.ConditionFalse, Reason: "Unreadable", Message: err.Error()}}
	}
	return agent, nil
}

// requestDone records the result of a request.
func (f *agentWatch) requestDone(ctx context.Context, err error) {
	reason := ""
	if err != nil {
		if ctx.Err() != nil {
			return // canceled by us
		}
		reason = err.Error()
	}
	f.mu.Lock()
	f.reason = reason
	f.mu.Unlock()
	f.failed(reason)
}

// wait returns after the context ended and no callback runs.
func (f *agentWatch) wait() { f.done.Wait() }

// staleReason returns why the state may be stale, or an empty string.
func (f *agentWatch) staleReason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reason
}

func (f *agentWatch) agents() []v1alpha1.Agent {
	var all []v1alpha1.Agent
	for _, one := range f.store.List() {
		if agent, ok := one.(*v1alpha1.Agent); ok {
			all = append(all, *agent)
		}
	}
	return all
}
