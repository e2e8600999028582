package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/argocd-agent/argocd-agent/internal/hublease"
	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func (p *Program) hubCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "hub",
		Aliases: []string{"ha"},
		Short:   "Show and switch the hubs of a group",
		Long: `Shows and switches the hubs of a group: an active hub that serves agents, and a standby. The state of a hub is in
ConfigMap ` + hubstate.ConfigMap + `. A hub without it is alone and active.

The generation grows with every promotion. Agents do not follow a hub with a lower generation than the one they know.`,
	}
	cmd.AddCommand(p.hubStatusCommand(), p.hubPromoteCommand(), p.hubDemoteCommand(), p.hubRebuildCommand())
	return cmd
}

// otherHub is the hub of --other-context.
type otherHub struct{ context, namespace string }

func (o *otherHub) addFlags(cmd *cobra.Command, use string) {
	cmd.Flags().StringVar(&o.context, "other-context", "", "kubeconfig `CONTEXT` of the other hub of the group. "+use)
	cmd.Flags().StringVar(&o.namespace, "other-namespace", "", "Argo CD `NAMESPACE` on the other hub. If unset, the same as on this hub.")
}

// connect returns nil if there is no other hub.
func (o *otherHub) connect(p *Program, hub *cluster) (*cluster, error) {
	if o.context == "" {
		return nil, nil
	}
	other, err := p.connect("other hub", "other", o.context, cmp.Or(o.namespace, hub.namespace))
	if err == nil {
		other.pki = hub.pki
	}
	return other, err
}

// onHubs runs a command with the state of the hub, and the other hub or nil.
func (p *Program) onHubs(given *otherHub, run func(ctx context.Context, h *hubInfo, other *cluster) error) func(*cobra.Command, []string) error {
	return p.onHub(func(ctx context.Context, a agents, _ []string) error {
		other, err := given.connect(p, a.cluster)
		if err != nil {
			return err
		}
		h, err := a.readHub(ctx)
		if err != nil {
			return err
		}
		return run(ctx, h, other)
	})
}

// hubInfo is the state of a hub as it was read.
type hubInfo struct {
	*cluster
	uid    string // of the cluster
	state  hubstate.State
	stored *kind.Object // ConfigMap; nil if there is none
}

func (c *cluster) readHub(ctx context.Context) (*hubInfo, error) {
	h := &hubInfo{cluster: c}
	var err error
	if h.uid, err = c.uid(ctx); err != nil {
		return nil, err
	}
	if h.state, h.stored, err = hubstate.Read(ctx, c.raw, c.namespace, h.uid); err != nil {
		return nil, fmt.Errorf("read the state of %s: %w", c, c.explain(err))
	}
	return h, nil
}

// hub returns what decisions about roles need.
func (h *hubInfo) hub() hubstate.Hub { return hubstate.Hub{ClusterUID: h.uid, State: h.state} }

func (h *hubInfo) write(ctx context.Context, s hubstate.State) error {
	if err := hubstate.Write(ctx, h.raw, h.namespace, h.stored, s); err != nil {
		return fmt.Errorf("%s: %w", h, h.explain(err))
	}
	return nil
}

// hubRow is a hub in the output of hub status.
type hubRow struct {
	Hub         string  `json:"hub"` // context
	Role        string  `json:"role"`
	Generation  uint64  `json:"generation"`
	Identity    string  `json:"identity"`
	Cluster     string  `json:"cluster"`
	Predecessor string  `json:"predecessor,omitempty"`
	Lag         *uint64 `json:"lag,omitempty"`        // revisions
	ReceivedAt  string  `json:"receivedAt,omitempty"` // when a standby was last proven to have everything
	Waits       string  `json:"waits,omitempty"`      // why a standby does not take over by itself
}

func (p *Program) hubStatusCommand() *cobra.Command {
	var given otherHub
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show role, generation and identity of hubs",
		Long: `Shows the role, generation and identity of a hub and, with --other-context, of the other hub of its group.

PREDECESSOR is the store of the hub before this one, and the revision up to which everything of it was received. LAG is
the number of revisions of the other hub's store since then. It counts every write to that API server, not only those
that agents need. RECEIVED is how long ago a standby was last proven to have all objects. If it does not take over by
itself because that is too long ago, the command prints the reason. Both use the local clock. If both hubs
claim to be active, the command prints that and ends with exit code 3.`,
		Example: `  argocd-agentctl hub status --principal-context hub-1 --other-context hub-2
  argocd-agentctl hub status -o json`,
		RunE: p.onHubs(&given, func(ctx context.Context, h *hubInfo, other *cluster) error {
			hubs := []*hubInfo{h}
			if other != nil {
				second, err := other.readHub(ctx)
				if err != nil {
					return err
				}
				hubs = append(hubs, second)
			}
			return p.showHubs(ctx, hubs)
		}),
	}
	given.addFlags(cmd, "If unset, only one hub is shown.")
	return p.withIgnored(p.withOutput(cmd), "the state of a hub is read from its API server", "address")
}

func (p *Program) showHubs(ctx context.Context, hubs []*hubInfo) error {
	v := view{headings: []string{"HUB", "ROLE", "GENERATION", "IDENTITY", "CLUSTER", "PREDECESSOR", "LAG", "RECEIVED"}}
	rows := []hubRow{}
	for i, h := range hubs {
		row := hubRow{Hub: h.context, Role: string(h.state.Role), Generation: h.state.Generation, Identity: h.state.Identity, Cluster: h.uid, Predecessor: hubstate.FormatStore(h.state.Predecessor)}
		lag := ""
		if other := hubs[len(hubs)-1-i]; other != h && h.state.Predecessor.UID == other.uid {
			n, err := h.lagBehind(ctx, other)
			if err != nil {
				return err
			}
			row.Lag, lag = &n, strconv.FormatUint(n, 10)
		}
		received := ""
		if at := time.Unix(h.state.ProvenAt, 0).UTC(); h.state.ProvenAt != 0 {
			row.ReceivedAt, received = at.Format(time.RFC3339), p.age(at)
		}
		var err error
		if row.Waits, err = h.waits(ctx, p.Now()); err != nil {
			p.warn("It is unknown whether %s takes over by itself: %v", h, err)
		}
		rows = append(rows, row)
		v.names = append(v.names, row.Hub)
		v.rows = append(v.rows, []cell{c(row.Hub), c(row.Role), c(strconv.FormatUint(row.Generation, 10)), c(row.Identity), c(row.Cluster), c(row.Predecessor), c(lag), c(received)})
	}
	v.object = rows
	if err := p.show(v); err != nil {
		return err
	}
	for i, row := range rows {
		if row.Waits != "" {
			p.warn("%s does not take over by itself: %s", hubs[i], row.Waits)
		}
	}
	if len(hubs) == 2 {
		if err := bothActive(hubs[0], hubs[1]); err != nil {
			p.warn("%v", err)
			return findingsError{}
		}
	}
	return nil
}

// waits returns why a standby with a Lease of the hubs does not take over by itself, or "". now is the time of this computer.
func (h *hubInfo) waits(ctx context.Context, now time.Time) (string, error) {
	if h.state.Role != hubstate.Standby {
		return "", nil
	}
	set, err := h.principalSettings(ctx)
	if err != nil || set.get("hub-lease-kubeconfig") == "" {
		return "", err
	}
	duration, maxLag := hublease.DefaultDuration, hublease.DefaultMaxLag
	for flag, value := range map[string]*time.Duration{"hub-lease-duration": &duration, "hub-lease-max-lag": &maxLag} {
		if given, err := time.ParseDuration(set.get(flag)); err == nil {
			*value = given
		}
	}
	reason := hublease.Behind(h.state, now, 0, maxLag, duration)
	if reason != "" && h.state.ProvenAt != 0 {
		reason += " (compared with the local clock)"
	}
	return reason, nil
}

// bothActive returns an error if two hubs of one group claim to be active.
func bothActive(a, b *hubInfo) error {
	if a.uid == b.uid || a.state.Identity != b.state.Identity || a.state.Role != hubstate.Active || b.state.Role != hubstate.Active {
		return nil
	}
	if a.state.Generation == b.state.Generation {
		return fmt.Errorf("both hubs claim to be active with generation %d, so that agents may follow either of them. %s", a.state.Generation, resolveBothActive(a, b))
	}
	stale := a
	if b.state.Generation < a.state.Generation {
		stale = b
	}
	return fmt.Errorf("both hubs claim to be active, with generations %d and %d: run `argocd-agentctl hub demote --principal-context %s`",
		a.state.Generation, b.state.Generation, stale.context)
}

// lagBehind returns the number of revisions that the store of another hub has had since this hub was in sync with it.
func (h *hubInfo) lagBehind(ctx context.Context, other *hubInfo) (uint64, error) {
	text, err := other.raw.Revision(ctx, other.namespace, kind.AppProjects, kind.ConfigMaps, kind.Secrets)
	if err != nil {
		return 0, fmt.Errorf("read the revision of %s: %w", other, other.explain(err))
	}
	now, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the revision of %s: %w", other, err)
	}
	return now - min(now, h.state.Predecessor.Revision), nil
}

// usePKINamespace selects the namespace in which the principal of the hub has its CA, unless --pki-namespace is given.
func (h *hubInfo) usePKINamespace(ctx context.Context) error {
	if h.pki != "" {
		return nil
	}
	set, err := h.principalSettings(ctx)
	if err != nil {
		return err
	}
	h.pki = set.get("pki-namespace")
	return nil
}

// sameTrust returns an error if agents of one hub cannot trust the other: another CA, or none on one of them.
func (p *Program) sameTrust(ctx context.Context, a, b *hubInfo) error {
	pins := map[*hubInfo]string{}
	for _, h := range []*hubInfo{a, b} {
		if err := h.usePKINamespace(ctx); err != nil {
			return err
		}
		authority, err := p.pki(h.cluster).Authority(ctx)
		switch {
		case errors.Is(err, pki.ErrNoAuthority):
		case err != nil:
			return err
		default:
			pins[h] = authority.Pin().String()
		}
	}
	if pins[a] != pins[b] {
		return fmt.Errorf("agents that trust one hub do not trust the other: Secret %s of %s and of %s have different CAs. Copy the Secret of the active hub", pki.AuthoritySecret, a, b)
	}
	return nil
}

// sameImage returns an error if the principals of two hubs have different images. The registry and the path in it do not count,
// because each region can have a mirror of its own.
func sameImage(ctx context.Context, a, b *hubInfo) error {
	var images []string
	for _, h := range []*hubInfo{a, b} {
		set, err := h.principalSettings(ctx)
		if err != nil {
			return err
		}
		images = append(images, set.image)
	}
	if imageName(images[0]) != imageName(images[1]) {
		return fmt.Errorf("the principals of the hubs have different images: %q in %s, %q in %s. Upgrade one of them first", images[0], a, images[1], b)
	}
	return nil
}

// imageName returns name, tag and digest of an image, without registry and path.
func imageName(image string) string { return image[strings.LastIndexByte(image, '/')+1:] }
