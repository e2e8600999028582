package upgrade

import (
	"fmt"
	"time"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/policy"
)

// Limits of Upgrade.TimeoutMillis.
const (
	minTimeout = 10 * time.Second
	maxTimeout = time.Hour
)

// jobStart is the time that the Job has to start.
const jobStart = 3 * time.Minute

// view is everything that a decision of the agent depends on.
type view struct {
	request    engine.Upgrade // newest of the hub; without ID if there is none
	deployment *deployment
	version    string                     // of this process
	process    uint64                     // incarnation of this process
	allowed    func(policy.Upgrade) error // by AgentPolicies
	anyAllowed func() error               // whether AgentPolicies allow any upgrade
	inSync     bool                       // both sides have proved it in this session
	now        time.Time
}

// decision is what the agent does next.
type decision struct {
	state engine.UpgradeState // for the hub
	write *record             // to store
	image string              // to set together with write; empty: unchanged
	job   bool                // create the Job
	again bool                // decide again soon
}

func reports(id, phase, format string, args ...any) decision {
	return decision{state: engine.UpgradeState{ID: id, Phase: phase, Message: fmt.Sprintf(format, args...)}}
}

// stores returns a decision that stores a record, and decides again.
func stores(r *record) decision {
	d := reported(*r)
	d.write, d.again = r, true
	return d
}

// reported returns the decision that only reports a record.
func reported(r record) decision {
	phase := r.Phase
	if phase == phaseJobRunning {
		phase = v1alpha1.UpgradePreparing
	}
	return decision{state: engine.UpgradeState{ID: r.ID, Phase: phase, Message: r.Message}}
}

func (v view) decide() decision {
	d, r := v.deployment, v.deployment.record
	switch r.Phase {
	case v1alpha1.UpgradePreparing, phaseJobRunning:
		return v.prepared(d, r)
	case v1alpha1.UpgradeUpgrading:
		return v.upgraded(d, r)
	}
	switch refused := v.refused(d); {
	case r.ID != "" && (v.request.ID == "" || v.request.ID == r.ID): // each ID is handled once
		return reported(r)
	case refused != "":
		return reports(v.request.ID, v1alpha1.UpgradeRefused, "%s", refused)
	case v.request.ID == "":
		return reports("", v1alpha1.UpgradeReady, "")
	case v1alpha1.SameVersion(v.request.Version, v.version):
		return reports(v.request.ID, v1alpha1.UpgradeSucceeded, "the agent already runs version %s", v.version)
	case !v.inSync:
		waiting := reports(v.request.ID, v1alpha1.UpgradeWaiting, "the agent is not in sync with the hub, so that an upgrade could not be checked")
		waiting.again = true
		return waiting
	}
	begun := record{ID: v.request.ID, Version: v.request.Version, From: d.image(), To: v.target(d).String(), Process: v.process}
	begun.Timeout.Duration, begun.Started.Time = time.Duration(v.request.TimeoutMillis)*time.Millisecond, v.now
	return stores(begun.in(v1alpha1.UpgradePreparing, "waiting for the Job that can restore %s", begun.From))
}

// target returns the requested image.
func (v view) target(d *deployment) image {
	to := parseImage(d.image())
	if v.request.Repository != "" {
		to.repository = v.request.Repository
	}
	to.tag, to.digest = v.request.Version, v.request.Digest
	return to
}

// refused returns why the request, or without a request any, is not executed; empty: it is.
func (v view) refused(d *deployment) string {
	if tool := d.managedBy(); tool != "" {
		return tool
	}
	q := v.request
	timeout := time.Duration(q.TimeoutMillis) * time.Millisecond
	switch {
	case d.index < 0:
		return fmt.Sprintf("Deployment %s has no container %q", d.Name, container)
	case d.Spec.Paused:
		return fmt.Sprintf("Deployment %s is paused", d.Name)
	case q.ID == "":
		if err := v.anyAllowed(); err != nil {
			return err.Error()
		}
		return ""
	case !validID.MatchString(q.ID) || !v1alpha1.IsImageTag(q.Version) || q.Digest != "" && !v1alpha1.IsImageDigest(q.Digest) ||
		q.Repository != "" && !v1alpha1.IsImageRepository(q.Repository) || timeout < minTimeout || timeout > maxTimeout:
		return fmt.Sprintf("the request of the hub is invalid: version %q, repository %q, digest %q, timeout %v", q.Version, q.Repository, q.Digest, timeout)
	case v1alpha1.SameVersion(q.Version, v.version):
		return "" // nothing to do
	}
	to, from := v.target(d), parseImage(d.image())
	if err := v.allowed(policy.Upgrade{Repository: to.repository, Version: q.Version, Digest: q.Digest, Older: !newer(q.Version, v.version)}); err != nil {
		return err.Error()
	}
	switch {
	case from.digest != "" && q.Digest == "":
		return fmt.Sprintf("Deployment %s has its image by digest: request the new one by digest, too", d.Name)
	case to == from:
		return fmt.Sprintf("Deployment %s already has image %s, but this agent runs version %s", d.Name, to, v.version)
	}
	return ""
}

// prepared continues an upgrade whose image is not changed yet. Only the process that began continues it.
func (v view) prepared(d *deployment, r record) decision {
	switch {
	case r.Process != v.process:
		return stores(r.in(v1alpha1.UpgradeFailed, "the agent restarted before the image was changed"))
	case d.image() != r.From:
		return stores(r.in(v1alpha1.UpgradeFailed, "another client changed the image to %s", d.image()))
	case v.now.Sub(r.Started.Time) > jobStart && r.Phase == phaseJobRunning:
		return stores(r.in(v1alpha1.UpgradeFailed, "the agent was not in sync with the hub within %v", jobStart))
	case v.now.Sub(r.Started.Time) > jobStart:
		return stores(r.in(v1alpha1.UpgradeFailed, "the Job that can restore the old image did not start within %v. The image was not changed", jobStart))
	case r.Phase == v1alpha1.UpgradePreparing:
		waits := reported(r)
		waits.job, waits.again = true, true
		return waits
	case !v.inSync:
		waits := reported(r)
		waits.again = true
		return waits
	}
	to := parseImage(r.To)
	err := v.allowed(policy.Upgrade{Repository: to.repository, Version: r.Version, Digest: to.digest, Older: !newer(r.Version, v.version)})
	if tool := d.managedBy(); err == nil && tool != "" {
		err = fmt.Errorf("%s", tool)
	}
	if err != nil {
		return stores(r.in(v1alpha1.UpgradeFailed, "%v", err))
	}
	changed := r.in(v1alpha1.UpgradeUpgrading, "waiting until version %s is in sync, for at most %v", r.Version, r.Timeout.Duration)
	changed.Started.Time = v.now
	next := stores(changed)
	next.image = r.To
	return next
}

// upgraded continues an upgrade whose image is changed. A new process of the new version confirms it. The Job restores it.
func (v view) upgraded(d *deployment, r record) decision {
	switch {
	case d.image() != r.To:
		return stores(r.in(v1alpha1.UpgradeFailed, "another client changed the image to %s", d.image()))
	case v.process != r.Process && v1alpha1.SameVersion(v.version, r.Version) && v.inSync:
		return stores(r.in(v1alpha1.UpgradeSucceeded, "version %s is in sync with the hub", r.Version))
	}
	waits := reported(r)
	waits.again = true
	return waits
}

// restore returns what the Job with an ID does: the record to store and the image to set together with it. seen is when the
// Job first saw the current phase. If done is true, nothing is left to do.
func restore(d *deployment, id string, seen, now time.Time) (write *record, image string, done bool) {
	r := d.record
	if r.ID != id {
		return nil, "", true
	}
	switch r.Phase {
	case v1alpha1.UpgradePreparing:
		return r.in(phaseJobRunning, "%s", r.Message), "", false
	case phaseJobRunning:
		if now.Sub(seen) > 2*jobStart {
			return r.in(v1alpha1.UpgradeFailed, "the agent did not change the image"), "", false
		}
		return nil, "", false
	case v1alpha1.UpgradeUpgrading:
		switch {
		case d.image() != r.To:
			return r.in(v1alpha1.UpgradeFailed, "another client changed the image to %s", d.image()), "", false
		case now.Before(r.deadline(seen)):
			return nil, "", false
		}
		return r.in(v1alpha1.UpgradeRolledBack, "version %s was not in sync with the hub within %v. The Job restored %s", r.Version, r.Timeout.Duration, r.From), r.From, false
	}
	return nil, "", true
}

// deadline returns when the image is restored. The time in the record is of another clock, and counts if the Job was
// restarted. It cannot delay the deadline.
func (r record) deadline(seen time.Time) time.Time {
	if r.Started.After(seen) {
		return seen.Add(r.Timeout.Duration)
	}
	return r.Started.Add(r.Timeout.Duration)
}
