package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// globals are the settings that all commands share.
type globals struct {
	set *pflag.FlagSet

	kubeconfig         string
	principalContext   string
	principalNamespace string
	agentContext       string
	agentNamespace     string
	configFile         string
	principal, agent   string // names in that file
}

func (g *globals) declare(set *pflag.FlagSet) {
	*g = globals{set: set}
	set.SortFlags = false
	set.StringVar(&g.principalContext, "principal-context", "", "`CONTEXT` of the kubeconfig that leads to the hub. Without it, the current one.")
	set.StringVar(&g.principalNamespace, "principal-namespace", "", "`NAMESPACE` of Argo CD on the hub. Without it, the context's, else argocd.")
	set.StringVar(&g.agentContext, "agent-context", "", "`CONTEXT` of the kubeconfig that leads to the workload cluster. Without it, the current one.")
	set.StringVar(&g.agentNamespace, "agent-namespace", "", "`NAMESPACE` of Argo CD on the workload cluster. Without it, the context's, else argocd.")
	set.StringVar(&g.kubeconfig, "kubeconfig", "", "`FILE` with the contexts. Without it, what kubectl would use.")
	set.StringVar(&g.configFile, "config", "", "`FILE` with short names for hubs and agents; see `argocd-agentctl config --help`. Without it, argocd-agent/ctl.conf in the user's folder for settings.")
	set.StringVar(&g.principal, "principal", "", "`NAME` of a hub in that file, instead of --principal-context and --principal-namespace.")
	set.StringVar(&g.agent, "agent", "", "`NAME` of an agent in that file, instead of --agent-context and --agent-namespace.")
}

// environmentOf names the variable that stands in for a flag.
func environmentOf(flag string) string {
	switch flag {
	case "principal-context", "principal-namespace", "agent-context", "agent-namespace":
		return "ARGOCD_AGENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	case "config":
		return "ARGOCD_AGENT_CTL_CONFIG"
	case "kubeconfig":
		return "KUBECONFIG"
	}
	return ""
}

// complete fills what the command line does not say from the environment and then from the file.
func (g *globals) complete(environ []string) error {
	env := environment(environ)
	g.set.VisitAll(func(f *pflag.Flag) {
		variable := environmentOf(f.Name)
		if value := env[variable]; !f.Changed && value != "" && variable != "KUBECONFIG" { // client-go reads that one, which may be a list
			_ = f.Value.Set(value) // a text takes anything
		}
	})
	if err := g.fromFile(env); err != nil {
		return err
	}
	for flag, namespace := range map[string]string{"principal-namespace": g.principalNamespace, "agent-namespace": g.agentNamespace} {
		if wrong := validation.IsDNS1123Label(cmp.Or(namespace, "ok")); len(wrong) > 0 {
			return usageErrorf("--%s %q cannot be the name of a namespace: %s", flag, namespace, strings.Join(wrong, "; "))
		}
	}
	return nil
}

func environment(environ []string) map[string]string {
	env := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok {
			env[name] = value
		}
	}
	return env
}

// getenv returns a variable of the program's environment.
func (p *Program) getenv(name string) string { return environment(p.Env)[name] }

// fromFile fills what is still open from the file of short names.
func (g *globals) fromFile(env map[string]string) error {
	given := g.configFile != ""
	file := cmp.Or(g.configFile, defaultConfigFile(env))
	g.configFile = file
	if file == "" {
		return nil
	}
	c, err := readConfigFile(file, given)
	if err != nil {
		return err
	}
	if name := cmp.Or(g.principal, c.DefaultPrincipal); name != "" && g.principalContext == "" {
		place, ok := c.Contexts.Principals[name]
		if !ok {
			return usageErrorf("%s has no principal %q: `argocd-agentctl config list` shows what it has", file, name)
		}
		g.principalContext, g.principalNamespace = place.Context, cmp.Or(g.principalNamespace, place.Namespace)
	}
	if g.agent != "" && g.agentContext == "" {
		place, ok := c.Contexts.Agents[g.agent]
		if !ok {
			return usageErrorf("%s has no agent %q: `argocd-agentctl config list` shows what it has", file, g.agent)
		}
		g.agentContext, g.agentNamespace = place.Context, cmp.Or(g.agentNamespace, place.Namespace)
	}
	return nil
}

// where describes a side for people.
func where(role, context, namespace string) string {
	return fmt.Sprintf("the %s (context %s, namespace %s)", role, cmp.Or(context, "current"), namespace)
}
