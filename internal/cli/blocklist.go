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
)

const blocklistName = "argocd-agent-tls-blocklist"

// An entry with this before an agent's name revokes whatever was issued to reach the cluster of the agent that had that
// name before: kubeconfigs are nowhere listed. The principal makes it when an Agent is deleted.
const formerClients = "proxy-clients."

// The principal continues the list in ConfigMaps with this label when it is full.
const continuedLabel = "argocd-agent.argoproj-labs.io/tls-blocklist"

func (p *Program) blocklistCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocklist",
		Short: "Revoke certificates, and take that back",
		Long: `Keeps the list of revoked certificates: ConfigMap ` + blocklistName + ` on the hub, and those that continue
it when it is full. The principal watches it; a connection that uses a certificate on it is cut within a second, and
no new one is let in.`,
	}
	tls := &cobra.Command{Use: "tls", Short: "Certificates, by their SHA-256 fingerprints"}
	tls.AddCommand(p.blocklistAddCommand(), p.blocklistRemoveCommand(), p.blocklistListCommand())
	cmd.AddCommand(tls)
	return cmd
}

func (p *Program) blocklistAddCommand() *cobra.Command {
	var agentName, note string
	cmd := &cobra.Command{
		Use:   "add [FINGERPRINT…]",
		Short: "Revoke certificates",
		Long: `Revokes certificates by their SHA-256 fingerprints, with or without colons, or the one that an agent last
connected with. To cut off an agent whatever certificate it has, see ` + "`argocd-agentctl agent suspend`" + `.`,
		Example: `  argocd-agentctl blocklist tls add --agent-name w1 --note 'laptop stolen'
  argocd-agentctl blocklist tls add 'AB:CD:…:EF'`,
		Args: argCount(0, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prints, err := fingerprints(args)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(prints, func(one string) bool { return strings.HasPrefix(one, formerClients) }) {
				return usageErrorf("entries %sAGENT are made by the principal, when an Agent is deleted", formerClients)
			}
			hub, err := p.hub()
			if err != nil {
				return err
			}
			if agentName != "" {
				agent, err := agents{hub}.get(cmd.Context(), agentName)
				if err != nil {
					return err
				}
				if agent.Status.Certificate == nil || agent.Status.Certificate.Fingerprint == "" {
					return fmt.Errorf("it is not known with which certificate agent %s connects: give its fingerprint, or suspend the agent", agentName)
				}
				prints = append(prints, agent.Status.Certificate.Fingerprint)
			}
			if len(prints) == 0 {
				return usageErrorf("FINGERPRINT is missing: `argocd-agentctl agent show AGENT` has an agent's; or give --agent-name")
			}
			err = hub.changeBlocklist(cmd.Context(), blocklistName, func(data map[string]string) {
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
		},
	}
	cmd.Flags().StringVar(&agentName, "agent-name", "", "`AGENT` whose present certificate is revoked.")
	cmd.Flags().StringVar(&note, "note", "", "A word on why, for those who read the list.")
	return cmd
}

func (p *Program) blocklistRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove FINGERPRINT…",
		Short: "Take a revocation back",
		Long: "Takes certificates off the list. Whoever has one can connect again. An entry " + formerClients + `AGENT, which is made when an
Agent is deleted, stands for all kubeconfigs and certificates to reach its cluster with that were issued until then.`,
		Example: "  argocd-agentctl blocklist tls remove ABCD…EF",
		Args:    argCount(1, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prints, err := fingerprints(args)
			if err != nil {
				return err
			}
			hub, err := p.hub()
			if err != nil {
				return err
			}
			lists, err := hub.blocklists(cmd.Context())
			if err != nil {
				return err
			}
			missing := prints
			for _, list := range lists {
				has := func(one string) bool { _, ok := list.Data[one]; return ok }
				if !slices.ContainsFunc(prints, has) {
					continue
				}
				err = hub.changeBlocklist(cmd.Context(), list.Name, func(data map[string]string) {
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
				p.say("%s accepted again", one)
			}
			return nil
		},
	}
}

// revoked is an entry of the list.
type revoked struct {
	Fingerprint string `json:"fingerprint"`
	Agent       string `json:"agent,omitempty"` // that last connected with it
	Note        string `json:"note,omitempty"`
}

func (p *Program) blocklistListCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List revoked certificates",
		Long:    "Lists revoked certificates, and the agents that last connected with them as far as that is known.",
		Example: "  argocd-agentctl blocklist tls list -o json",
		Args:    argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := p.hub()
			if err != nil {
				return err
			}
			lists, err := hub.blocklists(cmd.Context())
			if err != nil {
				return err
			}
			listed := map[string]string{}
			for _, list := range slices.Backward(lists) { // what the first says of one goes before
				maps.Copy(listed, list.Data)
			}
			users := map[string]string{}
			if known, err := (agents{hub}).list(cmd.Context(), ""); err == nil { // else without names
				for i := range known.Items {
					if cert := known.Items[i].Status.Certificate; cert != nil {
						users[cert.Fingerprint] = known.Items[i].Name
					}
				}
			}
			v := view{nothing: "No certificates are revoked.", headings: []string{"FINGERPRINT", "AGENT", "NOTE"}}
			all := []revoked{}
			for _, one := range slices.Sorted(maps.Keys(listed)) {
				if agent, ok := strings.CutPrefix(one, formerClients); ok {
					users[one] = agent
				}
				all = append(all, revoked{one, users[one], listed[one]})
				v.names = append(v.names, one)
				v.rows = append(v.rows, []cell{c(one), c(orDash(users[one])), c(orDash(listed[one]))})
			}
			v.object = all
			return p.show(format, v)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// fingerprints brings what people copy into the form of the list.
func fingerprints(given []string) ([]string, error) {
	var all []string
	for _, one := range given {
		if strings.HasPrefix(one, formerClients) {
			all = append(all, one)
			continue
		}
		text := strings.ToUpper(strings.ReplaceAll(strings.TrimSpace(one), ":", ""))
		if b, err := hex.DecodeString(text); err != nil || len(b) != 32 {
			return nil, usageErrorf("%q is no SHA-256 fingerprint: 64 hexadecimal digits are needed, with or without colons", one)
		}
		all = append(all, text)
	}
	return all, nil
}

// blocklists reads the list and what continues it.
func (c *cluster) blocklists(ctx context.Context) ([]corev1.ConfigMap, error) {
	all := c.kube.CoreV1().ConfigMaps(c.namespace)
	first, err := all.Get(ctx, blocklistName, metav1.GetOptions{})
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("read ConfigMap %s: %w", blocklistName, c.explain(err))
	}
	more, err := all.List(ctx, metav1.ListOptions{LabelSelector: continuedLabel})
	if err != nil {
		return nil, fmt.Errorf("read what continues ConfigMap %s: %w", blocklistName, c.explain(err))
	}
	return append([]corev1.ConfigMap{*first}, more.Items...), nil
}

// changeBlocklist changes one of the lists, and makes it if there is none.
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
		return fmt.Errorf("change ConfigMap %s: %w", name, c.explain(err))
	}
	return nil
}
