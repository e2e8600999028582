package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
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
	var alone, acceptLoss bool
	cmd := &cobra.Command{
		Use:   "promote",
		Short: "Make a standby the active hub",
		Long: `Makes the standby of --principal-context the active hub, with the next generation. Its principal starts again and
serves agents.

The other hub must not be active: demote it first. The command compares the objects of both hubs, and refuses a standby
that lacks objects or changes, because they would be lost. The status of Applications and Agents is not compared,
because agents report it to each hub. --accept-loss prints what is lost, and promotes the standby as it is.

If the other hub cannot be reached, nothing is compared, and it may still serve agents. Promote this hub only if the
other one is lost or disconnected from its agents, and repeat its context with --force.

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
			case acceptLoss && alone:
				return cmdline.UsageErrorf("--alone contradicts --accept-loss")
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
			return p.promote(ctx, h, old, acceptLoss)
		}),
	}
	given.addFlags(cmd, "Required unless --alone is set.")
	cmd.Flags().BoolVar(&alone, "alone", false, "Promote a hub that never had another hub.")
	cmd.Flags().BoolVar(&acceptLoss, "accept-loss", false, "Promote although this hub lacks something, which is lost, or although the comparison fails.")
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

// promoteAlone makes a hub active that was only demoted. Its state does not show that its standby was promoted by force.
func (p *Program) promoteAlone(ctx context.Context, h *hubInfo) error {
	next, err := hubstate.PromoteAlone(h.hub())
	if err != nil {
		return fmt.Errorf("%s is not alone: %w. Set --other-context. Nothing was changed", h, err)
	}
	list, err := agents{h.cluster}.list(ctx)
	if err != nil {
		return err
	}
	for _, agent := range list.Items {
		if agent.Spec.Mode == string(kind.Standby) {
			return fmt.Errorf("%s is not alone: its Agent %s registers another hub, which may be active. Set --other-context, or delete the Agent if there is no other hub. "+
				"Nothing was changed", h, agent.Name)
		}
	}
	if err := p.askConfirmation(fmt.Sprintf("promote %s alone: no other hub of its identity may be active", h)); err != nil {
		return err
	}
	return p.activate(ctx, h, next)
}

// promote promotes a hub whose other hub was demoted.
func (p *Program) promote(ctx context.Context, h, old *hubInfo, acceptLoss bool) error {
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
	compared, err := p.confirmPromotion(ctx, h, old, acceptLoss)
	if err != nil {
		return err
	}
	next = hubstate.Compared(next, compared)
	if err := old.write(ctx, demoted); err != nil {
		return unchanged(err)
	}
	return p.activate(ctx, h, next)
}

// confirmPromotion compares both hubs and asks the user. The comparison comes last, because the demoted hub can still be edited. A
// user who accepts a loss is asked after it is known. It returns what of the store of the demoted hub was compared and is equal.
func (p *Program) confirmPromotion(ctx context.Context, h, old *hubInfo, acceptLoss bool) (compared engine.Store, err error) {
	question := fmt.Sprintf("promote %s", h)
	if !acceptLoss {
		if err := p.askConfirmation(question); err != nil {
			return engine.Store{}, err
		}
	}
	compared, loses, err := p.checkLoss(ctx, h, old, acceptLoss)
	if err != nil || !acceptLoss {
		return compared, err
	}
	if loses {
		question += fmt.Sprintf(": what it lacks of %s is lost", old)
	}
	return compared, p.askConfirmation(question)
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
must not have Agents or Applications. The command registers each hub on the other one, as an Agent of the mode standby.
If --active-hub-address of its principal is set, the standby then receives the objects of the active hub. They include
credentials. After a takeover, the old hub receives them from the new one in the same way.

A hub without another hub becomes active again with hub promote --alone.`,
		Example: `  # First step of a planned switch
  argocd-agentctl hub demote --principal-context hub-1

  # A new hub becomes the standby of hub-1
  argocd-agentctl hub demote --principal-context hub-2 --other-context hub-1`,
		RunE: p.onHubs(&given, func(ctx context.Context, h *hubInfo, other *cluster) (err error) {
			next := hubstate.Demote(h.hub())
			var active *hubInfo
			var sends, receives bool // whether each hub is registered on the other one
			if other != nil {
				if active, next, err = p.followed(ctx, h, other); err != nil {
					return err
				}
				if sends, err = active.isRegistered(ctx, h); err != nil {
					return err
				}
				if receives, err = h.isRegistered(ctx, active); err != nil {
					return err
				}
			}
			if next != h.state {
				if err := p.askConfirmation(fmt.Sprintf("demote %s: its agents are disconnected until they reach an active hub", h)); err != nil {
					return err
				}
			}
			if active != nil && !sends {
				if err := p.registerStandby(ctx, active, h); err != nil {
					return err
				}
			}
			if next != h.state {
				if err := h.write(ctx, next); err != nil {
					return unchanged(err)
				}
			}
			if active != nil && !receives { // the old hub connects by itself after a takeover
				if err := p.registerStandby(ctx, h, active); err != nil {
					return err
				}
			}
			p.say("%s is a standby, generation %d.", h, next.Generation)
			return nil
		}),
	}
	given.addFlags(cmd, "It must be active.")
	return p.withYes(cmd)
}

// followed returns the active hub that a hub is to follow, and the state of the hub as its standby.
func (p *Program) followed(ctx context.Context, h *hubInfo, other *cluster) (active *hubInfo, next hubstate.State, err error) {
	if active, err = other.readHub(ctx); err != nil {
		return nil, hubstate.State{}, err
	}
	next, err = hubstate.Follow(h.hub(), active.hub())
	switch {
	case errors.Is(err, hubstate.ErrSameHub):
		return nil, hubstate.State{}, errSameContext()
	case errors.Is(err, hubstate.ErrSuperseded):
		return nil, hubstate.State{}, fmt.Errorf("%s has generation %d, and %s is active with %d: agents may not follow that one. Demote it, and promote one of the two. Nothing was changed",
			h, h.state.Generation, active, active.state.Generation)
	case errors.Is(err, hubstate.ErrBothActive):
		return nil, hubstate.State{}, fmt.Errorf("%s cannot follow %s: %w. %s. Nothing was changed", h, active, err, resolveBothActive(h, active))
	case err != nil:
		return nil, hubstate.State{}, fmt.Errorf("%s is %s, not active. Nothing was changed", active, active.state.Role)
	}
	if h.state.Identity != active.state.Identity {
		if err := h.isEmpty(ctx); err != nil {
			return nil, hubstate.State{}, err
		}
	}
	if err := p.checkPair(ctx, h, active); err != nil {
		return nil, hubstate.State{}, err
	}
	return active, next, nil
}

// resolveBothActive returns how a user makes one of two hubs with the same generation the only active one.
func resolveBothActive(a, b *hubInfo) string {
	return fmt.Sprintf("Run `argocd-agentctl hub demote` with --principal-context %s and with --principal-context %s, and promote the hub that must be active with "+
		"`argocd-agentctl hub promote --accept-loss`", a.context, b.context)
}

// isRegistered reports whether another hub is registered on a hub as a standby. Only this registration lets it receive objects.
func (h *hubInfo) isRegistered(ctx context.Context, standby *hubInfo) (bool, error) {
	list, err := agents{h.cluster}.list(ctx)
	if err != nil {
		return false, err
	}
	name := hubstate.AgentName(standby.uid)
	for i := range list.Items {
		switch agent := &list.Items[i]; {
		case agent.Name != name:
		case agent.Spec.Mode != string(kind.Standby):
			return false, fmt.Errorf("agent %s of %s is %q, and has the name of a standby. Delete it. Nothing was changed", name, h, agent.Spec.Mode)
		default:
			return true, nil
		}
	}
	return false, nil
}

// registerStandby registers another hub on a hub.
func (p *Program) registerStandby(ctx context.Context, h, standby *hubInfo) error {
	_, err := agents{h.cluster}.create(ctx, &v1alpha1.Agent{TypeMeta: metav1.TypeMeta{APIVersion: agentResource.GroupVersion().String(), Kind: v1alpha1.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: hubstate.AgentName(standby.uid), Namespace: h.namespace}, Spec: v1alpha1.Spec{Mode: string(kind.Standby)}})
	if err != nil {
		return err
	}
	p.say("Registered %s as a standby on %s.", standby, h)
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
