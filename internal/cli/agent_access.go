package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

func (p *Program) agentAccessCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "access GROUP",
		Short: "Print RBAC rules for the agents of a team",
		Long: `Prints a Role and a RoleBinding with which a group can read its agents: those that name the group in spec.owners. With
them, ` + "`agent list`, `agent show`, `pending`, `top` and `fleet`" + ` show these agents and no others.

Kubernetes cannot grant by owner, so the Role contains the names of the agents. Apply the output again after a change
of owners. The Role does not permit changes: an Agent decides which namespace of the hub its cluster gets.`,
		Example: `  argocd-agentctl agent reconfigure w1 --owners team-a
  argocd-agentctl agent access team-a | kubectl apply -f -`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.onHub(func(ctx context.Context, a agents, args []string) error {
			list, err := a.list(ctx)
			if err != nil {
				return err
			}
			role, binding, err := accessOf(args[0], a.namespace, list.Items)
			if err != nil {
				return err
			}
			return printObjects(p, []any{role, binding})
		}),
	}
}

// accessOf returns the rights of a group to read its agents.
func accessOf(group, namespace string, all []v1alpha1.Agent) (*rbacv1.Role, *rbacv1.RoleBinding, error) {
	var names []string
	for _, agent := range all {
		if slices.Contains(agent.Spec.Owners, group) {
			names = append(names, agent.Name)
		}
	}
	if len(names) == 0 { // a rule without names is for all of them
		return nil, nil, fmt.Errorf("no agent has owner %q: run `argocd-agentctl agent reconfigure AGENT --owners %s`", group, quoted(group))
	}
	slices.SortFunc(names, cmp.Compare[string])
	meta := metav1.ObjectMeta{Name: teamRoleName(group), Namespace: namespace}
	role := &rbacv1.Role{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "Role"}, ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.Group}, Resources: []string{v1alpha1.Resource}, ResourceNames: names, Verbs: []string{"get", "list", "watch"}}}}
	binding := &rbacv1.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding"}, ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}}}
	return role, binding, nil
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// teamRoleName returns the name of a group's Role. Two groups never have the same.
func teamRoleName(group string) string {
	plain := strings.Trim(notInName.ReplaceAllString(strings.ToLower(group), "-"), "-")
	if plain != group || len(plain) > 40 {
		plain = strings.Trim(fmt.Sprintf("%.40s-%x", plain, sha256.Sum256([]byte(group)))[:min(len(plain), 40)+9], "-")
	}
	return "argocd-agent-team-" + plain
}
