package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// This file changes the roles of hubs. At no time may two hubs of a group be active with the same generation. A promotion
// therefore writes to both hubs, first to the other one. Each write fails if the ConfigMap has changed since it was read.
// If both hubs are promoted at the same time, at least one of the promotions fails.

func (p *Program) hubPromoteCommand() *cobra.Command {
	var given otherHub
	var lost string
	var alone bool
	cmd := &cobra.Command{
		Use:   "promote",
		Short: "Make a standby the active hub",
		Long: `Makes the standby of --principal-context the active hub, with the next generation. Its principal starts again and
serves agents.

The other hub must not be active: demote it first. If it cannot be reached, it may still serve agents. Promote this hub
only if the other one is lost or disconnected from its agents, and repeat its context with --force.

With --alone, a hub that was demoted and never had another hub becomes active again. It keeps its generation.`,
		Example: `  # Planned switch from hub-1 to hub-2
  argocd-agentctl hub demote --principal-context hub-1
  argocd-agentctl hub promote --principal-context hub-2 --other-context hub-1

  # hub-1 is lost
  argocd-agentctl hub promote --principal-context hub-2 --other-context hub-1 --force hub-1

  # hub-1 has no other hub and was demoted
  argocd-agentctl hub promote --principal-context hub-1 --alone`,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case given.context == "" && !alone:
				return cmdline.UsageErrorf("--other-context is missing: set the context of the other hub, or --alone if there is none")
			case given.context != "" && alone:
				return cmdline.UsageErrorf("--alone contradicts --other-context")
			case cmd.Flags().Changed("force") && lost != given.context:
				return cmdline.UsageErrorf("--force %q is not the hub of --other-context %q", lost, given.context)
			}
			return nil
		},
		RunE: p.onHubs(&given, func(ctx context.Context, h *hubInfo, other *cluster) error {
			if h.state.Role != hubstate.Standby {
				return fmt.Errorf("%s is %s, not a standby. Nothing was changed", h, h.state.Role)
			}
			if alone {
				return p.promoteAlone(ctx, h)
			}
			old, err := other.readHub(ctx)
			if err != nil {
				return p.promoteWithout(ctx, h, err, lost)
			}
			return p.promote(ctx, h, old)
		}),
	}
	given.addFlags(cmd, "Required unless --alone is set.")
	cmd.Flags().BoolVar(&alone, "alone", false, "Promote a hub that never had another hub.")
	cmd.Flags().StringVar(&lost, "force", "", "Promote although the other hub cannot be reached. Repeat its `CONTEXT`.")
	return p.withYes(cmd)
}

// promoteWithout promotes a hub whose other hub cannot be read. A hub that answers is not lost.
func (p *Program) promoteWithout(ctx context.Context, h *hubInfo, reason error, lost string) error {
	if errors.As(reason, new(*hubstate.InvalidError)) || apierrors.IsForbidden(reason) || apierrors.IsUnauthorized(reason) || kube.IsRejected(reason) {
		return fmt.Errorf("%w. Nothing was changed", reason)
	}
	if lost == "" {
		return fmt.Errorf("%w. It may still serve agents. If it is lost, repeat its context with --force. Nothing was changed", reason)
	}
	if err := p.askConfirmation(fmt.Sprintf("promote %s without %s", h, lost)); err != nil {
		return err
	}
	next, err := hubstate.PromoteWithout(h.hub())
	if err != nil {
		return nothingChanged(h, err)
	}
	return p.activate(ctx, h, next)
}

// promoteAlone makes a hub active that was only demoted.
func (p *Program) promoteAlone(ctx context.Context, h *hubInfo) error {
	next, err := hubstate.PromoteAlone(h.hub())
	if err != nil {
		return fmt.Errorf("%s is not alone: %w. Set --other-context. Nothing was changed", h, err)
	}
	if err := p.askConfirmation(fmt.Sprintf("promote %s alone: no other hub of its identity may be active", h)); err != nil {
		return err
	}
	return p.activate(ctx, h, next)
}

// promote promotes a hub whose other hub was demoted.
func (p *Program) promote(ctx context.Context, h, old *hubInfo) error {
	next, demoted, err := hubstate.Promote(h.hub(), old.hub())
	switch {
	case errors.Is(err, hubstate.ErrSameHub):
		return errSameContext()
	case errors.Is(err, hubstate.ErrGroups):
		return fmt.Errorf("%w: identity %s in %s, %s in %s. Nothing was changed", err, h.state.Identity, h, old.state.Identity, old)
	case err != nil && old.state.Role != hubstate.Standby:
		return fmt.Errorf("%s is %s: run `argocd-agentctl hub demote --principal-context %s` first. Nothing was changed", old, old.state.Role, old.context)
	case err != nil:
		return nothingChanged(h, err)
	}
	if err := p.checkPair(ctx, h, old); err != nil {
		return err
	}
	if err := p.askConfirmation(fmt.Sprintf("promote %s", h)); err != nil {
		return err
	}
	if err := old.write(ctx, demoted); err != nil {
		return unchanged(err)
	}
	return p.activate(ctx, h, next)
}

func (p *Program) activate(ctx context.Context, h *hubInfo, next hubstate.State) error {
	if err := h.write(ctx, next); err != nil {
		return unchanged(err)
	}
	p.say("%s is active, generation %d.", h, next.Generation)
	return nil
}

func errSameContext() error {
	return cmdline.UsageErrorf("--principal-context and --other-context are the same cluster")
}

func nothingChanged(h *hubInfo, err error) error {
	return fmt.Errorf("%s: %w. Nothing was changed", h, err)
}

// unchanged explains a conflict.
func unchanged(err error) error {
	if kube.IsConflict(err) {
		return fmt.Errorf("%w. Another user or a hub changed it at the same time. Run `argocd-agentctl hub status`", err)
	}
	return err
}

// checkPair returns an error if two hubs cannot replace each other.
func (p *Program) checkPair(ctx context.Context, a, b *hubInfo) error {
	err := p.sameTrust(ctx, a, b)
	if err == nil {
		err = sameImage(ctx, a, b)
	}
	if err != nil {
		return fmt.Errorf("%w. Nothing was changed", err)
	}
	return nil
}

func (p *Program) hubDemoteCommand() *cobra.Command {
	var given otherHub
	cmd := &cobra.Command{
		Use:   "demote",
		Short: "Make a hub a standby",
		Long: `Makes the hub of --principal-context a standby. Its principal starts again and refuses agents. Workloads keep running,
and agents wait for the active hub.

With --other-context, the hub becomes a standby of that active hub and takes its identity. A hub of another identity
must not have Agents or Applications. The command registers the standby on the active hub, as an Agent of the mode
standby. If --active-hub-address of its principal is set, the standby then receives the objects of the active hub. They
include credentials.

A hub without another hub becomes active again with hub promote --alone.`,
		Example: `  # First step of a planned switch
  argocd-agentctl hub demote --principal-context hub-1

  # A new hub becomes the standby of hub-1
  argocd-agentctl hub demote --principal-context hub-2 --other-context hub-1`,
		RunE: p.onHubs(&given, func(ctx context.Context, h *hubInfo, other *cluster) (err error) {
			next := hubstate.Demote(h.hub())
			register := func() error { return nil }
			if other != nil {
				if next, err = p.followed(ctx, h, other); err != nil {
					return err
				}
				register = func() error { return p.registerStandby(ctx, h, other) }
			}
			if next == h.state {
				if err := register(); err != nil {
					return err
				}
				p.say("%s is a standby, generation %d.", h, next.Generation)
				return nil
			}
			if err := p.askConfirmation(fmt.Sprintf("demote %s: its agents are disconnected until they reach an active hub", h)); err != nil {
				return err
			}
			if err := register(); err != nil {
				return err
			}
			if err := h.write(ctx, next); err != nil {
				return unchanged(err)
			}
			p.say("%s is a standby, generation %d.", h, next.Generation)
			return nil
		}),
	}
	given.addFlags(cmd, "It must be active.")
	return p.withYes(cmd)
}

// followed returns the state of a hub as the standby of an active one.
func (p *Program) followed(ctx context.Context, h *hubInfo, other *cluster) (hubstate.State, error) {
	active, err := other.readHub(ctx)
	if err != nil {
		return hubstate.State{}, err
	}
	next, err := hubstate.Follow(h.hub(), active.hub())
	switch {
	case errors.Is(err, hubstate.ErrSameHub):
		return hubstate.State{}, errSameContext()
	case errors.Is(err, hubstate.ErrSuperseded):
		return hubstate.State{}, fmt.Errorf("%s has generation %d, and %s is active with %d: agents may not follow that one. Demote it, and promote one of the two. Nothing was changed",
			h, h.state.Generation, active, active.state.Generation)
	case err != nil:
		return hubstate.State{}, fmt.Errorf("%s is %s, not active. Nothing was changed", active, active.state.Role)
	}
	if h.state.Identity != active.state.Identity {
		if err := h.isEmpty(ctx); err != nil {
			return hubstate.State{}, err
		}
	}
	if err := p.checkPair(ctx, h, active); err != nil {
		return hubstate.State{}, err
	}
	return next, nil
}

// registerStandby registers a hub on the active one. Only this registration lets it receive objects.
func (p *Program) registerStandby(ctx context.Context, h *hubInfo, active *cluster) error {
	name := hubstate.AgentName(h.uid)
	on := agents{active}
	list, err := on.list(ctx)
	if err != nil {
		return err
	}
	for i := range list.Items {
		switch agent := &list.Items[i]; {
		case agent.Name != name:
		case agent.Spec.Mode != string(kind.Standby):
			return fmt.Errorf("agent %s of %s is %q, and has the name of this standby. Delete it. Nothing was changed", name, active, agent.Spec.Mode)
		default:
			return nil
		}
	}
	if _, err := on.create(ctx, &v1alpha1.Agent{TypeMeta: metav1.TypeMeta{APIVersion: agentResource.GroupVersion().String(), Kind: v1alpha1.Kind}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: active.namespace},
		Spec: v1alpha1.Spec{Mode: string(kind.Standby)}}); err != nil {
		return err
	}
	p.say("Registered %s as a standby on %s.", h, active)
	return nil
}

// isEmpty returns an error if a hub has Agents or Applications.
func (h *hubInfo) isEmpty(ctx context.Context) error {
	list, err := agents{h.cluster}.list(ctx)
	if err != nil {
		return err
	}
	apps, err := h.objects(ctx, kind.Applications, "", "")
	if err != nil {
		return err
	}
	if len(list.Items)+len(apps) > 0 {
		return fmt.Errorf("%s has another identity, %s and %s. Delete them, or use a new hub. Nothing was changed",
			h, pluralize(len(list.Items), "Agent"), pluralize(len(apps), "Application"))
	}
	return nil
}
