package cli

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// follower is told what becomes of a hub's agents.
type follower struct {
	changed func(*v1alpha1.Agent) // it is new, or another; not to be written to
	gone    func(name string)
	trouble func(why string) // the picture may be old; empty: not any more
}

// following keeps up with a hub's agents: one list, one watch, nothing again and again.
type following struct {
	follower
	store cache.Store
	read  cache.InformerSynced // what was there at the beginning was told
	done  sync.WaitGroup

	mu  sync.Mutex
	why string
}

// follow starts to follow a hub's agents whose labels match, until the context ends.
func follow(ctx context.Context, a agents, selector string, told follower) (*following, error) {
	config := rest.CopyConfig(a.config)
	config.Timeout = 0 // a watch has no end
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("set up the connection to %s: %w", a.cluster, err)
	}
	f := &following{follower: told}
	in := client.Resource(agentResource).Namespace(a.namespace)
	// What a reflector tries again by itself, such as to reach a server that is away, it tells nobody: so its requests are
	// looked at here.
	requests := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := in.List(ctx, options)
			f.heard(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			events, err := in.Watch(ctx, options)
			f.heard(ctx, err)
			return events, err
		},
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(requests, client), &unstructured.Unstructured{},
		cache.SharedIndexInformerOptions{ObjectDescription: agentResource.String()})
	f.store = informer.GetStore()
	if err := f.listen(informer); err != nil {
		return nil, fmt.Errorf("follow agents: %w", err)
	}
	f.done.Go(func() { informer.RunWithContext(ctx) })
	return f, nil
}

func (f *following) listen(informer cache.SharedIndexInformer) error {
	if err := informer.SetTransform(slim); err != nil {
		return err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil { // else it logs
		return err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(now any) { f.tell(now) },
		UpdateFunc: func(_, now any) { f.tell(now) },
		DeleteFunc: func(last any) {
			if unseen, ok := last.(cache.DeletedFinalStateUnknown); ok {
				last = unseen.Obj
			}
			if agent, ok := last.(*v1alpha1.Agent); ok {
				f.gone(agent.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	f.read = registration.HasSynced
	return nil
}

func (f *following) tell(now any) {
	if agent, ok := now.(*v1alpha1.Agent); ok {
		f.changed(agent)
	}
}

// slim makes of an object what is kept of it.
func slim(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	agent, err := typed(u)
	if err != nil { // of a definition that is newer, or not ours; that it is there is worth knowing
		agent = &v1alpha1.Agent{}
		agent.Name, agent.Namespace, agent.ResourceVersion = u.GetName(), u.GetNamespace(), u.GetResourceVersion()
		agent.Status.Conditions = []metav1.Condition{{Type: "Readable", Status: metav1.ConditionFalse, Reason: "Unreadable", Message: err.Error()}}
	}
	return agent, nil
}

// heard takes note of how a request went.
func (f *following) heard(ctx context.Context, err error) {
	why := ""
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return // we have ended it ourselves
	default:
		why = err.Error()
	}
	f.mu.Lock()
	f.why = why
	f.mu.Unlock()
	f.trouble(why)
}

// wait returns when nothing is told any more, after the context's end.
func (f *following) wait() { f.done.Wait() }

// old is why the picture may be old; empty: it is not.
func (f *following) old() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

func (f *following) agents() []v1alpha1.Agent {
	var all []v1alpha1.Agent
	for _, one := range f.store.List() {
		if agent, ok := one.(*v1alpha1.Agent); ok {
			all = append(all, *agent)
		}
	}
	return all
}
