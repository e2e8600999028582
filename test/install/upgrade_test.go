package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// The agent can change its own Deployment and create Jobs. The Job can change the Deployment. Both only if switched on.
func TestChart_SelfUpgradePermissions(t *testing.T) {
	upgrades := func(values ...string) map[string]string {
		found := map[string]string{}
		all := objects(t, render(t, append([]string{onSpoke}, values...)...))
		for key, object := range all {
			if !strings.Contains(key, "self-upgrade") && !strings.Contains(key, "-restore") {
				continue
			}
			switch object.GetKind() {
			case "Role":
				var role rbacv1.Role
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
					t.Fatal(err)
				}
				var rules []string
				for _, r := range role.Rules {
					rules = append(rules, fmt.Sprint(r.Verbs, r.Resources, r.ResourceNames))
				}
				slices.Sort(rules)
				found[object.GetName()] = strings.Join(rules, " ")
			case "RoleBinding":
				var binding rbacv1.RoleBinding
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding); err != nil {
					t.Fatal(err)
				}
				found["binding of "+binding.RoleRef.Name] = binding.Subjects[0].Name
			case "ServiceAccount":
				found["account"] = object.GetName()
			default:
				t.Errorf("%s", key)
			}
		}
		if params := all["ConfigMap/argocd-agent-params"]; params != nil {
			if name := field(t, params, "data", "ARGOCD_AGENT_SELF_UPGRADE_DEPLOYMENT"); name != "" {
				found["setting"] = name
			}
		}
		return found
	}
	if found := upgrades(); len(found) > 0 {
		t.Errorf("by default: %v", found)
	}
	for values, name := range map[string]string{"agent.selfUpgrade.enabled=true": "argocd-agent-agent", "agent.selfUpgrade.enabled=true,fullnameOverride=mine": "mine"} {
		own := fmt.Sprintf("[get patch] [deployments] [%s]", name)
		want := map[string]string{name + "-self-upgrade": "[create] [jobs] [] " + own, name + "-restore": own, "account": name + "-restore", "setting": name,
			"binding of " + name + "-self-upgrade": name, "binding of " + name + "-restore": name + "-restore"}
		if found := upgrades(values); fmt.Sprint(found) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", values, found, want)
		}
	}
}
