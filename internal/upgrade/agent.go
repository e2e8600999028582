package upgrade

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/policy"
	"github.com/argocd-agent/argocd-agent/internal/util/logonce"
	"github.com/argocd-agent/argocd-agent/internal/util/text"
)

// Config is what an Agent needs.
type Config struct {
	Client     *kube.Client
	Namespace  string
	Deployment string // of this agent. If empty, it does not upgrade itself.
	Version    string // of this process
	Process    uint64 // incarnation of this process
	// Allowed returns why AgentPolicies do not allow an upgrade now. If the request is nil, it is about any upgrade.
	Allowed func(*policy.Upgrade) error
	InSync  func(context.Context) bool // reports whether both sides have proved in this session that they are in sync
	Log     *slog.Logger
}

// Agent upgrades the agent of this process while Run runs.
type Agent struct {
	cfg  Config
	wake chan struct{} // of one: something has changed

	mu      sync.Mutex
	send    func(engine.UpgradeState) // to the hub; nil without a session
	request engine.Upgrade
	sent    engine.UpgradeState // what the hub knows; empty if it knows nothing in this session

	// Owned by Run.
	jobOf  string // ID whose Job was created
	logged logonce.One
	wait   time.Duration // until the next step, if it is due
}

// New returns an Agent.
func New(cfg Config) *Agent { return &Agent{cfg: cfg, wake: make(chan struct{}, 1)} }

// Opened is called at the start of each session. send must not block.
func (a *Agent) Opened(send func(engine.UpgradeState)) {
	a.mu.Lock()
	a.send, a.request, a.sent = send, engine.Upgrade{}, engine.UpgradeState{}
	a.mu.Unlock()
	a.wakeUp()
}

// Closed is called at the end of each session.
func (a *Agent) Closed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send, a.request = nil, engine.Upgrade{}
}

// Received is called with each request of the hub. The newest counts.
func (a *Agent) Received(m engine.Upgrade) {
	a.mu.Lock()
	a.request = m
	a.mu.Unlock()
	a.wakeUp()
}

func (a *Agent) wakeUp() {
	select {
	case a.wake <- struct{}{}:
	default: // it will wake up
	}
}

// Run handles requests until ctx ends. After a restart it continues what the Deployment records, also without the hub.
func (a *Agent) Run(ctx context.Context) error {
	a.wakeUp()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		}
		for a.step(ctx) {
			select {
			case <-ctx.Done():
				return nil
			case <-a.wake:
			case <-time.After(a.wait):
			}
		}
	}
}

// step decides and acts once. It reports whether to decide again soon.
func (a *Agent) step(ctx context.Context) (again bool) {
	before := a.wait
	a.wait = interval
	a.mu.Lock()
	request := a.request
	a.mu.Unlock()
	if a.cfg.Deployment == "" {
		a.report(reports(request.ID, v1alpha1.UpgradeRefused,
			"the agent does not upgrade itself (--self-upgrade-deployment): upgrade it with the tool that installed it").state)
		return false
	}
	d, err := readDeployment(ctx, a.cfg.Client, kind.Ref{Resource: deployments, Namespace: a.cfg.Namespace, Name: a.cfg.Deployment})
	if err == nil && d == nil {
		err = errNotFound
	}
	if err != nil {
		return a.failed(ctx, request.ID, "read", err, before)
	}
	next := view{request: request, deployment: d, version: a.cfg.Version, process: a.cfg.Process, now: time.Now(), inSync: a.cfg.InSync(ctx),
		allowed:    func(u policy.Upgrade) error { return a.cfg.Allowed(&u) },
		anyAllowed: func() error { return a.cfg.Allowed(nil) }}.decide()
	if next.job && a.jobOf != d.record.ID {
		if err := a.createJob(ctx, d); err != nil && !kube.IsRejected(err) {
			return a.failed(ctx, d.record.ID, "create a Job for", err, before)
		} else if err != nil {
			next = stores(d.record.in(v1alpha1.UpgradeFailed, "the Job that can restore the old image was not created: %v. The image was not changed", err))
		}
	}
	if next.write != nil {
		switch err := d.write(ctx, a.cfg.Client, *next.write, next.image); {
		case kube.IsConflict(err):
			return true // decided again with what is stored now
		case err != nil:
			return a.failed(ctx, next.state.ID, "change", err, before)
		}
		a.cfg.Log.InfoContext(ctx, "Upgrade is in another phase", "upgrade", next.write.ID, "phase", next.write.Phase, "version", next.write.Version, "image", next.image, "message", next.write.Message)
	}
	a.logged.Reset()
	a.report(next.state)
	return next.again
}

var (
	errNotFound   = errors.New("not found")
	errUnreadable = errors.New("correct or remove the annotation")
)

// maxInterval bounds the wait after an error that only a user of the cluster can correct.
const maxInterval = time.Minute

// failed logs an error, and reports one that stays until a user of the cluster changes something. All are retried, these ones
// after a longer wait than before.
func (a *Agent) failed(ctx context.Context, id, action string, err error, waited time.Duration) (again bool) {
	if a.logged.Changed(text.WithoutDigits(err.Error())) {
		a.cfg.Log.WarnContext(ctx, "Failed to process the Deployment of this agent", "action", action, "deployment", a.cfg.Deployment, "error", err)
	}
	if !kube.IsRejected(err) && !errors.Is(err, errNotFound) && !errors.Is(err, errUnreadable) {
		return true
	}
	a.wait = min(max(2*waited, interval), maxInterval)
	a.report(reports(id, v1alpha1.UpgradeRefused, "the agent cannot %s its Deployment %s: %v", action, a.cfg.Deployment, err).state)
	return id != ""
}

// createJob creates the Job. One with the same ID is the same Job.
func (a *Agent) createJob(ctx context.Context, d *deployment) error {
	ref, job := d.job()
	if _, err := a.cfg.Client.Create(ctx, ref, job); err != nil && !kube.IsConflict(err) {
		return err
	}
	a.jobOf = d.record.ID
	return nil
}

// report sends a state that the hub does not know.
func (a *Agent) report(s engine.UpgradeState) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.send != nil && s != a.sent {
		a.sent = s
		a.send(s)
	}
}
