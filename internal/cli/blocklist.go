package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

const blocklistName = "argocd-agent-tls-blocklist"

// formerClients is the prefix of an entry that revokes all client certificates for the cluster of a deleted agent. The
// principal adds it when an Agent is deleted, because kubeconfigs are not recorded.
const formerClients = "proxy-clients."

// continuedLabel marks the ConfigMaps that continue a full list.
const continuedLabel = "argocd-agent.argoproj-labs.io/tls-blocklist"

func (p *Program) blocklistCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocklist",
		Short: "Revoke certificates and undo revocations",
		Long: `Manages the list of revoked certificates in ConfigMap ` + blocklistName + ` on the hub. If the list is full, it
continues in further ConfigMaps. The principal watches the list. It closes connections with a revoked certificate
within a second and refuses new ones.`,
	}
	tls := &cobra.Command{Use: "tls", Short: "Manage revoked certificates by SHA-256 fingerprint"}
	tls.AddCommand(p.blocklistAddCommand(), p.blocklistRemoveCommand(), p.blocklistListCommand())
	cmd.AddCommand(tls)
	return cmd
}

func (p *Program) blocklistAddCommand() *cobra.Command {
	var agentName, note string
	var prints []string
	cmd := &cobra.Command{
		Use:   "add [FINGERPRINT…]",
		Short: "Revoke certificates",
		Long: `Revokes certificates by SHA-256 fingerprint, with or without colons, or the last certificate of an agent. To refuse an
agent with any certificate, use ` + "`argocd-agentctl agent suspend`" + `.`,
		Example: `  argocd-agentctl blocklist tls add --agent-name w1 --note 'laptop stolen'
  argocd-agentctl blocklist tls add 'AB:CD:…:EF'`,
		PreRunE: func(_ *cobra.Command, args []string) (err error) {
			if prints, err = fingerprints(args); err != nil {
				return err
			}
			if slices.ContainsFunc(prints, func(one string) bool { return strings.HasPrefix(one, formerClients) }) {
				return cmdline.UsageErrorf("only the principal adds entries %sAGENT, when an Agent is deleted", formerClients)
			}
			if len(prints) == 0 && agentName == "" {
				return cmdline.UsageErrorf("FINGERPRINT is missing: run `argocd-agentctl agent show AGENT` to find it, or set --agent-name")
			}
			return nil
		},
		RunE: p.onHub(func(ctx context.Context, hub agents, _ []string) error {
			if agentName != "" {
				agent, err := hub.get(ctx, agentName)
				if err != nil {
					return err
				}
				if agent.Status.Certificate == nil || agent.Status.Certificate.Fingerprint == "" {
					return fmt.Errorf("the certificate of agent %s is unknown: use its fingerprint, or suspend the agent", agentName)
				}
				prints = append(prints, agent.Status.Certificate.Fingerprint)
			}
			err := hub.changeBlocklist(ctx, blocklistName, func(data map[string]string) {
				for _, one := range prints {
					data[one] = note
				}
			})
			if err != nil {
				return err
			}
			for _, one := range prints {
				p.say("%s revoked", one)
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&agentName, "agent-name", "", "Revoke the current certificate of this `AGENT`.")
	cmd.Flags().StringVar(&note, "note", "", "Note for the list, for example the reason.")
	return cmd
}

func (p *Program) blocklistRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove FINGERPRINT…",
		Short: "Undo revocations",
		Long: "Removes certificates from the list. They are accepted again. An entry " + formerClients + `AGENT revokes all kubeconfigs
and client certificates for the cluster of a deleted agent.`,
		Example: "  argocd-agentctl blocklist tls remove ABCD…EF",
		RunE: p.onHub(func(ctx context.Context, hub agents, args []string) error {
			prints, err := fingerprints(args)
			if err != nil {
				return err
			}
			lists, err := hub.blocklists(ctx)
			if err != nil {
				return err
			}
			missing := prints
			for _, list := range lists {
				has := func(one string) bool { _, ok := list.Data[one]; return ok }
				if !slices.ContainsFunc(prints, has) {
					continue
				}
				err = hub.changeBlocklist(ctx, list.Name, func(data map[string]string) {
					for _, one := range prints {
						delete(data, one)
					}
				})
				if err != nil {
					return err
				}
				missing = slices.DeleteFunc(slices.Clone(missing), has)
			}
			if len(missing) > 0 {
				return fmt.Errorf("not on the list: %s", strings.Join(missing, ", "))
			}
			for _, one := range prints {
				p.say("%s no longer revoked", one)
			}
			return nil
		}),
	}
}

// revoked is an entry of the list.
type revoked struct {
	Fingerprint string `json:"fingerprint"`
	Agent       string `json:"agent,omitempty"` // last agent that connected with it
	Note        string `json:"note,omitempty"`
}

func (p *Program) blocklistListCommand() *cobra.Command {
	return p.withOutput(&cobra.Command{
		Use:     "list",
		Short:   "List revoked certificates",
		Long:    "Lists revoked certificates and the agents that last connected with them, if known.",
		Example: "  argocd-agentctl blocklist tls list -o json",
		RunE: p.onHub(func(ctx context.Context, a agents, _ []string) error {
			lists, err := a.blocklists(ctx)
			if err != nil {
				return err
			}
			listed := map[string]string{}
			for _, list := range slices.Backward(lists) { // the first list has priority
				maps.Copy(listed, list.Data)
			}
			users := map[string]string{}
			if known, err := a.list(ctx); err == nil { // names are optional
				for i := range known.Items {
					if cert := known.Items[i].Status.Certificate; cert != nil {
						users[cert.Fingerprint] = known.Items[i].Name
					}
				}
			}
			v := view{empty: "No certificates are revoked.", headings: []string{"FINGERPRINT", "AGENT", "NOTE"}}
			all := []revoked{}
			for _, one := range slices.Sorted(maps.Keys(listed)) {
				if agent, ok := strings.CutPrefix(one, formerClients); ok {
					users[one] = agent
				}
				all = append(all, revoked{one, users[one], listed[one]})
				v.names = append(v.names, one)
				v.rows = append(v.rows, []cell{c(one), c(users[one]), c(listed[one])})
			}
			v.object = all
			return p.show(v)
		}),
	})
}

// fingerprints normalizes fingerprints to upper-case hex.
func fingerprints(given []string) ([]string, error) {
	var all []string
	for _, one := range given {
		if strings.HasPrefix(one, formerClients) {
			all = append(all, one)
			continue
		}
		text := strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(one), ":", ""))
		if b, err := hex.DecodeString(text); err != nil || len(b) != 32 {
			return nil, cmdline.UsageErrorf("%q is not a SHA-256 fingerprint: it must have 64 hexadecimal digits, with or without colons", one)
		}
		all = append(all, text)
	}
	return all, nil
}

// blocklists reads the list and its continuations.
func (c *cluster) blocklists(ctx context.Context) ([]corev1.ConfigMap, error) {
	all := c.kube.CoreV1().ConfigMaps(c.namespace)
	first, err := all.Get(ctx, blocklistName, metav1.GetOptions{})
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("get ConfigMap %s: %w", blocklistName, c.explain(err))
	}
	more, err := all.List(ctx, metav1.ListOptions{LabelSelector: continuedLabel})
	if err != nil {
		return nil, fmt.Errorf("list ConfigMaps that continue %s: %w", blocklistName, c.explain(err))
	}
	return append([]corev1.ConfigMap{*first}, more.Items...), nil
}

// changeBlocklist changes one of the lists and creates it if it does not exist.
func (c *cluster) changeBlocklist(ctx context.Context, name string, change func(map[string]string)) error {
	maps := c.kube.CoreV1().ConfigMaps(c.namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		list, err := maps.Get(ctx, name, metav1.GetOptions{})
		if notFound(err) {
			list = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}}, Data: map[string]string{}}
			change(list.Data)
			_, err = maps.Create(ctx, list, metav1.CreateOptions{FieldManager: fieldManager})
			return err
		}
		if err != nil {
			return err
		}
		if list.Data == nil {
			list.Data = map[string]string{}
		}
		change(list.Data)
		_, err = maps.Update(ctx, list, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil {
		return fmt.Errorf("update ConfigMap %s: %w", name, c.explain(err))
	}
	return nil
}
