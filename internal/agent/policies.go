package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/policy"
	"github.com/argocd-agent/argocd-agent/internal/proxy/resource"
	"github.com/argocd-agent/argocd-agent/internal/reconcile"
)

var agentPolicies = kind.Resource{Group: v1alpha1.Group, Version: v1alpha1.Version, Plural: v1alpha1.PolicyResource, Kind: v1alpha1.PolicyKind}

// policies passes the AgentPolicies of the agent's namespace to the reconcile core and to live access. If they cannot be
// read, the agent does not connect: what it does not know could forbid everything.
type policies struct {
	agent *agent
	known chan struct{} // closed when the first policy is posted

	watches sync.WaitGroup
	failed  chan error                     // of one: why the watch of AgentPolicies ended
	decided atomic.Pointer[policyDecision] // newest; nil if none was read

	mu     sync.Mutex
	byName map[string]readPolicy
	stop   context.CancelFunc // ends the watch of AgentPolicies; nil if the CRD is not installed
	timer  *time.Timer        // for the end of a freeze
	posted bool
}

// readPolicy is an AgentPolicy as it was read. If invalid is not nil, it cannot be decoded.
type readPolicy struct {
	v1alpha1.AgentPolicy
	invalid error
}

func newPolicies(a *agent) *policies {
	return &policies{agent: a, known: make(chan struct{}), failed: make(chan error, 1), byName: map[string]readPolicy{}}
}

// installed starts or ends the watch of AgentPolicies with their CRD. Without the CRD the default policy holds.
func (p *policies) installed(ctx context.Context, installed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case installed && p.stop == nil:
		ctx, p.stop = context.WithCancel(ctx)
		w := kube.NewWatcher(p.agent.client, kube.Watch{Resource: agentPolicies, Namespace: p.agent.cfg.Namespace}, p.observe, p.agent.log, p.agent.cfg.Jitter)
		watching := ctx
		p.watches.Go(func() {
			if err := w.Run(watching); err != nil && watching.Err() == nil {
				select {
				case p.failed <- err:
				default: // the process already ends
				}
			}
		})
	case !installed:
		if p.stop != nil {
			p.stop()
			p.stop = nil
		}
		clear(p.byName)
		p.post(ctx)
	}
}

// run waits until ctx ends. It returns an error if AgentPolicies can no longer be watched: changes of them would be missed,
// so the process must restart.
func (p *policies) run(ctx context.Context) error {
	select {
	case err := <-p.failed:
		return err
	case <-ctx.Done():
		p.watches.Wait()
		return nil
	}
}

// observe handles an input of the watch of AgentPolicies.
func (p *policies) observe(ctx context.Context, in reconcile.Input) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx) // the CRD was removed
	}
	switch in := in.(type) {
	case reconcile.List:
		clear(p.byName)
		for _, o := range in.Objects {
			p.set(o)
		}
	case reconcile.Observed:
		p.set(in.Object)
	case reconcile.Deleted:
		delete(p.byName, in.Ref.Name)
	default:
		return nil // what was read last stays
	}
	p.post(ctx)
	return nil
}

func (p *policies) set(o *kind.Object) { p.byName[o.Name()] = decodePolicy(o) }

func decodePolicy(o *kind.Object) readPolicy {
	var out readPolicy
	if err := json.Unmarshal(o.Raw(), &out.AgentPolicy); err != nil { // the CRD's schema does not allow it
		out = readPolicy{invalid: fmt.Errorf("AgentPolicy %s: decode: %w", o.Name(), err)}
		out.Name = o.Name()
	}
	return out
}

// policyDecision is what AgentPolicies mean for the parts of the agent.
type policyDecision struct {
	changed reconcile.PolicyChanged
	live    *v1alpha1.LiveAccess // nil: none, because an AgentPolicy is not valid
	thawsAt time.Time            // end of a freeze; zero if there is none
	invalid error

	compiled *policy.Policy // nil if an AgentPolicy is not valid
}

// decidePolicies compiles AgentPolicies. If one of them is not valid, everything that an AgentPolicy can refuse is refused.
func decidePolicies(env policy.Env, list []readPolicy, now time.Time) policyDecision {
	d := policyDecision{changed: reconcile.PolicyChanged{ID: policyID(list)}}
	valid := make([]v1alpha1.AgentPolicy, 0, len(list))
	for _, r := range list {
		if r.invalid != nil && d.invalid == nil {
			d.invalid = r.invalid
		}
		valid = append(valid, r.AgentPolicy)
	}
	var compiled *policy.Policy
	if d.invalid == nil {
		compiled, d.invalid = policy.Compile(env, valid)
	}
	if d.invalid != nil {
		d.changed.Frozen = fmt.Sprintf("%v. Nothing from the hub is changed until a user of the workload cluster corrects it", d.invalid)
		return d
	}
	access := compiled.LiveAccess()
	d.changed.Policy, d.live, d.compiled = compiled, &access, compiled
	if v := compiled.Frozen(now); v != nil {
		d.changed.Frozen, d.thawsAt = v.Error(), compiled.ThawsAt(now)
	}
	return d
}

// post compiles what was read and passes it on. The caller must hold mu.
func (p *policies) post(ctx context.Context) {
	list := make([]readPolicy, 0, len(p.byName))
	for _, name := range slices.Sorted(maps.Keys(p.byName)) {
		list = append(list, p.byName[name])
	}
	a, now := p.agent, time.Now()
	d := decidePolicies(policy.Env{Mode: a.cfg.Mode, ArgoNamespace: a.cfg.Namespace, AgentNamespace: a.cfg.Namespace}, list, now)
	if d.invalid != nil {
		a.log.ErrorContext(ctx, "Refusing all changes from the hub because an AgentPolicy is invalid", "error", d.invalid)
	}
	if !d.thawsAt.IsZero() {
		p.after(ctx, d.thawsAt.Sub(now))
	}
	a.log.InfoContext(ctx, "Using AgentPolicies", "policies", len(list), "frozen", d.changed.Frozen != "")
	p.decided.Store(&d)
	_ = a.runner.Post(ctx, d.changed) // fails only if ctx ends
	if a.live.proxy != nil {
		if err := a.live.proxy.SetPolicy(limitLive(a.cfg.Live.Policy, d.live, d.changed.Frozen)); err != nil {
			a.log.ErrorContext(ctx, "Failed to limit live access", "error", err)
		}
	}
	if !p.posted {
		p.posted = true
		close(p.known)
	}
}

// after posts again when a freeze ends. The caller must hold mu.
func (p *policies) after(ctx context.Context, d time.Duration) {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if ctx.Err() == nil {
			p.post(ctx)
		}
	})
}

// policyID identifies AgentPolicies by their content.
func policyID(list []readPolicy) string {
	hash := sha256.New()
	for _, r := range list {
		spec, _ := json.Marshal(r.Spec) // plain data
		fmt.Fprintf(hash, "%q %d %s %v\n", r.Name, len(spec), spec, r.invalid)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8])
}

// limitLive returns the live access that settings, AgentPolicies and a freeze allow together. If access is nil, frozen says
// why nothing is allowed.
func limitLive(settings resource.Policy, access *v1alpha1.LiveAccess, frozen string) resource.Policy {
	out := settings
	out.DisabledBy = map[string]string{}
	disable := func(flag *bool, setting, reason string) {
		if !*flag {
			*flag, out.DisabledBy[setting] = true, reason
		}
	}
	const by = "an AgentPolicy of the workload cluster (liveAccess.%s) forbids it"
	if access == nil {
		access = &v1alpha1.LiveAccess{}
		disable(&out.NoReads, resource.SettingReads, frozen)
		disable(&out.NoLogs, resource.SettingLogs, frozen)
		disable(&out.NoWrites, resource.SettingWrites, frozen)
		disable(&out.NoExec, resource.SettingExec, frozen)
	}
	if !access.Read {
		disable(&out.NoReads, resource.SettingReads, fmt.Sprintf(by, "read"))
		disable(&out.NoLogs, resource.SettingLogs, fmt.Sprintf(by, "read"))
	}
	if !access.Write {
		disable(&out.NoWrites, resource.SettingWrites, fmt.Sprintf(by, "write"))
	}
	if !access.Exec {
		disable(&out.NoExec, resource.SettingExec, fmt.Sprintf(by, "exec"))
	}
	if !access.Secrets {
		out.Secrets = resource.SecretsMasked
	}
	if frozen != "" {
		disable(&out.NoWrites, resource.SettingWrites, frozen)
		disable(&out.NoExec, resource.SettingExec, frozen)
	}
	return out
}
